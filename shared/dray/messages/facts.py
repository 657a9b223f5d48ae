"""Facts: the state of the cluster as the claim-controller observed it.

There is one stream with the last value per subject. The allocator and the webhook fold it in order.
A deleted object leaves a tombstone (``deleted``) that expires. Every fact of an object contains the
resourceVersion (or generation) at which the object was read. It never goes back.
"""

from typing import Any, ClassVar

import msgspec
from msgspec.structs import force_setattr

from dray.api.claims import Claim, GivenUp
from dray.api.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from dray.api.groups import GroupQueue, PodGroup
from dray.api.pods import Node, Pod, Policy, Pool
from dray.messages import earlier
from dray.messages.base import Kind, Message

TOMBSTONE_S = 3600
"""Time to live of a tombstone. It is longer than the lag of any reader."""


class Fact(Message, frozen=True, kw_only=True):
    """The state of one object."""

    KIND: ClassVar[Kind] = "state"
    IS_FREE_FORM: ClassVar[bool] = False

    revision: int
    """resourceVersion from which the fact was computed (the highest, if from several objects)."""
    deleted: bool = False

    def subject_pool(self) -> str:
        """The pool that the subject names; empty for facts that do not belong to a single pool."""
        return ""

    def expires_s(self) -> int | None:
        return TOMBSTONE_S if self.deleted else None

    def key(self) -> str:
        return f"{'/'.join(self.ids())}@{self.revision}{'!' if self.deleted else ''}"


class ClaimObserved(Fact, frozen=True, kw_only=True):
    """A ResourceClaim of dray's class, or one that holds a device of dray's driver."""

    NAME: ClassVar[str] = "claim"
    claim: Claim
    beside: tuple[str, ...] = ()
    """Other pools whose pods refer to the claim: their logs may reserve devices for it."""
    moved_to: str | None = None
    """In a tombstone: the pool in which the claim still exists."""
    given_up: GivenUp | None = None
    """Attempts that are void although the claim's annotation does not say so, and why it can't be
    written."""

    def __post_init__(self) -> None:
        if self.claim.spec.in_full:
            force_setattr(self, "claim", earlier.complete_claim(self.claim))

    def subject_pool(self) -> str:
        return self.claim.pool

    def ids(self) -> tuple[str, ...]:
        return (self.claim.pool, self.claim.uid)


class PodObserved(Fact, frozen=True, kw_only=True):
    """A pod that refers to dray's claims."""

    NAME: ClassVar[str] = "pod"
    pod: Pod
    beside: tuple[str, ...] = ()
    """Other pools that the pod's claims name."""
    moved_to: str | None = None
    """In a tombstone: the pool in which the pod still exists."""

    def subject_pool(self) -> str:
        return self.pod.pool

    def ids(self) -> tuple[str, ...]:
        return (self.pod.pool, self.pod.uid)


class NodeObserved(Fact, frozen=True, kw_only=True):
    """A node: membership, allocatable, and the sum of its pods' requests."""

    NAME: ClassVar[str] = "node"
    node: Node
    counted_pods: tuple[str, ...] = ()
    """UIDs of dray's pods whose requests are in the sum."""
    quarantined: bool = False
    """kube-scheduler managed the node's devices, and its allocations in flight may still be
    written. Until then the node's pool stays empty."""
    recalled_unix_s: float | None = None
    """When all its devices had the owner taint, after dray took them over from kube-scheduler.
    None: never, or not yet."""
    former: tuple[str, ...] = ()
    """Other pools whose claims hold its devices or may still get them: mostly former pools."""
    also_selected_by: tuple[str, ...] = ()
    """Pools that also select the node, although it is assigned to ``node.assigned_pool``."""
    device_order: str = ""
    """``binpack`` or ``spread``: the order in which its agent publishes devices if kube-scheduler
    allocates them. kube-scheduler takes the first that fit. Empty: the order of their indexes."""

    def ids(self) -> tuple[str, ...]:
        return (self.node.name,)


class SliceObserved(Fact, frozen=True, kw_only=True):
    """A ResourceSlice of any driver."""

    NAME: ClassVar[str] = "slice"
    slice: ResourceSlice
    in_full: dict[str, Any] | None = None
    """Only in facts of earlier releases: the complete slice (``dray.messages.earlier``)."""

    def __post_init__(self) -> None:
        if self.in_full is not None:
            force_setattr(self, "slice", earlier.complete_slice(self.slice, self.in_full))
            force_setattr(self, "in_full", None)

    def ids(self) -> tuple[str, ...]:
        return (self.slice.name,)


class DeviceClassObserved(Fact, frozen=True, kw_only=True):
    """A DeviceClass."""

    NAME: ClassVar[str] = "deviceclass"
    device_class: DeviceClass

    def ids(self) -> tuple[str, ...]:
        return (self.device_class.name,)


class TaintRuleObserved(Fact, frozen=True, kw_only=True):
    """A DeviceTaintRule."""

    NAME: ClassVar[str] = "taintrule"
    rule: DeviceTaintRule

    def ids(self) -> tuple[str, ...]:
        return (self.rule.name,)


class PoolObserved(Fact, frozen=True, kw_only=True):
    """A GPUPool."""

    NAME: ClassVar[str] = "pool"
    pool: Pool

    def ids(self) -> tuple[str, ...]:
        return (self.pool.name,)


class PolicyObserved(Fact, frozen=True, kw_only=True):
    """A SchedulingConfigTemplate."""

    NAME: ClassVar[str] = "policy"
    policy: Policy

    def ids(self) -> tuple[str, ...]:
        return (self.policy.name,)


class GroupObserved(Fact, frozen=True, kw_only=True):
    """A Volcano PodGroup or a Kubernetes PodGroup. Each member pod's own fact names the group."""

    NAME: ClassVar[str] = "group"
    group: PodGroup

    def ids(self) -> tuple[str, ...]:
        key = self.group.key
        return (key.api, key.namespace, key.name)


class QueueObserved(Fact, frozen=True, kw_only=True):
    """A Volcano Queue."""

    NAME: ClassVar[str] = "queue"
    queue: GroupQueue

    def ids(self) -> tuple[str, ...]:
        return (self.queue.name,)


class PriorityClassObserved(Fact, frozen=True, kw_only=True):
    """A PriorityClass."""

    NAME: ClassVar[str] = "priorityclass"
    name: str
    value: int
    preemption_policy: str = ""

    def ids(self) -> tuple[str, ...]:
        return (self.name,)


class TemplateObserved(Fact, frozen=True, kw_only=True):
    """A base ResourceClaimTemplate (it has the label, or the expected name)."""

    NAME: ClassVar[str] = "template"
    IS_FREE_FORM: ClassVar[bool] = True
    namespace: str
    name: str
    labels: dict[str, str]
    spec: dict[str, Any]
    """``ResourceClaimTemplateSpec`` as Kubernetes returned it."""
    unusable: str = ""
    """Why the template can't be used; ``spec`` is empty then."""

    def ids(self) -> tuple[str, ...]:
        return (self.namespace, self.name)


class CheckpointPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A complete checkpoint of a decision log."""

    sequence: int
    """The sequence of its first part."""
    now_unix_s: float
    """The time of the facts when it was written."""


class DomainObserved(Fact, frozen=True, kw_only=True):
    """A scheduling domain and the epoch of its decision log. ``revision`` is at least the epoch.

    The tombstone of a deleted pool stays, so that a pool with the same name gets a higher epoch.
    """

    NAME: ClassVar[str] = "domain"
    domain: str
    epoch: int
    checkpoints: tuple[CheckpointPosition, ...] = ()
    """Some of the checkpoints that are still in the log, oldest first."""

    @property
    def start(self) -> int:
        """Sequence of the record from which a reader can begin and still know the whole state."""
        return self.checkpoints[-1].sequence if self.checkpoints else 1

    def expires_s(self) -> int | None:
        return None

    def ids(self) -> tuple[str, ...]:
        return (self.domain,)


class InventoryObserved(Fact, frozen=True, kw_only=True):
    """Health of a node's devices, as its node-agent reported it. It can only remove devices.

    ``revision`` is the generation of the node's slices, and never goes back.
    """

    NAME: ClassVar[str] = "inventory"
    node: str
    driver: str
    unhealthy: tuple[str, ...] = ()
    """Names of the unhealthy devices."""

    def ids(self) -> tuple[str, ...]:
        return (self.node,)


class ClusterObserved(Fact, frozen=True, kw_only=True):
    """Feature gates of the API server, found by probing. They also determine the language of its
    selectors."""

    NAME: ClassVar[str] = "cluster"
    version: str = ""
    consumable_capacity: bool = True
    """Whether ``allowMultipleAllocations`` and capacity requests are kept."""
    device_taints: bool = True
    allocation_timestamp: bool = True
    binding_conditions: bool = True
    """Whether ``bindingConditions`` are kept."""
    partitionable_devices: bool = True
    """Whether shared counters are kept."""
    prioritized_list: bool = True
    """Whether a request may list alternatives (``firstAvailable``)."""
    list_attributes: bool = False
    """Whether an attribute may hold several values."""
    extended_resources: bool | None = None
    """Whether a DeviceClass may stand for an extended resource; None: dray may not ask."""
    served_versions: tuple[str, ...] = ("v1",)
    """Served versions of resource.k8s.io, the preferred one first."""
    allocating_scheduler: bool = True
    """Whether the cluster's kube-scheduler allocates devices. This is a setting and is not
    probed."""
    waits_for_devices: bool = False
    """Whether the claim-controller waits for ``bindingConditions`` before it binds. Earlier
    versions do not."""

    def ids(self) -> tuple[str, ...]:
        return ()

    def key(self) -> str:
        return f"{self.revision}"


class TermBegun(Fact, frozen=True, kw_only=True):
    """A claim-controller began to lead. Only it may publish facts, except facts of health.

    Its facts are stored only while this is the subject's last message, so a leader that slept and
    was replaced can publish nothing. ``revision`` is the number of terms.
    """

    NAME: ClassVar[str] = "term"
    facts: str
    """Creation time of the stream of facts: a term ends with its stream."""
    instance: str

    def ids(self) -> tuple[str, ...]:
        return (self.facts,)


class Synced(Fact, frozen=True, kw_only=True):
    """All facts of objects that existed at ``revision`` precede this."""

    NAME: ClassVar[str] = "synced"
    instance: str

    def ids(self) -> tuple[str, ...]:
        return ()

    def key(self) -> str:
        return f"{self.instance}@{self.revision}"


class Tick(Fact, frozen=True, kw_only=True):
    """The clock of decisions. It also shows that the leader runs. ``revision`` is the number of
    ticks.

    Each tick adds the time that has passed on its publisher's monotonic clock. The next publisher
    continues from the last tick. The wall clock is read only for the first tick of a stream.
    """

    NAME: ClassVar[str] = "tick"
    now_unix_s: float
    most_step_s: float = 60.0
    """A reader adds at most this for each tick, regardless of ``now_unix_s``. The default is for
    ticks of earlier releases, which had the wall clock's time."""
    store_bytes: int = 0
    """Bytes that NATS stores for dray, as last measured; 0: not measured yet. No decision depends
    on it."""
    store_limit_bytes: int = 0
    """Bytes that NATS may store for dray; 0: not known."""

    def ids(self) -> tuple[str, ...]:
        return ()

    def key(self) -> str:
        return f"{self.now_unix_s:.3f}"


FACTS: tuple[type[Fact], ...] = (
    ClaimObserved,
    PodObserved,
    NodeObserved,
    SliceObserved,
    DeviceClassObserved,
    TaintRuleObserved,
    PoolObserved,
    PolicyObserved,
    GroupObserved,
    QueueObserved,
    PriorityClassObserved,
    TemplateObserved,
    DomainObserved,
    InventoryObserved,
    ClusterObserved,
    TermBegun,
    Synced,
    Tick,
)
