"""One device of a ResourceSlice: its attributes, capacities, taints, counters and nodes."""

import re

from .devicenames import (
    label_errors,
    qualified_errors,
    required_label_errors,
)
from .deviceparts import binding_errors, taint_errors
from .fieldlists import list_errors, map_errors, set_errors
from .names import dns_subdomain
from .nodeselectors import node_selector_errors
from .requestpolicy import policy_errors
from .status import FieldError, Object, invalid, required, too_long

_MAX_ATTRIBUTES_AND_CAPACITIES = 32
_MAX_VALUE_BYTES = 64
_MAX_TAINTS = 16
_MAX_SETS_CONSUMED = 2
_MAX_COUNTERS = 32
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_ON_NODES = ("nodeName", "nodeSelector", "allNodes")
_NO_NODE_SELECTION = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set "
    "to true in the ResourceSlice spec"
)
_ONE_NODE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)


def device_errors(device: Object, field: str, *, per_device_nodes: bool) -> list[FieldError]:
    """Findings about one device; `per_device_nodes`: each device selects its own nodes."""
    found = label_errors(device.get("name", ""), f"{field}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    total = len(attributes) + len(capacity)
    if total > _MAX_ATTRIBUTES_AND_CAPACITIES:
        text = "the total number of attributes and capacities must not exceed 32"
        found.append(invalid(field, total, text))
    for key, value in attributes.items():
        found += qualified_errors(key, f"{field}.attributes")
        found += _attribute(value, f"{field}.attributes[{key}]")
    shared = bool(device.get("allowMultipleAllocations"))
    for key, value in capacity.items():
        found += qualified_errors(key, f"{field}.capacity")
        where = f"{field}.capacity[{key}].requestPolicy"
        found += policy_errors(value, where, shared=shared)
    found += list_errors(device.get("taints") or [], _MAX_TAINTS, f"{field}.taints", taint_errors)
    used = device.get("consumesCounters") or []
    found += set_errors(
        used,
        _MAX_SETS_CONSUMED,
        f"{field}.consumesCounters",
        _consumed,
        lambda item: str(item.get("counterSet", "")),
    )
    found += _nodes(device, field) if per_device_nodes else _no_nodes(device, field)
    return found + binding_errors(device, field)


def counter_set_errors(counter_set: Object, field: str) -> list[FieldError]:
    """Findings about the counters that devices of a pool share."""
    found = required_label_errors(counter_set.get("name", ""), f"{field}.name")
    return found + _counters(counter_set, f"{field}.counters")


def _consumed(item: Object, field: str) -> list[FieldError]:
    found = required_label_errors(item.get("counterSet", ""), f"{field}.counterSet")
    return found + _counters(item, f"{field}.counters")


def _counters(item: Object, field: str) -> list[FieldError]:
    counters = item.get("counters") or {}
    if not counters:
        return [required(field)]
    return map_errors(counters, _MAX_COUNTERS, field, label_errors)


def _attribute(attribute: Object, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    version = attribute.get("version")
    if version is not None and not _SEMVER.fullmatch(version):
        text = "must be a string compatible with semver.org spec 2.0.0"
        found.append(invalid(f"{field}.version", version, text))
    for kind in ("string", "version"):
        if len(attribute.get(kind, "").encode()) > _MAX_VALUE_BYTES:
            found.append(too_long(f"{field}.{kind}", _MAX_VALUE_BYTES))
    if len(attribute) != 1:
        shown = attribute if attribute else ""
        found.append(invalid(field, shown, "exactly one value must be specified"))
    return found


def _no_nodes(device: Object, field: str) -> list[FieldError]:
    if any(name in device for name in _ON_NODES):
        return [invalid(field, None, _NO_NODE_SELECTION)]
    return []


def _nodes(device: Object, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    chosen = []
    if "nodeName" in device:
        name, where = device["nodeName"], f"{field}.nodeName"
        found += [invalid(where, name, text) for text in dns_subdomain(name) if name]
        if name:
            chosen.append("`nodeName`")
        else:
            found.append(invalid(where, "", "must not be empty"))
    if "nodeSelector" in device:
        chosen.append("`nodeSelector`")
        found += node_selector_errors(device["nodeSelector"], f"{field}.nodeSelector")
    if device.get("allNodes"):
        chosen.append("`allNodes`")
    elif "allNodes" in device:
        text = "must be either unset or set to true"
        found.append(invalid(f"{field}.allNodes", False, text))
    if not chosen:
        return [*found, required(field, _ONE_NODE_SELECTION)]
    if len(chosen) > 1:
        found.append(invalid(field, "{" + ", ".join(chosen) + "}", _ONE_NODE_SELECTION))
    return found
