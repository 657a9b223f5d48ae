"""Pod groups as the claim-controller publishes them, and when their minimum is met."""

from collections.abc import Mapping
from typing import Final

import msgspec

from dray.api.pods import GroupApi, GroupKey, NodeExpression, PodClaim

VOLCANO: Final[GroupApi] = "scheduling.volcano.sh"
KUBERNETES: Final[GroupApi] = "scheduling.k8s.io"
DEFAULT_QUEUE: Final = "default"

GROUP_NAME_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations, or labels, of a pod that name its PodGroup."""
QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
"""Annotation of a pod or namespace that names a Queue."""
JOB_SET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
"""Label of the pods of a JobSet."""
MAX_MEMBERS: Final = 4096
"""Maximum number of pods of a group that are decided together."""
MIN_TIMEOUT_S: Final = 5.0
"""Shortest time that a group has after its decision. A shorter time would end before a large group
is written, and the group would be decided and rolled back for ever."""
MAX_TIMEOUT_S: Final = 30 * 86_400.0
"""Longest ``tensor-fusion.ai/gang-timeout``."""
MAX_ENTRIES: Final = 64
"""Maximum number of entries that are read from each list of a PodGroup: task sets, tasks of one
set, ``minTaskMember``, ``subGroupPolicy`` and its selectors."""
TASK_KEY: Final = "volcano.sh/task-spec"
"""Annotation or label of a pod that names its task."""
TASK_AFFINITY: Final = "volcano.sh/task-topology-affinity"
TASK_ANTI_AFFINITY: Final = "volcano.sh/task-topology-anti-affinity"
TASK_ORDER: Final = "volcano.sh/task-topology-task-order"

_NOTHING: Final[Mapping[str, str]] = {}


class SubGroupPolicy(msgspec.Struct, frozen=True, gc=False):
    """Subgroups of a group's pods. A minimum number of them must start together (Volcano's
    ``subGroupPolicy``)."""

    name: str = ""
    selector: tuple[NodeExpression, ...] = ()
    """Requirements on the pods' labels; empty: all pods."""
    label_keys: tuple[str, ...] = ()
    """Pods with equal values of these labels are one subgroup; empty: all pods are one."""
    size: int = 1
    """Minimum number of pods for a subgroup to be counted."""
    minimum: int = 0
    """Minimum number of counted subgroups; 0: any number."""

    def subgroup_of(self, labels: Mapping[str, str]) -> str | None:
        """The subgroup of a pod with these labels; None if the policy does not concern it."""
        if not all(requirement.holds(labels) for requirement in self.selector):
            return None
        values = [labels.get(key, "") for key in self.label_keys]
        return "/".join(values) if all(values) else None


class PodGroup(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A Volcano PodGroup or a Kubernetes PodGroup."""

    key: GroupKey
    uid: str
    minimum: int = 0
    """``minMember`` or ``minCount``; 0: its pods are decided one by one."""
    task_minimums: dict[str, int] = msgspec.field(default_factory=dict)
    """``minTaskMember``."""
    sub_groups: tuple[SubGroupPolicy, ...] = ()
    min_resources: dict[str, str] = msgspec.field(default_factory=dict)
    """``minResources``, as quantities."""
    queue: str = ""
    """For Volcano's groups."""
    priority_class: str = ""
    priority: int | None = None
    """None: the priority of its pods."""
    timeout_s: float = 0.0
    """How long after a decision fewer pods than the minimum may run; 0: the default."""
    affinity: tuple[tuple[str, ...], ...] = ()
    """Sets of tasks that share nodes if possible."""
    anti_affinity: tuple[tuple[str, ...], ...] = ()
    """Sets of tasks that avoid sharing nodes. If a set has one task, that task's pods avoid each
    other."""
    task_order: tuple[str, ...] = ()
    ends_below_minimum: bool = True
    """Whether the group's pods are evicted if it stays below its minimum after a loss."""
    deleting: bool = False
    created_unix_s: float = 0.0
    blocked: str = ""
    """Why no pod of the group may be decided; empty if they may."""
    claims: tuple[PodClaim, ...] = ()
    """Claims of the group as a whole (``spec.resourceClaims`` of Kubernetes PodGroups)."""

    @property
    def is_gang(self) -> bool:
        """Whether some of its pods must start together."""
        tasks = sum(self.task_minimums.values())
        return max(self.minimum, tasks) > 1 or any(
            policy.minimum * policy.size > 1 for policy in self.sub_groups
        )

    def owns(self, claim: PodClaim) -> bool:
        """Whether a pod's reference is to a claim of the group: the name, and the claim or
        template, are equal (``resourceclaim.BindTo`` of Kubernetes)."""
        return any(
            one.reference == claim.reference
            and (one.template == claim.template if one.template else one.claim == claim.claim)
            for one in self.claims
        )


def minimum_field(group: PodGroup) -> str:
    """The name of the field with a group's minimum; it depends on the API."""
    return "minMember" if group.key.api == VOLCANO else "minCount"


class GroupQueue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The fields of a Volcano Queue that services read."""

    name: str
    uid: str = ""
    state: str = ""
    """``Open``, ``Closing``, ``Closed`` or ``Unknown``. Empty: not written yet; means ``Open``."""
    parent: str = ""
    priority: int = 0
    capability: dict[str, str] = msgspec.field(default_factory=dict)
    deserved: dict[str, str] = msgspec.field(default_factory=dict)
    guarantee: dict[str, str] = msgspec.field(default_factory=dict)
    pods: int = 0
    """Pods that it has allocated (``status.allocated``)."""

    @property
    def is_open(self) -> bool:
        """Whether it accepts groups."""
        return self.state in ("", "Open")


class GroupCount:
    """Counts the members of a group that run, or would run, and how many the minimum lacks."""

    def __init__(self, group: PodGroup) -> None:
        self._group = group
        self.members = 0
        self._tasks: dict[str, int] = {}
        self._subgroups: list[dict[str, int]] = [{} for _ in group.sub_groups]
        """Per policy, the pods of each subgroup."""

    def add(self, task: str, labels: Mapping[str, str] = _NOTHING, number: int = 1) -> None:
        """Count members of a task; a negative number subtracts them."""
        self.members += number
        self._tasks[task] = self._tasks.get(task, 0) + number
        for policy, counts in zip(self._group.sub_groups, self._subgroups, strict=True):
            if (subgroup := policy.subgroup_of(labels)) is not None:
                counts[subgroup] = counts.get(subgroup, 0) + number

    def task(self, name: str) -> int:
        """The members of a task."""
        return self._tasks.get(name, 0)

    def subgroup(self, policy: int, name: str) -> int:
        """The members of a subgroup."""
        return self._subgroups[policy].get(name, 0)

    def complete_subgroups(self, policy: int) -> int:
        """How many subgroups of a policy have enough members."""
        size = self._group.sub_groups[policy].size
        return sum(count >= size for count in self._subgroups[policy].values())

    @property
    def lacks(self) -> int:
        """Number of members missing from ``minimum``."""
        return max(0, self._group.minimum - self.members)

    @property
    def lacking_tasks(self) -> dict[str, int]:
        """Number of members missing from each task's minimum, by task."""
        return {
            task: least - self.task(task)
            for task, least in self._group.task_minimums.items()
            if self.task(task) < least
        }

    @property
    def lacking_subgroups(self) -> dict[int, int]:
        """By index of the policy, the number of subgroups that lack members or do not exist."""
        lacking = {
            at: policy.minimum - self.complete_subgroups(at)
            for at, policy in enumerate(self._group.sub_groups)
            if policy.minimum
        }
        return {at: number for at, number in lacking.items() if number > 0}

    @property
    def is_met(self) -> bool:
        """Whether the group's minimum is met."""
        return not (self.lacks or self.lacking_tasks or self.lacking_subgroups)

    def in_words(self) -> str:
        """What the minimum lacks, such as "2 of 4 pods (minMember); 1 of task ps"."""
        group = self._group
        lacking = f"{self.members} of {group.minimum} pods ({minimum_field(group)})"
        parts = [lacking] * bool(self.lacks)
        parts += [
            f"{self.task(task)} of {group.task_minimums[task]} pods of task {task} (minTaskMember)"
            for task in self.lacking_tasks
        ]
        for at in self.lacking_subgroups:
            policy = group.sub_groups[at]
            parts.append(
                f"{self.complete_subgroups(at)} of {policy.minimum} subgroups"
                f" of {policy.name or at} with {policy.size} pods each (subGroupPolicy)"
            )
        return "; ".join(parts)
