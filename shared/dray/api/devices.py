"""Devices as drivers publish them (``ResourceSlice``, ``DeviceClass``)."""

from typing import Final

import msgspec

from dray.api.fields import always_written
from dray.api.nodes import NOWHERE, NodeSelection

IMPLICIT_RESOURCE: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every DeviceClass stands for."""


class Version(msgspec.Struct, frozen=True, gc=False):
    """A semantic version, the fourth kind of attribute value."""

    version: str


AttributeValue = bool | int | str | Version
Attribute = AttributeValue | tuple[AttributeValue, ...] | None
"""One value, several values (a list attribute), or no value. No selector can read the last."""
NEWER_FIELDS: Final = "fields of a later release"
"""Entry in ``Device.unsupported`` for a device with fields that earlier releases ignore: they must
not allocate it."""


# Used as a dictionary key far more often than created: cache the hash.
class DeviceId(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """The identity of a device in the cluster. An empty part is unknown and matches every value."""

    driver: str
    pool: str
    device: str

    @property
    def is_whole(self) -> bool:
        """Whether every part is known."""
        return bool(self.driver and self.pool and self.device)

    def may_be(self, driver: str, pool: str) -> bool:
        """Whether it may be a device of a driver's pool."""
        return self.driver in ("", driver) and self.pool in ("", pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A taint of a device or of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    """``NoSchedule``, ``NoExecute``, ``PreferNoSchedule`` (nodes) or ``None`` (devices)."""


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A ``core/v1`` or ``resource.k8s.io/v1`` toleration; both have the fields that dray reads."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration covers ``taint``; an empty effect or key covers all.

        The rule is ``ToleratesTaint`` of k8s.io/api/core/v1; an unknown operator covers nothing.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and bool(self.key) and self.value == taint.value


class RequestPolicy(msgspec.Struct, frozen=True, gc=False):
    """How a request for a shared capacity is rounded up. Quantities as text.

    ``CapacityRequestPolicy`` of resource.k8s.io/v1: either ``valid_values`` or the range of
    ``minimum``, ``maximum`` and ``step`` is given. If neither is given, any amount is allowed.
    """

    default: str | None = None
    """Amount for a claim that requests none; None: the whole capacity."""
    valid_values: tuple[str, ...] = ()
    """Ascending. A request is rounded up to the next value. One above the last does not fit."""
    minimum: str | None = None
    maximum: str | None = None
    step: str | None = None


class Capacity(msgspec.Struct, frozen=True, gc=False):
    """One consumable amount of a device."""

    value: str
    """The total, a quantity as text."""
    policy: RequestPolicy | None = None


class CounterSet(msgspec.Struct, frozen=True, gc=False):
    """Counters that the devices of a pool share. Quantities as text."""

    name: str
    counters: dict[str, str] = msgspec.field(default_factory=dict)


class DeviceCounterConsumption(msgspec.Struct, frozen=True, gc=False):
    """The amounts that an allocated device takes from one counter set. Quantities as text."""

    counter_set: str
    counters: dict[str, str] = msgspec.field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()
    """1.37 alpha: if the gate is off, a slice with them counts as unpublished."""


class Device(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One allocatable unit. Attribute and capacity keys are as published (domain optional)."""

    name: str
    attributes: dict[str, Attribute] = always_written({})
    capacity: dict[str, Capacity] = always_written({})
    allow_multiple_allocations: bool = always_written(False)
    taints: tuple[Taint, ...] = always_written(())
    unsupported: tuple[str, ...] = always_written(())
    """Why it is never allocated; see also ``NEWER_FIELDS``."""
    consumes: tuple[DeviceCounterConsumption, ...] = ()
    reach: NodeSelection = NOWHERE
    """Read only if the slice delegates node selection to its devices."""
    binds_to_node: bool = False
    """Once allocated, the claim can be used only on the chosen node."""
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None


class ResourceSlice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One published part of a pool: devices, or the counter sets that they share."""

    name: str
    uid: str
    driver: str
    pool: str
    """The DRA pool (dray's own are named after the node), not the GPUPool."""
    generation: int
    """Slices of an older generation of the pool are ignored."""
    slice_count: int
    """Number of slices of this generation. The pool is incomplete if fewer are published."""
    node: str
    """The only node that can use it; empty if the slice does not belong to one node. dray's own
    slices always do."""
    devices: tuple[Device, ...] = always_written(())
    nodes: NodeSelection = msgspec.field(default=NOWHERE, name="reach")
    """The nodes that can use it, if it does not belong to one node."""
    per_device_reach: bool | None = None
    """Whether each device states its own nodes; None: not stated."""
    counter_sets: tuple[CounterSet, ...] = ()

    @property
    def reach(self) -> NodeSelection:
        """The nodes that can use it."""
        return NodeSelection(self.node) if self.node else self.nodes

    def reach_of(self, device: Device) -> NodeSelection:
        """The nodes that can use ``device`` of this slice."""
        return device.reach if self.per_device_reach else self.reach


class DeviceTaintRule(msgspec.Struct, frozen=True, gc=False):
    """``DeviceTaintRule``: a taint that an administrator puts on devices from outside. It applies
    to devices that match each of driver, pool and device that is not empty."""

    name: str
    taint: Taint
    driver: str = ""
    pool: str = ""
    device: str = ""

    def selects(self, driver: str, pool: str, device: str) -> bool:
        """Whether the rule applies to a device."""
        wanted = ((self.driver, driver), (self.pool, pool), (self.device, device))
        return all(not stated or stated == own for stated, own in wanted)


class OpaqueConfig(msgspec.Struct, frozen=True, gc=False):
    """Driver parameters that a class or claim passes to the node."""

    driver: str
    parameters: dict[str, object]
    requests: tuple[str, ...] = ()
    """Empty: all requests."""
    source: str = "FromClaim"
    """``FromClaim`` or ``FromClass``. If both exist, the claim's is used."""


class DeviceClass(msgspec.Struct, frozen=True, gc=False):
    """A DeviceClass: selectors and configuration."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[OpaqueConfig, ...] = ()
    extended_resource: str = ""
    """``extendedResourceName``: pods that request it get devices of the class."""

    @property
    def stands_for(self) -> tuple[str, ...]:
        """The extended resources for which kube-scheduler allocates devices of this class, on
        nodes without a device plugin for them."""
        explicit = (self.extended_resource,) if self.extended_resource else ()
        return (f"{IMPLICIT_RESOURCE}{self.name}", *explicit)
