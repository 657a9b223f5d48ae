"""ResourceSlices, DeviceClasses and DeviceTaintRules (resource.k8s.io/v1) as domain values."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dray.api.devices import (
    NEWER_FIELDS,
    Attribute,
    Capacity,
    CounterSet,
    Device,
    DeviceClass,
    DeviceCounterConsumption,
    DeviceTaintRule,
    OpaqueConfig,
    RequestPolicy,
    ResourceSlice,
    Version,
)
from dray.api.nodes import (
    NOWHERE,
    NodeSelection,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.kube.convert_metadata import taints_from
from dray.kube.ports import Object

_NODES: Final = ("nodeName", "nodeSelector", "allNodes")
_NEWER_FIELDS: Final = (
    "consumesCounters",
    "bindsToNode",
    "bindingConditions",
    *_NODES,
    "nodeAllocatableResources",
)
"""Fields of a device that earlier releases ignore."""
_LIST_ATTRIBUTES: Final = ("ints", "bools", "strings")


def slice_from(obj: Object) -> ResourceSlice:
    """A ResourceSlice."""
    spec = obj["spec"]
    pool = spec["pool"]
    node = spec.get("nodeName") or ""
    capacities: dict[bytes, dict[str, Capacity]] = {}
    return ResourceSlice(
        name=obj["metadata"]["name"],
        uid=obj["metadata"].get("uid", ""),
        driver=spec["driver"],
        pool=pool["name"],
        generation=int(pool.get("generation", 0)),
        slice_count=int(pool.get("resourceSliceCount", 1)),
        node=node,
        devices=tuple([_device(entry, capacities) for entry in spec.get("devices") or ()]),
        nodes=NOWHERE if node else _nodes(spec),
        per_device_reach=spec.get("perDeviceNodeSelection"),
        counter_sets=tuple(
            CounterSet(entry["name"], _counters(entry))
            for entry in spec.get("sharedCounters") or ()
        ),
    )


def taint_rule_from(obj: Object) -> DeviceTaintRule:
    """A DeviceTaintRule."""
    spec = obj["spec"]
    selector = spec.get("deviceSelector") or {}
    (taint,) = taints_from([spec["taint"]])
    return DeviceTaintRule(
        obj["metadata"]["name"],
        taint,
        selector.get("driver") or "",
        selector.get("pool") or "",
        selector.get("device") or "",
    )


def node_selector_from(selector: Mapping[str, Any] | None) -> NodeSelector | None:
    """A ``NodeSelector``, or None if there is none."""
    if selector is None:
        return None
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                _requirements(term.get("matchExpressions")), _requirements(term.get("matchFields"))
            )
            for term in selector.get("nodeSelectorTerms") or ()
        )
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
    """Opaque configurations. Entries without a source get ``source``."""
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


def _device(entry: Mapping[str, Any], capacities: dict[bytes, dict[str, Capacity]]) -> Device:
    """A device. ``capacities``: those of the slice's devices so far, by their JSON. Devices of one
    model have equal capacities and share one object."""
    attributes = {
        name: _attribute(value) for name, value in (entry.get("attributes") or {}).items()
    }
    device = Device(
        name=entry["name"],
        attributes=attributes,
        capacity=_shared_capacity(entry.get("capacity") or {}, capacities),
        allow_multiple_allocations=bool(entry.get("allowMultipleAllocations")),
        taints=taints_from(entry.get("taints")),
    )
    lists = any(isinstance(value, tuple) for value in attributes.values())
    return (
        _with_newer_fields(device, entry) if lists or any(map(entry.get, _NEWER_FIELDS)) else device
    )


def _with_newer_fields(device: Device, entry: Mapping[str, Any]) -> Device:
    return replace(
        device,
        unsupported=(NEWER_FIELDS,),
        consumes=tuple(
            DeviceCounterConsumption(
                use["counterSet"], _counters(use), tuple(use.get("compatibilityGroups") or ())
            )
            for use in entry.get("consumesCounters") or ()
        ),
        reach=_nodes(entry),
        binds_to_node=bool(entry.get("bindsToNode")),
        binding_conditions=_texts(entry.get("bindingConditions")),
        binding_failure_conditions=_texts(entry.get("bindingFailureConditions")),
    )


def _nodes(within: Mapping[str, Any]) -> NodeSelection:
    if not any(map(within.get, _NODES)):
        return NOWHERE
    return NodeSelection(
        within.get("nodeName") or "",
        bool(within.get("allNodes")),
        node_selector_from(within.get("nodeSelector")),
    )


def _requirements(
    entries: Iterable[Mapping[str, Any]] | None,
) -> tuple[NodeSelectorRequirement, ...]:
    return tuple(
        NodeSelectorRequirement(entry["key"], entry["operator"], tuple(entry.get("values") or ()))
        for entry in entries or ()
    )


def _counters(entry: Mapping[str, Any]) -> dict[str, str]:
    counters = entry.get("counters") or {}
    return {name: str(counter["value"]) for name, counter in counters.items()}


def _attribute(value: Mapping[str, Any]) -> Attribute:
    if (version := value.get("version")) is not None:
        return Version(version)
    for kind in ("string", "bool", "int"):
        if (found := value.get(kind)) is not None:
            plain: Attribute = found
            return plain
    return _list_attribute(value)


def _list_attribute(value: Mapping[str, Any]) -> Attribute:
    if (versions := value.get("versions")) is not None:
        return tuple(map(Version, versions))
    return next(
        (tuple(value[kind]) for kind in _LIST_ATTRIBUTES if value.get(kind) is not None), None
    )


def _shared_capacity(
    stated: Mapping[str, Any], known: dict[bytes, dict[str, Capacity]]
) -> dict[str, Capacity]:
    key = msgspec.json.encode(stated)
    if key not in known:
        known[key] = {name: _capacity(value) for name, value in stated.items()}
    return known[key]


def _capacity(value: Mapping[str, Any]) -> Capacity:
    policy = value.get("requestPolicy")
    return Capacity(str(value["value"]), None if policy is None else _policy(policy))


def _policy(policy: Mapping[str, Any]) -> RequestPolicy:
    valid = policy.get("validRange") or {}
    return RequestPolicy(
        default=_text(policy.get("default")),
        valid_values=tuple(str(amount) for amount in policy.get("validValues") or ()),
        minimum=_text(valid.get("min")),
        maximum=_text(valid.get("max")),
        step=_text(valid.get("step")),
    )


def _texts(entries: Iterable[str] | None) -> tuple[str, ...] | None:
    """The texts; None if not stated."""
    return None if entries is None else tuple(entries)


def _text(amount: object) -> str | None:
    return None if amount is None else str(amount)
