"""Pods that wait for the former owner of their pool, and late allocations. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dray.api.devices import Device, DeviceId
from dray.api.names import DRIVER, OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray.kube.convert import time_from
from dray.kube.ports import NATIVE_POD_GROUPS, POOLS
from dray_claim_controller.cache.cached_objects import CachedResourceClaim
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.double_allocation_check import suffices
from dray_claim_controller.facts.handover import former_owner
from dray_claim_controller.facts.pool_capacity import waiting_in


@dataclass(frozen=True, slots=True)
class Stranded:
    """Pods that wait for dray in pools that kube-scheduler now owns."""

    gated: tuple[str, ...]
    """UIDs of those that kube-scheduler takes once the gate is lifted."""
    unbindable: tuple[str, ...]
    """UIDs of those that name dray's scheduler, which a pod can't change."""


@dataclass(frozen=True, slots=True)
class LateAllocation:
    """kube-scheduler's allocation of a device that dray had taken over and allocated meanwhile."""

    device: DeviceId
    claim: str
    """``namespace/name``."""
    pods: tuple[str, ...]
    """UIDs of the pods to evict."""


def stranded(cache: ObjectCache) -> Stranded:
    """Pods that no allocator decides any more."""
    handed_over = {
        name
        for name, pool in cache.pool_selectors.pools().items()
        if pool.owner == OWNER_KUBE_SCHEDULER
        and former_owner(cache.plain[POOLS.plural][name]) == OWNER_KUBE_SCHEDULER
    }
    # A pod with all of its devices lacks only the last step, which is carried out for it.
    waiting = cache.select(waiting_in) if handed_over else None
    found = [uid for name in handed_over if waiting for uid in waiting.with_value(name)]
    gated, unbindable = [], []
    for cached in (cache.pods[uid] for uid in cache.in_order(found)):
        pod = cached.pod
        if pod is None:
            continue
        if pod.gated:
            gated.append(cached.uid)
        elif pod.binder == OWNER_DRAY:
            unbindable.append(cached.uid)
    return Stranded(tuple(gated), tuple(unbindable))


def late_allocations(
    cache: ObjectCache, node: str, recalled_unix_s: float
) -> Iterator[LateAllocation]:
    """What kube-scheduler has allocated on a node's devices since ``recalled_unix_s``, if the
    devices do not suffice for that and for their other holders."""
    for device in cache.devices.devices_of(DRIVER, node):
        device_id = DeviceId(DRIVER, node, device.name)
        holders = [cache.claims[uid] for uid in cache.devices.holders.get(device_id, ())]
        if len(holders) > 1 and not _suffices(device, device_id, holders):
            yield from _late(cache, device, device_id, holders, recalled_unix_s)


def _late(
    cache: ObjectCache,
    device: Device,
    device_id: DeviceId,
    holders: list[CachedResourceClaim],
    recalled_unix_s: float,
) -> Iterator[LateAllocation]:
    """Latest first, until the rest fits; ending pods count as ended."""
    late = [cached for cached in holders if _came_late(cached, recalled_unix_s)]
    late.sort(
        key=lambda cached: (_is_going(cache, cached), _allocated_unix_s(cached)), reverse=True
    )
    left = list(holders)
    for cached in late:
        if _suffices(device, device_id, left):
            return
        left.remove(cached)
        pods = tuple(uid for uid in _users(cached) if not _is_gone(cache, uid))
        if pods:
            yield LateAllocation(device_id, f"{cached.claim.namespace}/{cached.claim.name}", pods)


def _came_late(cached: CachedResourceClaim, recalled_unix_s: float) -> bool:
    claim = cached.claim
    by_dray = claim.decision > claim.void
    stamped_unix_s = _allocated_unix_s(cached)
    # The server's times are whole seconds.
    return not by_dray and (not stamped_unix_s or stamped_unix_s >= int(recalled_unix_s))


def _allocated_unix_s(cached: CachedResourceClaim) -> float:
    """0 if the server keeps no such time."""
    allocation = (cached.object.get("status") or {}).get("allocation") or {}
    return time_from(allocation.get("allocationTimestamp"))


def _users(cached: CachedResourceClaim) -> tuple[str, ...]:
    claim = cached.claim
    return claim.reserved_for or ((claim.pod_uid,) if claim.pod_uid else ())


def _is_gone(cache: ObjectCache, uid: str) -> bool:
    cached = cache.pods.get(uid)
    if cached is None and any(
        one["metadata"].get("uid") == uid for one in cache.plain[NATIVE_POD_GROUPS.plural].values()
    ):
        return False  # The claim is a group's.
    return cached is None or cached.terminal or (cached.pod is not None and cached.pod.deleting)


def _is_going(cache: ObjectCache, cached: CachedResourceClaim) -> bool:
    return all(_is_gone(cache, uid) for uid in _users(cached))


def _suffices(device: Device, device_id: DeviceId, holders: Sequence[CachedResourceClaim]) -> bool:
    allocations = (cached.claim.allocation for cached in holders)
    held = (one.shares_of(device_id) for one in allocations if one is not None)
    return suffices(device, [share for shares in held for share in shares])


class StrandedPods(RecordedRule[Stranded], frozen=True, kw_only=True, tag="who-is-stranded"):
    """Pods that wait for dray in pools that kube-scheduler now owns."""

    def answer(self, cache: ObjectCache) -> Stranded:
        return stranded(cache)

    def polled(self) -> str:
        return "who-is-stranded"


class LateAllocations(
    RecordedRule[tuple[LateAllocation, ...]], frozen=True, kw_only=True, tag="came-late"
):
    """What kube-scheduler allocated on devices that dray had reclaimed, beyond their capacity."""

    recalled: tuple[tuple[str, float], ...]
    """Nodes, and when their devices were reclaimed."""

    def answer(self, cache: ObjectCache) -> tuple[LateAllocation, ...]:
        return tuple(
            sale
            for node, since_unix_s in self.recalled
            for sale in late_allocations(cache, node, since_unix_s)
        )

    def polled(self) -> str:
        return "came-late"
