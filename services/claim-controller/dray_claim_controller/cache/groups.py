"""The members of PodGroups, and how many of them run. Pure."""

from collections.abc import Callable, Iterator

from dray.api.claims import Claim
from dray.api.groups import KUBERNETES, VOLCANO, GroupCount, PodGroup
from dray.api.names import OWNER_DRAY
from dray.api.pods import TERMINAL_PHASES, GroupKey, Pod
from dray.kube.ports import NATIVE_POD_GROUPS, POD_GROUPS
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.resources import read


def group_of(cache: ObjectCache, key: GroupKey) -> PodGroup | None:
    """A PodGroup as its own object describes it; None if there is none, or it can't be read."""
    obj = cache.group(key)
    if obj is None:
        return None
    found: PodGroup | None = read(POD_GROUPS if key.api == VOLCANO else NATIVE_POD_GROUPS, obj)[0]
    return found


def members(cache: ObjectCache, key: GroupKey) -> list[Pod]:
    """The pods of a group that dray schedules."""
    return [cached.pod for cached in cache.members_of(key) if cached.pod is not None]


def group_of_claim(cache: ObjectCache, pod: Pod, claim: str) -> PodGroup | None:
    """The native PodGroup that owns this claim of a pod; None: the claim belongs to the pod, or to
    nobody."""
    if pod.member is None or pod.member.group.api != KUBERNETES:
        return None
    group = group_of(cache, pod.member.group)
    if group is None:
        return None
    return group if any(one.claim == claim and group.owns(one) for one in pod.claims) else None


def is_reserved_for(cache: ObjectCache, claim: Claim, pod: Pod) -> bool:
    """Whether a claim is reserved for a pod, or for its group."""
    if pod.uid in claim.reserved_for:
        return True
    group = group_of_claim(cache, pod, claim.name) if claim.reserved_for else None
    return group is not None and group.uid in claim.reserved_for


def has_ended(pod: Pod) -> bool:
    """Whether a pod has ended, or is about to."""
    return pod.deleting or pod.phase in TERMINAL_PHASES


def needs_devices(cache: ObjectCache, pod: Pod) -> bool:
    """Whether a member has claims of dray, or will have."""
    return bool(pod.pool) or bool(cache.claims_of(pod))


def has_devices(cache: ObjectCache, pod: Pod) -> bool:
    """Whether all claims of a member are allocated."""
    claims = cache.claims_of(pod)
    is_known = all(entry.claim for entry in pod.claims)
    return is_known and bool(claims) and all(one.claim.allocation is not None for one in claims)


def runs(pod: Pod) -> bool:
    """Whether a member is bound, or has succeeded."""
    return pod.phase == "Succeeded" or (bool(pod.node) and not has_ended(pod))


def has_started(cache: ObjectCache, pod: Pod) -> bool:
    """Whether a member runs, or kube-scheduler is about to bind it."""
    if has_ended(pod) or pod.node or pod.binder == OWNER_DRAY or pod.gated:
        return runs(pod)
    return not needs_devices(cache, pod) or has_devices(cache, pod)


def counted(cache: ObjectCache, group: PodGroup, counts: Callable[[Pod], bool]) -> GroupCount:
    """The count of those members for which ``counts`` is true."""
    count = GroupCount(group)
    for pod in _with_place(members(cache, group.key)):
        assert pod.member is not None
        if counts(pod):
            count.add(pod.member.task, pod.member.labels)
    return count


def _with_place(pods: list[Pod]) -> Iterator[Pod]:
    return (pod for pod in pods if pod.member is not None)


def would_run(cache: ObjectCache, pod: Pod) -> bool:
    """Whether a member runs, or lacks nothing but its group."""
    if runs(pod):
        return True
    return not has_ended(pod) and (not needs_devices(cache, pod) or has_devices(cache, pod))


def may_start(cache: ObjectCache, key: GroupKey) -> bool:
    """Whether the members with all their devices are enough for the group's minimum."""
    group = group_of(cache, key)
    if group is None or not group.is_gang:
        return True
    return counted(cache, group, lambda pod: would_run(cache, pod)).is_met
