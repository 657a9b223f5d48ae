"""Nodes, ResourceSlices and DeviceClasses (resource.k8s.io/v1) as `dray.api.dra` values."""

from typing import Any, Final

from dray.api.devices import (
    AttributeValue,
    Capacity,
    DeviceClass,
    OpaqueConfig,
    RequestPolicy,
    ResourceSlice,
    Taint,
    Version,
)
from dray.api.devices import Device as KnownDevice
from dray.api.dra.nodes import Node, NodeSelector, Reach, Requirement, Term
from dray.api.dra.slices import Attribute, CounterSet, CounterUse, Device, Slice, TaintRule
from dray.api.errors import InvalidInputError
from dray.kube.dra_fields import JsonFields

_KINDS: Final = ("int", "bool", "string", "version")


def node_from(obj: Any, path: str = "node") -> Node:
    """A node's name and labels.

    Raises:
        InvalidInputError: a field is of another type than in Kubernetes.
    """
    metadata = JsonFields(obj, path).child("metadata")
    return Node(metadata.text("name"), metadata.labels("labels"))


def slice_from(obj: Any, path: str = "slice") -> Slice:
    """A ResourceSlice.

    Raises:
        InvalidInputError: a field is of another type than in Kubernetes, or no quantity.
    """
    fields = JsonFields(obj, path)
    spec = fields.child("spec")
    pool = spec.child("pool")
    return Slice(
        name=fields.child("metadata").text("name"),
        driver=spec.text("driver", None),
        pool=pool.text("name", None),
        generation=pool.whole("generation", 0) or 0,
        slice_count=pool.whole("resourceSliceCount", 0) or 0,
        reach=_reach(spec),
        per_device_reach=spec.flag("perDeviceNodeSelection"),
        devices=tuple(_device(entry) for entry in spec.children("devices")),
        counter_sets=tuple(
            CounterSet(entry.text("name"), _counters(entry))
            for entry in spec.children("sharedCounters")
        ),
    )


def slice_in_full(obj: Any, known: ResourceSlice) -> Slice | None:
    """The complete slice if ``known`` can't represent it; None if it can, or if the slice can't be
    read (``known`` names its unsupported fields then)."""
    spec = obj.get("spec") or {}
    says_more = not known.node or spec.get("sharedCounters") or any(map(_is_more, known.devices))
    if not says_more:
        return None
    try:
        return slice_from(obj)
    except InvalidInputError:
        return None


def _is_more(device: KnownDevice) -> bool:
    return bool(device.unsupported)


def class_from(obj: Any, path: str = "class") -> DeviceClass:
    """A DeviceClass.

    Raises:
        InvalidInputError: a field is of another type than in Kubernetes.
    """
    fields = JsonFields(obj, path)
    spec = fields.child("spec")
    return DeviceClass(
        fields.child("metadata").text("name", None),
        selectors_from(spec),
        configs_from(spec, "FromClass"),
    )


def taint_rule_from(obj: Any, path: str = "rule") -> TaintRule:
    """A DeviceTaintRule.

    Raises:
        InvalidInputError: a field is of another type than in Kubernetes.
    """
    fields = JsonFields(obj, path)
    spec = fields.child("spec")
    selector = spec.child("deviceSelector")
    return TaintRule(
        fields.child("metadata").text("name", None),
        _taint(spec.child("taint")),
        selector.text("driver"),
        selector.text("pool"),
        selector.text("device"),
    )


def selectors_from(within: JsonFields) -> tuple[str, ...]:
    """The CEL expressions of ``selectors``.

    Raises:
        InvalidInputError: a selector has none, so it is of a kind that dray doesn't know.
    """
    return tuple(
        entry.child("cel").text("expression", None) for entry in within.children("selectors")
    )


def configs_from(within: JsonFields, source: str) -> tuple[OpaqueConfig, ...]:
    """The opaque configurations of ``config``."""
    return tuple(
        OpaqueConfig(
            driver=entry.child("opaque").text("driver"),
            parameters=entry.child("opaque").raw("parameters"),
            requests=entry.texts("requests"),
            source=source,
        )
        for entry in within.children("config")
    )


def node_selector_from(within: JsonFields, name: str) -> NodeSelector | None:
    """A ``NodeSelector``, or None where absent."""
    if name not in within:
        return None
    terms = within.child(name).children("nodeSelectorTerms")
    return NodeSelector(
        tuple(
            Term(_requirements(term, "matchExpressions"), _requirements(term, "matchFields"))
            for term in terms
        )
    )


def _requirements(term: JsonFields, name: str) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(entry.text("key"), entry.text("operator"), entry.texts("values"))
        for entry in term.children(name)
    )


def _reach(within: JsonFields) -> Reach:
    return Reach(
        within.text("nodeName"),
        bool(within.flag("allNodes")),
        node_selector_from(within, "nodeSelector"),
    )


def _device(entry: JsonFields) -> Device:
    return Device(
        name=entry.text("name", None),
        attributes={name: _attribute(value) for name, value in entry.named("attributes")},
        capacity={name: _capacity(value) for name, value in entry.named("capacity")},
        allow_multiple_allocations=bool(entry.flag("allowMultipleAllocations")),
        consumes=tuple(
            CounterUse(use.text("counterSet"), _counters(use), use.texts("compatibilityGroups"))
            for use in entry.children("consumesCounters")
        ),
        taints=tuple(_taint(one) for one in entry.children("taints")),
        reach=_reach(entry),
        binds_to_node=bool(entry.flag("bindsToNode")),
        binding_conditions=entry.texts_if_stated("bindingConditions"),
        binding_failure_conditions=entry.texts_if_stated("bindingFailureConditions"),
    )


def _taint(entry: JsonFields) -> Taint:
    return Taint(entry.text("key"), entry.text("value"), entry.text("effect"))


def _attribute(value: JsonFields) -> Attribute:
    for kind in _KINDS:
        if f"{kind}s" in value:
            items = value.raw(f"{kind}s")
            if not isinstance(items, list):
                raise InvalidInputError(f"{value.path}.{kind}s is no list")
            path = f"{value.path}.{kind}s"
            return tuple(_item(JsonFields({kind: item}, path), kind) for item in items)
    return next((_item(value, kind) for kind in _KINDS if kind in value), None)


def _item(value: JsonFields, kind: str) -> AttributeValue:
    match kind:
        case "int":
            return value.whole(kind) or 0
        case "bool":
            return bool(value.flag(kind))
        case "string":
            return value.text(kind)
        case _:
            return Version(value.text(kind))


def _capacity(value: JsonFields) -> Capacity:
    policy = value.child("requestPolicy") if "requestPolicy" in value else None
    return Capacity(value.quantity("value") or "0", _policy(policy) if policy else None)


def _policy(policy: JsonFields) -> RequestPolicy:
    span = policy.child("validRange")
    values = policy.raw("validValues") or []
    if not isinstance(values, list):
        raise InvalidInputError(f"{policy.path}.validValues is no list")
    named = JsonFields({str(index): value for index, value in enumerate(values)}, policy.path)
    return RequestPolicy(
        default=policy.quantity("default"),
        valid_values=tuple(named.quantity(str(index)) or "0" for index in range(len(values))),
        minimum=span.quantity("min"),
        maximum=span.quantity("max"),
        step=span.quantity("step"),
    )


def _counters(entry: JsonFields) -> dict[str, str]:
    return {name: value.quantity("value") or "0" for name, value in entry.named("counters")}
