"""The custom resources of ``scheduling.volcano.sh/v1beta1`` that frameworks create.

Fields, defaults and limits are those of Volcano 1.15, but the number of subgroup policies is dray's
limit; if Volcano is installed, its own definitions are used. Source:
``volcano.sh/apis/pkg/apis/scheduling/v1beta1``.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, WithJsonSchema

from dray.api.groups import MAX_ENTRIES
from dray.kube.ports import POD_GROUPS, QUEUES
from dray.kube.resource_fields import CustomResource, PrinterColumn, ResourceFields

_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_DNS_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_INT32: Final[dict[str, Any]] = {"format": "int32"}
_ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}

Quantity = Annotated[
    int | str,
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _QUANTITY,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
Resources = dict[str, Quantity]
Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1, json_schema_extra=_INT32)]
Count = Annotated[int, Field(ge=0, json_schema_extra=_INT32)]


class NetworkTopology(ResourceFields):
    """How far pods may be apart in the network."""

    mode: Literal["hard", "soft"] = Field(
        default="hard", description="Whether the limit must hold, or is preferred."
    )
    highest_tier_allowed: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Highest tier of a HyperNode that holds all pods."
    )
    highest_tier_name: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="The same by name; not together with highestTierAllowed."
    )


class LabelRequirement(ResourceFields):
    """One expression of a label selector."""

    key: str = Field(description="Label.")
    operator: str = Field(description="In, NotIn, Exists or DoesNotExist.")
    values: Annotated[list[str], Field(json_schema_extra=_ATOMIC)] | None = Field(
        default=None, description="For In and NotIn."
    )


class Selector(ResourceFields):
    """A label selector; all its parts must hold."""

    match_labels: dict[str, str] | None = Field(default=None, description="Labels with a value.")
    match_expressions: (
        Annotated[list[LabelRequirement], Field(json_schema_extra=_ATOMIC)] | None
    ) = Field(default=None, description="Expressions.")


class SubGroupPolicyFields(ResourceFields):
    """Subgroups of the pods, of which some must start together."""

    name: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="Name of the policy."
    )
    label_selector: Selector | None = Field(
        default=None, description="Pods that the policy is for; absent: all."
    )
    match_label_keys: Annotated[list[str], Field(json_schema_extra=_ATOMIC)] | None = Field(
        default=None,
        description="Pods with equal values of these labels are one subgroup.",
    )
    sub_group_size: Annotated[int, Field(ge=1, json_schema_extra=_INT32)] = Field(
        default=1, description="Pods that a subgroup needs."
    )
    min_sub_groups: Count = Field(
        default=0, description="Subgroups without which no pod of the group starts."
    )
    network_topology: NetworkTopology | None = Field(
        default=None, description="How far pods of a subgroup may be apart. dray stores it only."
    )


class VolcanoPodGroupSpec(ResourceFields):
    """Which pods start together."""

    min_member: Count | None = Field(
        default=None, description="Pods without which no pod of the group starts."
    )
    min_task_member: dict[str, Int32] | None = Field(
        default=None,
        description="By task (annotation volcano.sh/task-spec of the pods), pods without which no "
        "pod of the group starts.",
    )
    queue: Annotated[str, Field(max_length=253, pattern=_DNS_NAME)] = Field(
        default="default", description="Queue of the group; it must exist and be open."
    )
    priority_class_name: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="PriorityClass of the group; absent: the priority of its pods."
    )
    min_resources: Resources | None = Field(
        default=None, description="Resources that must be free before a pod of the group starts."
    )
    network_topology: NetworkTopology | None = Field(
        default=None, description="How far pods may be apart. dray stores it only."
    )
    sub_group_policy: (
        Annotated[list[SubGroupPolicyFields], Field(max_length=MAX_ENTRIES)] | None
    ) = Field(default=None, description="Subgroups that start together.")


class VolcanoCondition(ResourceFields):
    """One aspect of an object's state."""

    type: str | None = Field(
        default=None, description="Scheduled, Unschedulable, or NotHonored of dray."
    )
    status: str | None = Field(default=None, description="True, False or Unknown.")
    transition_id: str | None = Field(
        default=None, alias="transitionID", description="Identifies the change."
    )
    last_transition_time: (
        Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None
    ) = Field(default=None, description="When the status changed last.")
    reason: str | None = Field(default=None, description="One word.")
    message: str | None = Field(default=None, description="Sentences for people.")


class VolcanoPodGroupStatus(ResourceFields):
    """What is observed of the group."""

    phase: Literal["Pending", "Running", "Unknown", "Inqueue", "Completed"] | None = Field(
        default=None, description="Phase of the group."
    )
    conditions: list[VolcanoCondition] | None = Field(
        default=None, description="Latest observations, one per type."
    )
    running: Count | None = Field(default=None, description="Pods that run.")
    pending: Count | None = Field(
        default=None,
        description="Pods that wait. Written by dray alone; Volcano has no such field.",
    )
    succeeded: Count | None = Field(default=None, description="Pods that have succeeded.")
    failed: Count | None = Field(default=None, description="Pods that have failed.")


class VolcanoPodGroup(CustomResource):
    """Pods of which some start together or not at all."""

    RESOURCE = POD_GROUPS
    SINGULAR = "podgroup"
    SHORT_NAMES = ("pg", "podgroup-v1beta1")
    IS_OWN = False
    HAS_STATUS_SUBRESOURCE = False
    COLUMNS = (
        PrinterColumn(name="STATUS", path=".status.phase"),
        PrinterColumn(name="minMember", path=".spec.minMember", kind="integer"),
        PrinterColumn(name="RUNNINGS", path=".status.running", kind="integer"),
        PrinterColumn(name="PENDING", path=".status.pending", kind="integer"),
        PrinterColumn(
            name="REASON",
            path='.status.conditions[?(@.type=="Unschedulable")].reason',
        ),
        PrinterColumn(name="AGE", path=".metadata.creationTimestamp", kind="date"),
        PrinterColumn(name="QUEUE", path=".spec.queue", wide=True),
    )

    spec: VolcanoPodGroupSpec | None = Field(default=None, description="What is wanted.")
    status: VolcanoPodGroupStatus | None = Field(default=None, description="What is observed.")


class Guarantee(ResourceFields):
    """What is kept for a queue."""

    resource: Resources | None = Field(default=None, description="Amounts.")


class QueueCluster(ResourceFields):
    """Another cluster that takes jobs of the queue."""

    name: str | None = Field(default=None, description="Name of the cluster.")
    weight: Int32 | None = Field(default=None, description="Its share.")
    capacity: Resources | None = Field(default=None, description="What it has.")


class NodeGroupTerms(ResourceFields):
    """Groups of nodes."""

    required: list[str] | None = Field(
        default=None,
        alias="requiredDuringSchedulingIgnoredDuringExecution",
        description="Groups that must be used, or avoided.",
    )
    preferred: list[str] | None = Field(
        default=None,
        alias="preferredDuringSchedulingIgnoredDuringExecution",
        description="Groups that are preferred, or avoided where possible.",
    )


class NodeGroupAffinity(ResourceFields):
    """Groups of nodes for a queue's pods."""

    node_group_affinity: NodeGroupTerms | None = Field(default=None, description="To be used.")
    node_group_anti_affinity: NodeGroupTerms | None = Field(
        default=None, description="To be avoided."
    )


class VolcanoQueueSpec(ResourceFields):
    """How a queue shares the cluster. dray stores shares, and does not enforce them yet."""

    weight: Annotated[int, Field(ge=1, le=65535, json_schema_extra=_INT32)] = Field(
        default=1, description="Share of what is left over."
    )
    capability: Resources | None = Field(default=None, description="The most it may use.")
    reclaimable: bool | None = Field(
        default=None,
        description="Whether other queues may take back what it uses beyond its share.",
    )
    extend_clusters: list[QueueCluster] | None = Field(
        default=None, description="Clusters that take jobs of the queue."
    )
    guarantee: Guarantee | None = Field(default=None, description="What is kept for it.")
    affinity: NodeGroupAffinity | None = Field(default=None, description="Nodes for its pods.")
    type: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="Type of the queue."
    )
    parent: Annotated[str, Field(max_length=253, pattern=_DNS_NAME)] | None = Field(
        default=None, description="Queue above it."
    )
    deserved: Resources | None = Field(
        default=None, description="Its share; others may use it until it is needed."
    )
    priority: Count | None = Field(default=None, description="Queues with higher ones come first.")
    dequeue_strategy: Literal["fifo", "traverse"] = Field(
        default="traverse",
        description="Whether a group that does not fit keeps later ones of the queue waiting.",
    )


class QueueReservation(ResourceFields):
    """Nodes locked for a queue."""

    nodes: list[str] | None = Field(default=None, description="Names of the nodes.")
    resource: Resources | None = Field(default=None, description="What is free on them.")


class VolcanoQueueStatus(ResourceFields):
    """What is observed of the queue."""

    state: Literal["Open", "Closed", "Closing", "Unknown"] | None = Field(
        default=None, description="Whether the queue takes groups."
    )
    unknown: Count | None = Field(default=None, description="Its groups in phase Unknown.")
    pending: Count | None = Field(default=None, description="Its groups in phase Pending.")
    running: Count | None = Field(default=None, description="Its groups in phase Running.")
    inqueue: Count | None = Field(default=None, description="Its groups in phase Inqueue.")
    completed: Count | None = Field(default=None, description="Its groups in phase Completed.")
    reservation: QueueReservation | None = Field(default=None, description="Nodes locked for it.")
    allocated: Resources | None = Field(default=None, description="What its pods use.")
    conditions: list[VolcanoCondition] | None = Field(
        default=None,
        description="NotHonored: fields that dray stores only. Volcano has no such field.",
    )


class VolcanoQueue(CustomResource):
    """Groups that wait together, and share the cluster with other queues."""

    RESOURCE = QUEUES
    SINGULAR = "queue"
    SHORT_NAMES = ("q", "queue-v1beta1")
    IS_OWN = False
    COLUMNS = (
        PrinterColumn(name="PARENT", path=".spec.parent"),
        PrinterColumn(name="STATE", path=".status.state"),
        PrinterColumn(name="AGE", path=".metadata.creationTimestamp", kind="date"),
    )

    spec: VolcanoQueueSpec | None = Field(default=None, description="What is wanted.")
    status: VolcanoQueueStatus | None = Field(default=None, description="What is observed.")
