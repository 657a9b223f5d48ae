"""What tests ask of caches and groups, and no product module does."""

from collections.abc import Iterable, Mapping

from dray.api.groups import GroupCount, PodGroup
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.object_cache import ObjectCache


def our_pods(cache: ObjectCache) -> list[CachedPod]:
    """Pods that use dray's claims."""
    return [cached for cached in cache.pods.values() if cached.pod is not None]


def count_members(group: PodGroup, members: Iterable[tuple[str, Mapping[str, str]]]) -> GroupCount:
    """The count of members, each a task and its labels."""
    count = GroupCount(group)
    for task, labels in members:
        count.add(task, labels)
    return count
