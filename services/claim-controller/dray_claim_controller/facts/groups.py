"""The fact of a PodGroup: what it asks for, and why it must not be decided. Pure."""

from collections.abc import Iterator

from msgspec.structs import replace

from dray.api.groups import VOLCANO, PodGroup
from dray.api.pods import GroupKey, Pod
from dray.kube.convert import revision_of
from dray.kube.ports import PRIORITY_CLASSES, QUEUES, Object
from dray.messages.facts import GroupObserved
from dray.reasons import name_list
from dray_claim_controller.cache.groups import group_of, has_ended, members
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.resources import read


def group_fact(cache: ObjectCache, key: GroupKey) -> GroupObserved | None:
    """The fact of a PodGroup; None if there is none."""
    obj, group = cache.group(key), group_of(cache, key)
    if obj is None or group is None:
        return None
    pods = [pod for pod in members(cache, key) if not has_ended(pod)]
    priority = _priority(cache, group, pods)
    blocked = next(_blocks(cache, group, pods), "")
    return GroupObserved(
        revision=revision_of(obj), group=replace(group, priority=priority, blocked=blocked)
    )


def _priority(cache: ObjectCache, group: PodGroup, pods: list[Pod]) -> int | None:
    """The group's own priority, else that of its class, else the highest of its pods. The class of
    a Volcano group can only lower it: nobody checks who may name a class there."""
    if group.priority is not None:
        return group.priority
    highest = max((pod.priority for pod in pods), default=None)
    known: Object | None = cache.plain[PRIORITY_CLASSES.plural].get(group.priority_class)
    if group.priority_class and known is not None:
        value = int(known.get("value") or 0)
        return value if group.key.api != VOLCANO or highest is None else min(value, highest)
    return highest


def _blocks(cache: ObjectCache, group: PodGroup, pods: list[Pod]) -> Iterator[str]:
    """Why the group must not be decided, the most important first."""
    key = group.key
    if group.deleting:
        yield f"PodGroup {key} is being deleted"
    if group.blocked:
        yield group.blocked
    if key.api == VOLCANO:
        yield from _queue_blocks(cache, group)
    pools = sorted({pod.pool: None for pod in pods if pod.pool})
    if len(pools) > 1:
        yield (
            f"the pods of PodGroup {key} name several GPUPools ({name_list(pools)}): a group has "
            "one, because it is decided as a whole; name one pool in all of its pods"
        )
    if pods and (others := cache.group_members.foreign_schedulers(key)):
        yield (
            f"other pods of PodGroup {key} have schedulerName {name_list(others)}, which dray does "
            "not serve: name one scheduler in all of its pods"
        )
    if key.api != VOLCANO:
        yield from _native_blocks(key, pods)


def _native_blocks(key: GroupKey, pods: list[Pod]) -> Iterator[str]:
    """What Kubernetes demands of the pods of its own groups."""
    schedulers = sorted({pod.scheduler: None for pod in pods})
    if len(schedulers) > 1:
        yield (
            f"the pods of PodGroup {key} have different schedulers ({name_list(schedulers)}), and "
            "each would wait for the pods of the other: let pods without GPUs name the GPUPool and "
            "a scheduler of dray, leave them out of the group, or name a GPUPool on shared nodes"
        )
    priorities = sorted({pod.priority: None for pod in pods})
    if len(priorities) > 1:
        yield (
            f"the pods of PodGroup {key} have different priorities "
            f"({name_list([str(one) for one in priorities])}): kube-scheduler does not schedule "
            "such a group; name one PriorityClass in all of its pods"
        )


def _queue_blocks(cache: ObjectCache, group: PodGroup) -> Iterator[str]:
    obj = cache.plain[QUEUES.plural].get(group.queue)
    if obj is None:
        yield (
            f"there is no Queue {group.queue}, which PodGroup {group.key} names: create it, or "
            "name another one"
        )
        return
    queue = read(QUEUES, obj)[0]
    if queue is not None and not queue.is_open:
        yield f"Queue {group.queue} is {queue.state}: it takes no groups until it is open again"
