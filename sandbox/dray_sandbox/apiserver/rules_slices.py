"""ResourceSlices: one kind of node selection, valid devices, request policies that add up."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import metadata, quantities
from .claimspec import driver_errors, list_errors, qualified_errors
from .names import dns_label, dns_subdomain, label_value, qualified_name
from .quantities import Quantity
from .rules import Rules, immutable
from .rules_claims import binding_errors, pool_errors
from .status import (
    FieldError,
    Object,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

MAX_DEVICES = 128
MAX_ADVANCED_DEVICES = 64
"""Limit where any device has taints or consumes counters."""
MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_VALUE_BYTES = 64
MAX_TAINTS = 16
MAX_VALID_VALUES = 10
MAX_COUNTER_SETS = 8
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_SELECTIONS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)


class SliceRules(Rules):
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
    limit = MAX_ADVANCED_DEVICES if advanced else MAX_DEVICES
    per_device = bool(spec.get("perDeviceNodeSelection"))
    found += list_errors(
        devices, limit, "spec.devices", lambda d, where: _device(d, where, per_device), "name"
    )
    sets = spec.get("sharedCounters") or []
    return found + list_errors(sets, MAX_COUNTER_SETS, "spec.sharedCounters", _counters, "name")


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
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if "nodeSelector" in spec and len(terms) != 1:
        field = "spec.nodeSelector.nodeSelectorTerms"
        found.append(invalid(field, terms, "must have exactly one node selector term"))
    if not chosen:
        found.append(required("spec", _ONE_SELECTION))
    elif len(chosen) > 1:
        text = f"{_ONE_SELECTION}, but multiple fields are set"
        found.append(invalid("spec", "{" + ", ".join(chosen) + "}", text))
    return found


def _device(device: Object, field: str, per_device: bool) -> list[FieldError]:
    name = device.get("name", "")
    found = [invalid(f"{field}.name", name, text) for text in dns_label(name)]
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    total = len(attributes) + len(capacity)
    if total > MAX_ATTRIBUTES_AND_CAPACITIES:
        text = "the total number of attributes and capacities must not exceed 32"
        found.append(invalid(field, total, text))
    for key, value in attributes.items():
        found += qualified_errors(key, f"{field}.attributes")
        found += _attribute(value, f"{field}.attributes[{key}]")
    shared = bool(device.get("allowMultipleAllocations"))
    for key, value in capacity.items():
        found += qualified_errors(key, f"{field}.capacity")
        found += _capacity(value, f"{field}.capacity[{key}].requestPolicy", shared)
    found += list_errors(device.get("taints") or [], MAX_TAINTS, f"{field}.taints", _taint)
    if not per_device and any(key in device for key in ("nodeName", "nodeSelector", "allNodes")):
        text = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if "
            "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        )
        found.append(invalid(field, None, text))
    return found + binding_errors(device, field)


def _attribute(attribute: Object, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    version = attribute.get("version")
    if version is not None and not _SEMVER.fullmatch(version):
        text = "must be a string compatible with semver.org spec 2.0.0"
        found.append(invalid(f"{field}.version", version, text))
    for kind in ("string", "version"):
        if len(attribute.get(kind, "").encode()) > MAX_VALUE_BYTES:
            found.append(too_long(f"{field}.{kind}", MAX_VALUE_BYTES))
    if len(attribute) != 1:
        shown = attribute if attribute else ""
        found.append(invalid(field, shown, "exactly one value must be specified"))
    return found


def _taint(taint: Object, field: str) -> list[FieldError]:
    key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
    found = [invalid(f"{field}.key", key, text) for text in qualified_name(key)]
    found += [invalid(f"{field}.value", value, text) for text in label_value(value)]
    if not effect:
        found.append(required(f"{field}.effect"))
    elif effect not in ("NoExecute", "NoSchedule", "None"):
        effects = ("NoExecute", "NoSchedule", "None")
        found.append(not_supported(f"{field}.effect", effect, effects))
    return found


def _counters(counter_set: Object, field: str) -> list[FieldError]:
    name = counter_set.get("name", "")
    found = [required(f"{field}.name")] if not name else []
    found += [invalid(f"{field}.name", name, text) for text in dns_label(name) if name]
    if not counter_set.get("counters"):
        found.append(required(f"{field}.counters"))
    return found


def _capacity(capacity: Object, field: str, shared: bool) -> list[FieldError]:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    if not shared:
        return [forbidden_field(field, "allowMultipleAllocations must be true")]
    size = quantities.parse(capacity.get("value", "0"))
    values, limits = policy.get("validValues") or [], policy.get("validRange")
    if values and limits is not None:
        text = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        return [forbidden_field(field, text)]
    if values:
        return _with_default(
            policy, field, "validValues", lambda d: _values(values, d, size, field)
        )
    if limits is not None:
        return _with_default(policy, field, "validRange", lambda d: _range(limits, d, size, field))
    return []


def _with_default(policy: Object, field: str, kind: str, check: Any) -> list[FieldError]:
    if "default" not in policy:
        return [required(f"{field}.default", f"required when {kind} is defined")]
    result: list[FieldError] = check(quantities.parse(policy["default"]))
    return result


def _values(values: list[str], default: Quantity, size: Quantity, field: str) -> list[FieldError]:
    field = f"{field}.validValues"
    options = [quantities.parse(value) for value in values]
    found = [
        invalid(f"{field}[{index + 1}]", str(after), "values must be sorted in ascending order")
        for index, (before, after) in enumerate(itertools.pairwise(options))
        if before.value > after.value
    ]
    if len(options) > MAX_VALID_VALUES:
        found.append(too_many(field, len(options), MAX_VALID_VALUES))
    else:
        for index, option in enumerate(options):
            if option.value > size.value:
                text = f"option is larger than capacity value: {size}"
                found.append(invalid(f"{field}[{index}]", str(option), text))
            if option.whole() in [earlier.whole() for earlier in options[:index]]:
                found.append(duplicate(f"{field}[{index}]", str(option.whole())))
    if all(option.value != default.value for option in options):
        text = "default value is not valid according to the requestPolicy"
        found.append(invalid(field, str(default), text))
    return found


def _range(limits: Object, default: Quantity, size: Quantity, field: str) -> list[FieldError]:
    field = f"{field}.validRange"
    if "min" not in limits:
        return [required(f"{field}.min", "required when validRange is defined")]
    least = quantities.parse(limits["min"])
    found: list[FieldError] = []

    def refuse(bad: bool, name: str, shown: Quantity, text: str) -> None:
        if bad:
            found.append(invalid(f"{field}.{name}", str(shown), text))

    refuse(least.value > size.value, "min", least, f"min is larger than capacity value: {size}")
    refuse(default.value < least.value, "min", default, f"default is less than min: {least}")
    most = quantities.parse(limits["max"]) if "max" in limits else None
    if most is not None:
        refuse(least.value > most.value, "max", least, f"min is larger than max: {most}")
        refuse(most.value > size.value, "max", most, f"max is larger than capacity value: {size}")
        refuse(default.value > most.value, "max", default, f"default is more than max: {most}")
    if "step" in limits:
        _step(quantities.parse(limits["step"]), least, default, most, size, refuse)
    return found


def _step(
    step: Quantity,
    least: Quantity,
    default: Quantity,
    most: Quantity | None,
    size: Quantity,
    refuse: Any,
) -> None:
    added = Quantity(least.value + step.value, least.family)
    text = f"one step {added} is larger than capacity value: {size}"
    refuse(added.value > size.value, "step", step, text)
    if step.whole() == 0:
        return
    text = f"value is not a multiple of a given step ({step}) from ({least})"
    for value in [default] if most is None else [default, most]:
        refuse((value.whole() - least.whole()) % step.whole() != 0, "step", value, text)
