"""ResourceSlices: one kind of node selection, valid devices, consistent request policies."""

from collections.abc import Mapping, Sequence
from typing import Any

from . import metadata
from .devicenames import driver_errors, pool_errors
from .devicespec import counter_set_errors, device_errors
from .fieldlists import named, set_errors
from .names import dns_subdomain
from .nodeselectors import node_selector_errors, terms_shown
from .rules import ResourceRules, immutable
from .status import FieldError, Object, invalid, required

_MAX_DEVICES = 128
_MAX_ADVANCED_DEVICES = 64
"""Limit if any device has taints or consumes counters."""
_MAX_COUNTER_SETS = 8
_SELECTIONS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)


class SliceRules(ResourceRules):
    """ResourceSlice."""

    def default(self, obj: Object) -> None:
        pool = obj.setdefault("spec", {}).setdefault("pool", {})
        pool.setdefault("generation", 0)
        pool.setdefault("resourceSliceCount", 0)
        for device in obj["spec"].get("devices") or []:
            for taint in device.get("taints") or []:
                taint.setdefault("timeAdded", metadata.now())

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        return _spec(obj["spec"])

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        spec, before = new["spec"], old["spec"]
        found = immutable("spec.pool.name", _pool(spec).get("name"), _pool(before).get("name"))
        found += immutable("spec.driver", spec.get("driver"), before.get("driver"))
        found += immutable("spec.nodeName", spec.get("nodeName"), before.get("nodeName"))
        return found + _spec(spec)


def _pool(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return spec.get("pool") or {}


def _spec(spec: Object) -> list[FieldError]:
    found = driver_errors(spec.get("driver", ""), "spec.driver")
    found += _pool_errors(_pool(spec))
    found += _node_selection(spec)
    devices = spec.get("devices") or []
    if "sharedCounters" in spec and "devices" in spec:
        found.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    advanced = any(d.get("taints") or d.get("consumesCounters") for d in devices)
    limit = _MAX_ADVANCED_DEVICES if advanced else _MAX_DEVICES
    per_device_nodes = bool(spec.get("perDeviceNodeSelection"))
    found += set_errors(
        devices,
        limit,
        "spec.devices",
        lambda d, where: device_errors(d, where, per_device_nodes=per_device_nodes),
        named,
    )
    sets = spec.get("sharedCounters") or []
    where = "spec.sharedCounters"
    return found + set_errors(sets, _MAX_COUNTER_SETS, where, counter_set_errors, named)


def _pool_errors(pool: Mapping[str, Any]) -> list[FieldError]:
    found = pool_errors(pool.get("name", ""), "spec.pool.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        field = "spec.pool.resourceSliceCount"
        found.append(invalid(field, count, "must be greater than zero"))
    if generation < 0:
        text = "must be greater than or equal to zero"
        found.append(invalid("spec.pool.generation", generation, text))
    return found


def _node_selection(spec: Object) -> list[FieldError]:
    found: list[FieldError] = []
    chosen = []
    for name in _SELECTIONS:
        if name not in spec:
            continue
        if name == "nodeName" and not spec[name]:
            text = "must be either unset or set to a non-empty string"
            found.append(invalid("spec.nodeName", "", text))
        elif name in ("allNodes", "perDeviceNodeSelection") and not spec[name]:
            found.append(invalid(f"spec.{name}", False, "must be either unset or set to true"))
        else:
            chosen.append(f"`{name}`")
    found += [
        invalid("spec.nodeName", spec["nodeName"], text)
        for text in dns_subdomain(spec.get("nodeName") or "a")
    ]
    if "nodeSelector" in spec:
        selector, field = spec["nodeSelector"], "spec.nodeSelector"
        found += node_selector_errors(selector, field)
        if len(terms := terms_shown(selector)) != 1:
            text = "must have exactly one node selector term"
            found.append(invalid(f"{field}.nodeSelectorTerms", terms, text))
    if not chosen:
        found.append(required("spec", _ONE_SELECTION))
    elif len(chosen) > 1:
        text = f"{_ONE_SELECTION}, but multiple fields are set"
        found.append(invalid("spec", "{" + ", ".join(chosen) + "}", text))
    return found
