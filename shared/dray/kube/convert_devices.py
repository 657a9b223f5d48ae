"""ResourceSlices and DeviceClasses (resource.k8s.io/v1) as domain values."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dray.api.devices import (
    AttributeValue,
    Capacity,
    Device,
    DeviceClass,
    OpaqueConfig,
    RequestPolicy,
    ResourceSlice,
    Version,
)
from dray.kube.convert_metadata import taints_from
from dray.kube.ports import Object

_UNREAD_IN_DEVICE: Final = (
    "consumesCounters",
    "bindsToNode",
    "bindingConditions",
    "nodeName",
    "nodeSelector",
    "allNodes",
    "nodeAllocatableResources",
)
_LIST_ATTRIBUTES: Final = ("ints", "bools", "strings", "versions")


def slice_from(obj: Object) -> ResourceSlice:
    """A ResourceSlice. ``node`` is empty for slices that are not of one node."""
    spec = obj["spec"]
    pool = spec["pool"]
    return ResourceSlice(
        name=obj["metadata"]["name"],
        uid=obj["metadata"].get("uid", ""),
        driver=spec["driver"],
        pool=pool["name"],
        generation=int(pool.get("generation", 0)),
        slice_count=int(pool.get("resourceSliceCount", 1)),
        node=spec.get("nodeName") or "",
        devices=tuple(_device(entry) for entry in spec.get("devices") or ()),
    )


def class_from(obj: Object) -> DeviceClass:
    """A DeviceClass."""
    spec = obj.get("spec") or {}
    return DeviceClass(
        name=obj["metadata"]["name"],
        selectors=selectors_from(spec.get("selectors")),
        config=configs_from(spec.get("config"), "FromClass"),
        extended_resource=spec.get("extendedResourceName") or "",
    )


def selectors_from(entries: Iterable[Mapping[str, Any]] | None) -> tuple[str, ...]:
    """The CEL expressions of ``selectors``."""
    return tuple(entry["cel"]["expression"] for entry in entries or ())


def configs_from(
    entries: Iterable[Mapping[str, Any]] | None, source: str
) -> tuple[OpaqueConfig, ...]:
    """Opaque configurations; ``source`` for entries that name none."""
    return tuple(
        OpaqueConfig(
            driver=entry["opaque"]["driver"],
            parameters=entry["opaque"].get("parameters") or {},
            requests=tuple(entry.get("requests") or ()),
            source=entry.get("source") or source,
        )
        for entry in entries or ()
        if entry.get("opaque")
    )


def _device(entry: Mapping[str, Any]) -> Device:
    attributes = entry.get("attributes") or {}
    lists = [name for name, value in attributes.items() if _is_list(value)]
    unread = [key for key in _UNREAD_IN_DEVICE if entry.get(key)]
    return Device(
        name=entry["name"],
        attributes={
            name: _attribute(value) for name, value in attributes.items() if name not in lists
        },
        capacity={name: _capacity(value) for name, value in (entry.get("capacity") or {}).items()},
        allow_multiple_allocations=bool(entry.get("allowMultipleAllocations")),
        taints=taints_from(entry.get("taints")),
        unsupported=(*unread, *(f"list attribute {name}" for name in lists)),
    )


def _is_list(value: Mapping[str, Any]) -> bool:
    return any(value.get(kind) is not None for kind in _LIST_ATTRIBUTES)


def _attribute(value: Mapping[str, Any]) -> AttributeValue:
    if (version := value.get("version")) is not None:
        return Version(version)
    for kind in ("string", "bool", "int"):
        if (found := value.get(kind)) is not None:
            plain: AttributeValue = found
            return plain
    return ""


def _capacity(value: Mapping[str, Any]) -> Capacity:
    policy = value.get("requestPolicy")
    return Capacity(str(value["value"]), _policy(policy) if policy else None)


def _policy(policy: Mapping[str, Any]) -> RequestPolicy:
    valid = policy.get("validRange") or {}
    return RequestPolicy(
        default=_text(policy.get("default")),
        valid_values=tuple(str(amount) for amount in policy.get("validValues") or ()),
        minimum=_text(valid.get("min")),
        maximum=_text(valid.get("max")),
        step=_text(valid.get("step")),
    )


def _text(amount: object) -> str | None:
    return None if amount is None else str(amount)
