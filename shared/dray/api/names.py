"""The names that users, Kubernetes and the services share: one definition each."""

from typing import Final

PREFIX: Final = "tensor-fusion.ai/"
API_GROUP: Final = "tensor-fusion.ai"
API_VERSION: Final = "tensor-fusion.ai/v1"

DRIVER: Final = "tensor-fusion.ai.dra-driver"
DEVICE_CLASS: Final = DRIVER
GPU_RESOURCE: Final = "nvidia.com/gpu"
"""NVIDIA's name of whole GPUs in amounts of resources."""
GPU_SHARE_RESOURCE: Final = PREFIX + "gpu-share"
"""Resource of the device plugin. A container requests one to get GPUs, or shares of them."""
DRAY_SCHEDULER: Final = "tensor-fusion-scheduler"
"""``schedulerName`` of pods that dray binds itself."""
VOLCANO_SCHEDULER: Final = "volcano"
DEFAULT_SCHEDULER_NAMES: Final = (DRAY_SCHEDULER,)
"""Scheduler names of pods that dray schedules, unless settings say otherwise."""
DEFAULT_SCHEDULER: Final = "default-scheduler"

CLAIM_REFERENCE: Final = "tensor-fusion-gpu-claim"
"""Name of the injected entry of ``pod.spec.resourceClaims``."""
BASE_TEMPLATE: Final = "tensor-fusion-gpu-template"
GPU_REQUEST: Final = "gpu-request"
"""The request of the base template that a pod's shape completes (user guide §3.2)."""
ALLOCATION_GATE: Final = PREFIX + "allocation"
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"

# Annotations that users write on pods (user guide §4).
DRA_ENABLED: Final = PREFIX + "dra-enabled"
TFLOPS_REQUEST: Final = PREFIX + "tflops-request"
VRAM_REQUEST: Final = PREFIX + "vram-request"
GPUPOOL: Final = PREFIX + "gpupool"
GPU_COUNT: Final = PREFIX + "gpu-count"
GPU_MODEL: Final = PREFIX + "gpu-model"
QOS: Final = PREFIX + "qos"
DRA_CEL_EXPRESSION: Final = PREFIX + "dra-cel-expression"
TFLOPS_LIMIT: Final = PREFIX + "tflops-limit"
VRAM_LIMIT: Final = PREFIX + "vram-limit"
# More request annotations, with TensorFusion's names if there are any.
DEDICATED_GPU: Final = PREFIX + "dedicated-gpu"
COMPUTE_PERCENT_REQUEST: Final = PREFIX + "compute-percent-request"
COMPUTE_PERCENT_LIMIT: Final = PREFIX + "compute-percent-limit"
INJECT_CONTAINER: Final = PREFIX + "inject-container"
CONTAINER_GPUS: Final = PREFIX + "container-gpus"
CONTAINER_GPU_COUNT: Final = PREFIX + "container-gpu-count"
PREFER: Final = PREFIX + "prefer"
PLACEMENT: Final = PREFIX + "placement"
GPU_TOPOLOGY: Final = PREFIX + "gpu-topology"
# Groups: on pods whose group dray creates, and on PodGroups.
GANG_ENABLED: Final = PREFIX + "gang-enabled"
GANG_MIN_MEMBERS: Final = PREFIX + "gang-min-members"
GANG_TIMEOUT: Final = PREFIX + "gang-timeout"
GANG_LOSS_POLICY: Final = PREFIX + "gang-loss-policy"
"""``end`` or ``keep``: whether a group's pods are ended or kept if it stays below its minimum."""
GANG_ANNOTATIONS: Final = (GANG_ENABLED, GANG_MIN_MEMBERS, GANG_TIMEOUT, GANG_LOSS_POLICY)
POD_ANNOTATIONS: Final = (
    DRA_ENABLED,
    TFLOPS_REQUEST,
    VRAM_REQUEST,
    GPUPOOL,
    GPU_COUNT,
    GPU_MODEL,
    QOS,
    DRA_CEL_EXPRESSION,
    TFLOPS_LIMIT,
    VRAM_LIMIT,
    DEDICATED_GPU,
    COMPUTE_PERCENT_REQUEST,
    COMPUTE_PERCENT_LIMIT,
    INJECT_CONTAINER,
    CONTAINER_GPUS,
    CONTAINER_GPU_COUNT,
    PREFER,
    PLACEMENT,
    GPU_TOPOLOGY,
    *GANG_ANNOTATIONS,
)

# Annotations that only dray writes; the webhook overwrites them on every call.
REQUEST_ID: Final = PREFIX + "request-id"
TRACEPARENT: Final = PREFIX + "traceparent"
SHAPE: Final = PREFIX + "shape"
"""Canonical JSON of the derived ResourceClaimTemplateSpec, on the pod."""
DECISION: Final = PREFIX + "decision"
"""On a claim: the highest attempt whose execution has begun."""
VOID: Final = PREFIX + "void"
"""On a claim: attempts up to this one must never be committed. On a pod: attempts by which it must
never be bound, as ``<claim UID>.<attempt>``, separated by commas."""
ALLOCATED: Final = PREFIX + "allocated"
TEMPLATE_READY: Final = PREFIX + "template-ready"
"""On a waiting pod: its derived template, touched so that old controllers retry at once."""
PREPARE_AGAIN: Final = PREFIX + "prepare-again"
"""On a pod that is bound and not prepared: changed so that the kubelet tries at once."""
POOL_FINALIZER: Final = PREFIX + "pool-in-use"
"""Finalizer of GPUPools, and of the SchedulingConfigTemplates that they name."""
HEALTH_TAINT: Final = PREFIX + "unhealthy"
"""Device taint of a GPU that its node-agent found unhealthy; the value says why."""
PHASE: Final = "phase"
"""Attribute of a GPU: ``RUNNING_PHASE``, which generated selectors require, or
``UNHEALTHY_PHASE``."""
RUNNING_PHASE: Final = "Running"
UNHEALTHY_PHASE: Final = "Unknown"
CONTAINER_GPU_IDS: Final = PREFIX + "container-gpu-ids"
"""On a running pod: the devices of each container, as JSON."""
GPU_IDS: Final = PREFIX + "gpu-ids"
"""On a pod without Dynamic Resource Allocation: the UUIDs of its GPUs, set at binding."""
OWN_ANNOTATIONS: Final = (
    REQUEST_ID,
    TRACEPARENT,
    SHAPE,
    DECISION,
    VOID,
    ALLOCATED,
    TEMPLATE_READY,
    PREPARE_AGAIN,
    CONTAINER_GPU_IDS,
    GPU_IDS,
)

# Labels and taints.
POOL_LABEL: Final = PREFIX + "gpupool"
"""On nodes: the node's pool. On derived templates and their claims: the requested pool."""
GPU_LABEL: Final = PREFIX + "gpu-present"
"""On nodes: whether a node-agent has published GPUs there. The claim-controller sets it."""
GPU_PRESENT: Final = "true"
QOS_LABEL: Final = PREFIX + "qos"
TEMPLATE_LABEL: Final = PREFIX + "resource-claim-template"
DERIVED_FROM_LABEL: Final = PREFIX + "derived-from"
DEDICATED_TAINT: Final = PREFIX + "dedicated"
"""Node taint ``tensor-fusion.ai/dedicated=<pool>:NoSchedule`` of a dedicated pool."""
OWNER_TAINT: Final = PREFIX + "owner"
"""Device taint ``tensor-fusion.ai/owner=dray:NoSchedule`` that no claim may tolerate."""
OWNER_DRAY: Final = "dray"
OWNER_KUBE_SCHEDULER: Final = "kube-scheduler"

CONDITIONS_PENDING: Final = "BindingConditionsPending"
"""Reason in the event and in the BindRequest's status while a pod is not bound because its devices
aren't ready. kube-scheduler uses the same reason."""

# Capacities of a card. Requests always consume the virtual pair.
TFLOPS: Final = "tflops"
VRAM: Final = "vram"
VIRTUAL_TFLOPS: Final = "virtual_tflops"
VIRTUAL_VRAM: Final = "virtual_vram"

# Attributes: how devices of a node are connected.
DRIVER_VERSION_LABEL: Final = PREFIX + "driver-version"
"""On a node's ResourceSlices: the version of the NVIDIA driver."""
NVLINK_DOMAIN: Final = "nvlink_domain"
"""Equal for devices connected by NVLink, directly or through switches or other devices."""
NUMA_NODE: Final = "numa_node"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
"""Kubernetes' own attribute; all drivers use the same name (KEP-4381)."""
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"

COMPACT_FIRST: Final = "CompactFirst"
LOW_LOAD_FIRST: Final = "LowLoadFirst"
NODE_COMPACT_GPU_LOW_LOAD: Final = "NodeCompactGPULowLoad"
FRAGMENTATION_AWARE: Final = "FragmentationAware"
KUBERNETES_COMPATIBLE: Final = "KubernetesCompatible"
"""Decides as kube-scheduler's allocator does: the first devices that fit."""
DEFAULT_PLACEMENT: Final = FRAGMENTATION_AWARE
"""``placement.mode`` if a SchedulingConfigTemplate names none."""

SHARE_CONFIG_KIND: Final = "GPUShareConfig"
"""``kind`` of the driver's own opaque configuration. Its fields are those below and the limits."""
LIMITS_KIND: Final = "GPULimits"
"""The same kind in derived templates: older node-agents read this name."""
SHARE_CONFIG_KINDS: Final = (SHARE_CONFIG_KIND, LIMITS_KIND)
CONTAINER_FIELD: Final = "container"
"""The containers that the requests belong to; absent: every container that refers to the claim."""
PREFER_FIELD: Final = "prefer"
"""The pod's preference; dray's allocator reads it, like the percentages below."""
PLACEMENT_FIELD: Final = "placement"
TOPOLOGY_FIELD: Final = "gpuTopology"
PERCENT_FIELDS: Final = {
    VIRTUAL_TFLOPS: "computePercentRequest",
    VIRTUAL_VRAM: "vramPercentRequest",
}
"""For each consumed capacity, its name as percent of the device's physical capacity."""

QOS_LEVELS: Final = ("low", "medium", "high", "critical")
DEFAULT_QOS: Final = "medium"
MAX_GPUS_PER_CLAIM: Final = 32
"""``AllocationResultsMaxSize`` in resource.k8s.io/v1 types.go."""

DRAY_NAMESPACE: Final = "dray-system"
NAME_LABEL: Final = "app.kubernetes.io/name"
MPS_DAEMON: Final = "dray-mps-daemon"
"""NAME_LABEL of the pods of MPS daemons."""


def qualified(name: str, driver: str = DRIVER) -> str:
    """``name`` with the driver as its domain, unless it has a domain already."""
    return name if "/" in name else f"{driver}/{name}"
