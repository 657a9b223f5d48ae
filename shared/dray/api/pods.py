"""Pods, nodes and pools as the claim-controller publishes them."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from dray.api.devices import Taint, Toleration
from dray.api.enforcement import NOTHING_NAMED, Enforcement
from dray.api.names import (
    DEFAULT_QOS,
    DRAY_SCHEDULER,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
)

ANY_ADDRESS: Final = "0.0.0.0"
TERMINAL_PHASES: Final = ("Succeeded", "Failed")
"""Phases of a pod that has ended."""
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,64}")
_MOST: Final = 2**63 - 1


class NodeExpression(msgspec.Struct, frozen=True, gc=False):
    """One ``matchExpressions`` or ``matchFields`` entry of a node selector term, or an expression
    of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    is_field: bool = False

    def holds(self, seen: Mapping[str, str]) -> bool:
        """Whether these labels (or fields) match; an unknown operator never matches."""
        match self.operator:
            case "In":
                return seen.get(self.key) in self.values
            case "NotIn":
                return seen.get(self.key) not in self.values
            case "Exists":
                return self.key in seen
            case "DoesNotExist":
                return self.key not in seen
            case "Gt" | "Lt":
                return _compared(self.operator, seen.get(self.key), self.values)
            case _:
                return False


def _compared(operator: str, seen: str | None, values: Sequence[str]) -> bool:
    """Compares numbers as Go reads them: decimal digits that fit an int64. A label value has no
    sign."""
    if len(values) != 1:
        return False
    left, right = _whole_number(seen or ""), _whole_number(values[0])
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def _whole_number(text: str) -> int | None:
    number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
    return None if number is None or number > _MOST else number


NodeTerm = tuple[NodeExpression, ...]
"""Expressions that must all hold; a pod's terms are alternatives."""


class HostPort(msgspec.Struct, frozen=True, order=True, gc=False):
    """A host port of a container."""

    number: int
    protocol: str = "TCP"
    address: str = ANY_ADDRESS
    """The host IP; ``0.0.0.0``: all addresses."""

    def conflicts(self, other: "HostPort") -> bool:
        """Whether both conflict on one node, by the rule of kube-scheduler's NodePorts."""
        return (
            self.number == other.number
            and self.protocol == other.protocol
            and (self.address == other.address or ANY_ADDRESS in (self.address, other.address))
        )

    def __str__(self) -> str:
        where = "" if self.address == ANY_ADDRESS else f" on {self.address}"
        return f"{self.number}/{self.protocol}{where}"


GroupApi = Literal["scheduling.volcano.sh", "scheduling.k8s.io"]
"""The API group of a PodGroup."""


class GroupKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """The identity of a PodGroup."""

    api: GroupApi
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class GroupMember(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The place of a pod in its PodGroup."""

    group: GroupKey
    task: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """The pod's labels; they determine its subgroup."""


class PodNeeds(msgspec.Struct, frozen=True, gc=False):
    """The parts of a pod's spec that dray's node fit reads, and the names of unsupported parts."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    node_terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    unread: tuple[str, ...] = ()
    """Unsupported requirements such as "pod affinity" or "volumes". kube-scheduler binds a pod that
    has any."""
    resources: dict[str, int] = msgspec.field(default_factory=dict)
    """Other requested resources: ``ephemeral-storage`` and huge pages in bytes, extended resources
    in units."""
    ports: tuple[HostPort, ...] = ()
    """Host ports that it uses while it runs."""


class PodClaim(msgspec.Struct, frozen=True, gc=False):
    """A reference of the pod to a claim; ``claim`` is empty until the claim exists."""

    reference: str
    claim: str = ""
    template: str = ""


def accounting_claim(pod_uid: str) -> str:
    """The name of the claim that accounts for a pod without claims."""
    return f"gpus-{pod_uid}"


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod that uses dray's claims, as last observed."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    pool: str
    scheduler: str
    gated: bool = False
    """Whether dray's scheduling gate is still on."""
    other_gates: bool = False
    """Whether another scheduling gate is on; dray does not decide until it is removed."""
    node: str = ""
    phase: str = "Pending"
    deleting: bool = False
    priority: int = 0
    needs: PodNeeds = PodNeeds()
    claims: tuple[PodClaim, ...] = ()
    request_id: str = ""
    """The webhook writes it, because a pod has no UID yet when it is admitted."""
    traceparent: str = ""
    """W3C Trace Context of the admission, or empty."""
    created_unix_s: float = 0.0
    member: GroupMember | None = None
    """Its place in its PodGroup, if it names one."""

    @property
    def binder(self) -> Literal["dray", "kube-scheduler"]:
        """The binder of the pod: dray if its ``schedulerName`` names dray, else kube-scheduler."""
        return OWNER_DRAY if self.scheduler == DRAY_SCHEDULER else OWNER_KUBE_SCHEDULER

    @property
    def has_accounting_claim(self) -> bool:
        """Whether it refers to no claim, so that dray makes one that accounts for it."""
        name = accounting_claim(self.uid)
        return any(one.claim == name for one in self.claims)


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node's allocatable, the sum of its pods' requests, and its pool."""

    name: str
    uid: str
    pool: str = ""
    """GPUPool. Empty: the node is in no pool, or is moving; nothing is allocated there then."""
    owner: str = OWNER_DRAY
    """``spec.owner`` of its pool."""
    qos: str = DEFAULT_QOS
    """The quality of service of its devices: the node's label, else the pool's default."""
    tflops_ratio: str = "1"
    """Ratio of virtual to physical capacity, a decimal as text."""
    vram_ratio: str = "1"
    dedicated: bool = False
    cpu_milli: int = 0
    """Allocatable, in thousandths of a core."""
    memory_bytes: int = 0
    pods: int = 0
    """Maximum number of pods."""
    used_cpu_milli: int = 0
    used_memory_bytes: int = 0
    used_pods: int = 0
    resources: dict[str, int] = msgspec.field(default_factory=dict)
    """Allocatable amounts of other resources, as in ``PodNeeds.resources``; absent: none."""
    used_resources: dict[str, int] = msgspec.field(default_factory=dict)
    used_ports: tuple[HostPort, ...] = ()
    """Host ports in use by its pods, without duplicates."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    leaving: str = ""
    """GPUPool that the node is leaving; ``pool`` stays empty until the pool's
    decision log says ``node-left``."""
    leaving_since: int = 0
    """From this revision on, facts of this node no longer name ``leaving`` as its pool."""
    assigned_pool: str = ""
    """GPUPool of the node: ``pool``, or the pool to which the node moves."""
    enforcement: Enforcement = NOTHING_NAMED
    """What limits programs to their shares of its GPUs, as its pool says."""
    unhealthy_effect: str = "NoSchedule"
    """Effect of the taint of its unhealthy devices."""


class Pool(msgspec.Struct, frozen=True, gc=False):
    """The fields of a GPUPool that services read."""

    name: str
    uid: str
    owner: str = OWNER_DRAY
    dedicated: bool = False
    default: bool = False
    template: str = ""
    """Name of its SchedulingConfigTemplate, or empty."""
    node_selector: dict[str, str] | None = None
    """Absent: it selects nodes labelled ``tensor-fusion.ai/gpupool=<name>``."""
    default_qos: str = DEFAULT_QOS
    tflops_ratio: str = "1"
    vram_ratio: str = "1"
    isolation: str = ""
    allowed_namespaces: tuple[str, ...] = ()
    """Empty: all namespaces."""
    deleting: bool = False
    """Whether it is being deleted. Running pods continue, and no new pod is decided."""
    enforcement: Enforcement = NOTHING_NAMED
    unhealthy_effect: str = "NoSchedule"
    """Effect of the taint of its unhealthy devices."""

    def admits(self, namespace: str) -> bool:
        """Whether pods and claims of a namespace may use devices of the pool."""
        return not self.allowed_namespaces or namespace in self.allowed_namespaces


class Policy(msgspec.Struct, frozen=True, gc=False):
    """The fields of a SchedulingConfigTemplate that services read."""

    name: str
    uid: str
    dra_enabled: bool = False
    claim_template: str = ""
    placement: str = ""
    """``placement.mode``; empty: not set."""
    version: int = 0
    """``metadata.generation``: a changed policy is a new version."""
    placement_node: str = ""
    """``placement.node``: ``binpack`` or ``spread``; empty: the mode's node level."""
    placement_gpu: str = ""
    """``placement.gpu``: the same for cards."""
    placement_weights: dict[str, int] = msgspec.field(default_factory=dict)
    """``placement.weights``, by resource."""
    placement_topology: str = ""
    """``placement.topology``; empty: ``soft``."""
