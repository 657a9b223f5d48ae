"""The BindRequest: the decision about one pod, for people."""

from typing import Annotated, Any, Literal

from pydantic import Field

from dray.kube.ports import BIND_REQUESTS
from dray.kube.resource_fields import (
    Conditions,
    CustomResource,
    Owner,
    PrinterColumn,
    ResourceFields,
)

BindPhase = Literal["Pending", "Binding", "Succeeded", "Failed"]
EXPLANATION_LIMIT = 4096
"""Maximum length of ``BindRequest.status.explanation`` in characters."""


class ClaimAllocation(ResourceFields):
    """The allocation of one claim of the pod."""

    name: str = Field(description="Name of the ResourceClaim.")
    allocation: dict[str, Any] | None = Field(
        default=None, description="resource.k8s.io/v1 AllocationResult, as written to the claim."
    )


class BindRequestSpec(ResourceFields):
    """One attempt to give a pod its devices and its node. Each attempt replaces it."""

    pod_uid: str = Field(alias="podUID", description="UID of the pod of the same name.")
    selected_node: str = Field(
        default="", description="The chosen node; empty while the pod waits."
    )
    pool: str = Field(default="", description="GPUPool that decides about the pod.")
    devices: int = Field(
        default=0, ge=0, description="How many devices the claims get; 0 while the pod waits."
    )
    resource_claim_allocations: list[ClaimAllocation] | None = Field(
        default=None, description="What each claim gets."
    )
    attempt: int = Field(
        default=0,
        ge=0,
        description="Highest attempt: the epoch of the decision log times a million, plus the "
        "count in it; 0 before the first decision.",
    )
    binder: Owner | None = Field(default=None, description="Who binds the pod to the node.")
    backoff_limit: int = Field(
        default=0,
        ge=0,
        description="Failed attempts after which no more are made; 0: no limit. Always 0 so far: "
        "dray tries until the pod is placed or gone, whatever is written here.",
    )


class DecidedBy(ResourceFields):
    """The origin of a decision."""

    policy_version: int = Field(
        ge=0,
        description="Generation of the pool's SchedulingConfigTemplate; 0: the pool had none.",
    )
    learned_version: int = Field(
        ge=0,
        description="Version of FragmentationAware's workload model; 0: none yet.",
    )
    placement: str | None = Field(
        default=None,
        description="The placement mode, or the levels of nodes and cards such as "
        "node=binpack,gpu=spread. Absent: the policy had changed before this was written.",
    )
    policy: str | None = Field(
        default=None, description="Name of the SchedulingConfigTemplate; absent: the pool had none."
    )


class BindRequestStatus(ResourceFields):
    """The progress of the decision, and why it waits."""

    phase: BindPhase = Field(
        default="Pending",
        description="How far the attempt came. Succeeded: the pod is or was bound with its "
        "devices. Failed: the attempt came to nothing, or the pod never ran.",
    )
    reason: str | None = Field(default=None, description="The reason for the phase, in one word.")
    failed_attempts: int = Field(default=0, ge=0, description="Number of failed attempts.")
    explanation: Annotated[str, Field(max_length=EXPLANATION_LIMIT)] | None = Field(
        default=None,
        description="Which clause, capacity or node predicate failed on how many devices; of a "
        "pod that has ended, where and when it ran and its exit code.",
    )
    decided_by: DecidedBy | None = Field(
        default=None, description="The origin of the decision; absent while the pod waits."
    )
    conditions: Conditions = Field(default_factory=list)


class BindRequest(CustomResource):
    """The decision about one pod, and its execution. It has the pod's name; the pod owns it."""

    RESOURCE = BIND_REQUESTS
    SINGULAR = "bindrequest"
    SHORT_NAMES = ("br",)
    COLUMNS = (
        PrinterColumn(name="Pool", path=".spec.pool"),
        PrinterColumn(name="Node", path=".spec.selectedNode"),
        PrinterColumn(name="GPUs", path=".spec.devices", kind="integer"),
        PrinterColumn(name="Phase", path=".status.phase"),
        PrinterColumn(name="Reason", path=".status.reason"),
        PrinterColumn(name="Binder", path=".spec.binder", wide=True),
        PrinterColumn(name="Failed", path=".status.failedAttempts", kind="integer", wide=True),
        PrinterColumn(name="Age", path=".metadata.creationTimestamp", kind="date"),
    )

    spec: BindRequestSpec = Field(description="What is to be done.")
    status: BindRequestStatus | None = Field(default=None, description="What was done.")
