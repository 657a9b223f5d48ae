"""The custom resources of group ``tensor-fusion.ai``.

``make generate`` makes the CRD manifests from these models, field descriptions included. Unknown
fields are ignored here as the API server prunes them there.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, model_validator

from dray.api.enforcement import MPS, TIME_SLICE
from dray.api.names import (
    BASE_TEMPLATE,
    DEFAULT_PLACEMENT,
    DEFAULT_QOS,
    FRAGMENTATION_AWARE,
    KUBERNETES_COMPATIBLE,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
)
from dray.kube.bind_request import BindRequest
from dray.kube.ports import POLICIES, POOLS
from dray.kube.resource_fields import (
    Conditions,
    CustomResource,
    Owner,
    PrinterColumn,
    ResourceFields,
)
from tools.generate.volcano_resources import VolcanoPodGroup, VolcanoQueue

QoS = Literal["low", "medium", "high", "critical"]
Isolation = Literal["shared", "soft", "hard", "partitioned"]
EnforcerName = Literal["none", "env", "timeslice", "mps", "mig"]
TimeSlice = Literal["Default", "Short", "Medium", "Long"]
PlacementMode = Literal[
    "CompactFirst",
    "LowLoadFirst",
    "NodeCompactGPULowLoad",
    "FragmentationAware",
    "KubernetesCompatible",
]
Level = Literal["binpack", "spread"]
Topology = Literal["soft", "hard", "none"]
Weight = Annotated[int, Field(ge=0, le=1000)]
_NOT_AWARE = (
    "!has(self.mode) || self.mode != 'FragmentationAware' || "
    "(!has(self.node) && !has(self.gpu) && !has(self.weights))"
)
_AWARE_ALONE = (
    "FragmentationAware chooses node and card together and weighs by itself: leave out node, gpu "
    "and weights, or choose another mode"
)
_NOT_COMPATIBLE = (
    "!has(self.mode) || self.mode != 'KubernetesCompatible' || "
    "(!has(self.node) && !has(self.gpu) && !has(self.weights) && !has(self.topology))"
)
_COMPATIBLE_ALONE = (
    "KubernetesCompatible decides as kube-scheduler's allocator does, which scores nothing: leave "
    "out node, gpu, weights and topology, or choose another mode"
)
_NAMES_LEVELS = "!has(self.weights) || has(self.mode) || has(self.node) || has(self.gpu)"
_WEIGHTS_OF_WHAT = (
    "weights are of binpack and spread: also name a mode, node or gpu, such as mode CompactFirst"
)


_NAMESPACES_KEPT = (
    "!has(self.owner) || self.owner != 'kube-scheduler' || "
    "!has(self.allowedNamespaces) || size(self.allowedNamespaces) == 0"
)
_NAMESPACES_OF_DRAY = (
    "allowedNamespaces needs owner dray: kube-scheduler does not read it, and gives devices to "
    "claims of any namespace"
)


class QoSConfig(ResourceFields):
    """Quality of service of the pool's cards."""

    default_qos: QoS = Field(
        default=DEFAULT_QOS,
        alias="defaultQoS",
        description="Level of cards on nodes without the label tensor-fusion.ai/qos.",
    )


Ratio = Annotated[float, Field(ge=1, le=1000)]


class Oversubscription(ResourceFields):
    """Ratios of virtual to physical capacity."""

    tflops_ratio: Ratio = Field(default=1, description="Virtual compute over physical compute.")
    vram_ratio: Ratio = Field(default=1, description="Virtual memory over physical memory.")


class CapacityConfig(ResourceFields):
    """How the virtual capacities of a GPU are computed."""

    oversubscription: Oversubscription | None = Field(
        default=None,
        description="Ratios of the virtual capacities to the physical ones; absent: 1.",
    )


_MPS_ALONE = "!has(self.mps) || (has(self.enforcer) && self.enforcer == 'mps')"
_MPS_IS_ALONE = "mps says how MPS is set up: it needs enforcer mps"
_SLICE_ALONE = "!has(self.timeSlice) || (has(self.enforcer) && self.enforcer == 'timeslice')"
_SLICE_IS_ALONE = "timeSlice is the length of a time slice: it needs enforcer timeslice"


class MpsConfig(ResourceFields):
    """What MPS daemons allow each program, whatever its own variables say."""

    default_active_thread_percentage: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None,
        description="Percent of a GPU's threads that one program may use; absent: 100.",
    )
    default_pinned_device_memory_limit: (
        Annotated[str, Field(pattern="^[1-9][0-9]{0,8}(Mi|Gi)$")] | None
    ) = Field(
        default=None,
        description="Memory of a GPU that one program may use, such as 8Gi; absent: all.",
    )


class GPUPoolSpec(ResourceFields):
    """Which nodes the pool has, and how their cards are given out."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": _NAMESPACES_KEPT, "message": _NAMESPACES_OF_DRAY},
                {"rule": _MPS_ALONE, "message": _MPS_IS_ALONE},
                {"rule": _SLICE_ALONE, "message": _SLICE_IS_ALONE},
            ]
        }
    )

    node_selector: dict[str, str] | None = Field(
        default=None,
        description="Labels of the pool's nodes; absent: tensor-fusion.ai/gpupool=<pool name>.",
    )
    owner: Owner = Field(
        default=OWNER_DRAY,
        description="The scheduler that allocates the pool's devices. Never both: devices of a "
        "dray pool carry a taint that no claim tolerates.",
    )
    dedicated: bool = Field(
        default=False,
        description="Nodes are tainted tensor-fusion.ai/dedicated=<pool>:NoSchedule and dray "
        "binds pods itself.",
    )
    scheduling_config_template: str = Field(
        default="", description="Name of the SchedulingConfigTemplate that the pool follows."
    )
    default: bool = Field(
        default=False,
        description="Pods that name no pool get this one; at most one pool may set this.",
    )
    qos_config: QoSConfig | None = Field(default=None, description="Quality of service.")
    capacity_config: CapacityConfig | None = Field(default=None, description="Budget of a card.")
    isolation: Isolation | None = Field(
        default=None,
        description="How sharers of a card are to be kept apart; soft means enforcer env where "
        "none is named.",
    )
    enforcer: EnforcerName | None = Field(
        default=None,
        description="What holds programs to their shares of a card: none; env, variables of a "
        "limiter library; timeslice, turns; mps, NVIDIA's Multi-Process Service; mig, only MIG "
        "instances.",
    )
    unhealthy_taint_effect: Literal["NoSchedule", "NoExecute"] = Field(
        default="NoSchedule",
        description="Effect of the taint of an unhealthy card: new pods don't get it (NoSchedule), "
        "and Kubernetes also evicts the pods that have it (NoExecute).",
    )
    time_slice: TimeSlice | None = Field(
        default=None,
        description="Length of a time slice, with enforcer timeslice; absent: Default.",
    )
    mps: MpsConfig | None = Field(default=None, description="With enforcer mps.")
    allowed_namespaces: list[str] | None = Field(
        default=None,
        description="Namespaces whose pods and claims may use the pool; absent or empty: all.",
    )

    @model_validator(mode="after")
    def _keeps_namespaces(self) -> "GPUPoolSpec":
        if self.owner == OWNER_KUBE_SCHEDULER and self.allowed_namespaces:
            raise ValueError(_NAMESPACES_OF_DRAY)
        if self.mps is not None and self.enforcer != MPS:
            raise ValueError(_MPS_IS_ALONE)
        if self.time_slice is not None and self.enforcer != TIME_SLICE:
            raise ValueError(_SLICE_IS_ALONE)
        return self


class Amounts(ResourceFields):
    """One capacity over all cards of a pool, as quantities rounded to hundredths: 158Gi."""

    total: str = Field(default="0", description="Physical amount of all cards.")
    virtual: str = Field(default="0", description="Budget of all cards, oversubscription included.")
    free: str = Field(
        default="0", description="What is left of the budget, without unhealthy GPUs."
    )


class DecisionLog(ResourceFields):
    """The log that reserves the pool's devices."""

    epoch: int = Field(
        default=0, ge=0, description="Epoch of the log; grows when a log was lost. Never lower it."
    )
    last_sequence: int = Field(
        default=0,
        ge=0,
        description="A sequence the log has reached; a log that ends below it was lost.",
    )
    facts_created: str = Field(
        default="",
        description="Creation time of the facts stream to which the log's records refer; "
        "another stream means a new epoch.",
    )


class GPUPoolStatus(ResourceFields):
    """What the claim-controller observed."""

    nodes: int = Field(default=0, description="Nodes in the pool.")
    gpus: int = Field(default=0, description="GPUs on them.")
    unhealthy: int = Field(
        default=0,
        description="GPUs of these that their node-agents report as unhealthy: nothing on them is "
        "free.",
    )
    models: str = Field(
        default="",
        description="Models of the GPUs and how many there are of each, such as '8 A100, 4 H100'.",
    )
    tflops: Amounts | None = Field(default=None, description="Compute, in TFLOPS.")
    vram: Amounts | None = Field(default=None, description="Memory, in bytes.")
    waiting_pods: int = Field(default=0, description="Pods that wait for a device of this pool.")
    owner: Owner | None = Field(
        default=None,
        description="The scheduler that allocates the pool's devices now: the former owner until "
        "a changed spec.owner takes effect. Absent: it was always dray.",
    )
    served_by: str | None = Field(
        default=None,
        description="The allocator that decides about the pool's pods; absent: nobody does, it is "
        "not known yet, or kube-scheduler owns the pool.",
    )
    observed_generation: int | None = Field(
        default=None, description="Generation to which the status belongs."
    )
    conditions: Conditions = Field(default_factory=list)
    decision_log: DecisionLog | None = Field(default=None, description="The pool's decision log.")


class GPUPool(CustomResource):
    """Nodes whose GPUs are given out together, by one owner and under one policy."""

    RESOURCE = POOLS
    SINGULAR = "gpupool"
    SHORT_NAMES = ("gp",)
    COLUMNS = (
        PrinterColumn(name="GPUs", path=".status.gpus", kind="integer"),
        PrinterColumn(name="Unhealthy", path=".status.unhealthy", kind="integer"),
        PrinterColumn(name="Models", path=".status.models", wide=True),
        PrinterColumn(name="Owner", path=".spec.owner", wide=True),
        PrinterColumn(name="Nodes", path=".status.nodes", kind="integer", wide=True),
        PrinterColumn(name="TFLOPS", path=".status.tflops.total", wide=True),
        PrinterColumn(name="Virtual", path=".status.tflops.virtual", wide=True),
        PrinterColumn(name="Free", path=".status.tflops.free"),
        PrinterColumn(name="VRAM", path=".status.vram.total", wide=True),
        PrinterColumn(name="Virtual VRAM", path=".status.vram.virtual", wide=True),
        PrinterColumn(name="Free VRAM", path=".status.vram.free"),
        PrinterColumn(name="Waiting", path=".status.waitingPods", kind="integer"),
        PrinterColumn(name="Ready", path='.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn(name="Served by", path=".status.servedBy", wide=True),
        PrinterColumn(name="Dedicated", path=".spec.dedicated", kind="boolean", wide=True),
        PrinterColumn(name="Default", path=".spec.default", kind="boolean", wide=True),
        PrinterColumn(name="Age", path=".metadata.creationTimestamp", kind="date"),
    )

    spec: GPUPoolSpec = Field(default_factory=GPUPoolSpec, description="What is wanted.")
    status: GPUPoolStatus | None = Field(default=None, description="What is observed.")


class DRASettings(ResourceFields):
    """Dynamic Resource Allocation for the pods of a pool."""

    enable: bool = Field(
        default=False,
        description="Whether pods of the pool use DRA unless their annotation "
        "tensor-fusion.ai/dra-enabled says otherwise.",
    )
    resource_claim_template_name: str = Field(
        default=BASE_TEMPLATE,
        description="Base ResourceClaimTemplate, looked up in the pod's namespace, then dray's.",
    )


class PlacementSpec(ResourceFields):
    """Where a pod goes among the nodes and cards that fit."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": _NOT_AWARE, "message": _AWARE_ALONE},
                {"rule": _NOT_COMPATIBLE, "message": _COMPATIBLE_ALONE},
                {"rule": _NAMES_LEVELS, "message": _WEIGHTS_OF_WHAT},
            ]
        }
    )

    mode: PlacementMode | None = Field(
        default=None,
        description="How nodes and cards are chosen; absent, and without node and gpu: "
        f"{DEFAULT_PLACEMENT}.",
    )
    node: Level | None = Field(
        default=None, description="Fill nodes or spread over them, whatever the mode says."
    )
    gpu: Level | None = Field(
        default=None, description="Fill cards or spread over them, whatever the mode says."
    )
    weights: Annotated[dict[str, Weight], Field(max_length=16)] | None = Field(
        default=None,
        description="What each resource counts in a load: cpu and memory of the node, tflops and "
        "vram of the budget, or another capacity of the devices. Absent: what is used most of a "
        "card stands for it.",
    )
    topology: Topology | None = Field(
        default=None,
        description="Whether the cards of a pod with several are to be joined, by NVLink, else on "
        "one NUMA node or PCIe root: soft (absent) prefers such, hard waits for them.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> "PlacementSpec":
        levels = self.node is not None or self.gpu is not None
        if self.mode == FRAGMENTATION_AWARE and (levels or self.weights is not None):
            raise ValueError(_AWARE_ALONE)
        scored = levels or self.weights is not None or self.topology is not None
        if self.mode == KUBERNETES_COMPATIBLE and scored:
            raise ValueError(_COMPATIBLE_ALONE)
        if self.weights is not None and self.mode is None and not levels:
            raise ValueError(_WEIGHTS_OF_WHAT)
        return self


class SchedulingConfigTemplateSpec(ResourceFields):
    """The policy of the pools that name it."""

    dra: DRASettings | None = Field(default=None, description="Dynamic Resource Allocation.")
    placement: PlacementSpec | None = Field(default=None, description="Scoring of nodes and cards.")


class SchedulingConfigTemplate(CustomResource):
    """A policy that GPUPools follow: whether DRA applies and how pods are placed."""

    RESOURCE = POLICIES
    SINGULAR = "schedulingconfigtemplate"
    SHORT_NAMES = ("sct",)
    COLUMNS = (
        PrinterColumn(name="DRA", path=".spec.dra.enable", kind="boolean"),
        PrinterColumn(name="Placement", path=".spec.placement.mode"),
        PrinterColumn(name="Template", path=".spec.dra.resourceClaimTemplateName", wide=True),
        PrinterColumn(name="Age", path=".metadata.creationTimestamp", kind="date"),
    )

    spec: SchedulingConfigTemplateSpec = Field(
        default_factory=SchedulingConfigTemplateSpec, description="What is wanted."
    )


CUSTOM_RESOURCES: tuple[type[CustomResource], ...] = (
    GPUPool,
    SchedulingConfigTemplate,
    BindRequest,
    VolcanoPodGroup,
    VolcanoQueue,
)

R = TypeVar("R", bound=CustomResource)


def parse(kind: type[R], obj: Mapping[str, Any]) -> R:
    """The object as its model. Raises pydantic.ValidationError if it does not fit."""
    return kind.model_validate(obj)
