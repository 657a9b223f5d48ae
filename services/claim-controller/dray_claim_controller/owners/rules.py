"""Who waits in the wrong queue after a pool changed hands, and who came too late. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dray.domain.devices import Device, DeviceId
from dray.domain.names import DRIVER, OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray.kube.convert import time_from
from dray.kube.ports import POOLS
from dray_claim_controller.execute.defence import suffices
from dray_claim_controller.observe.assignment import pools_of
from dray_claim_controller.observe.capacity import waits
from dray_claim_controller.observe.owners import former_owner
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import SeenClaim


@dataclass(frozen=True, slots=True)
class Stranded:
    """Pods that wait for dray in pools that kube-scheduler has by now."""

    gated: tuple[str, ...]
    """UIDs of those that kube-scheduler takes once the gate is lifted."""
    unbindable: tuple[str, ...]
    """UIDs of those that name dray's scheduler, which a pod can't change."""


@dataclass(frozen=True, slots=True)
class LateSale:
    """An allocation that landed after dray had taken a device back, on what was sold meanwhile."""

    device: DeviceId
    claim: str
    """``namespace/name``."""
    pods: tuple[str, ...]
    """UIDs of the pods that have to go."""


def stranded(picture: Picture) -> Stranded:
    """Pods that no allocator decides about any more."""
    handed_over = {
        name
        for name, pool in pools_of(picture).items()
        if pool.owner == former_owner(picture.plain[POOLS.plural][name]) == OWNER_KUBE_SCHEDULER
    }
    gated, unbindable = [], []
    for seen in picture.our_pods() if handed_over else ():
        pod = seen.pod
        # With all of its devices a pod lacks the last step only, and that is made for it.
        if pod is None or pod.pool not in handed_over or not waits(picture, seen, pod):
            continue
        if pod.gated:
            gated.append(seen.uid)
        elif pod.binder == OWNER_DRAY:
            unbindable.append(seen.uid)
    return Stranded(tuple(gated), tuple(unbindable))


def late_sales(picture: Picture, node: str, recalled_unix_s: float) -> Iterator[LateSale]:
    """What kube-scheduler has allocated on a node's devices since ``recalled_unix_s``, where
    they do not suffice for it and for the others that hold them."""
    for device in picture.cards.devices_of(DRIVER, node):
        device_id = DeviceId(DRIVER, node, device.name)
        holders = [picture.claims[uid] for uid in picture.cards.holders.get(device_id, ())]
        if len(holders) > 1 and not _suffices(device, device_id, holders):
            yield from _late(picture, device, device_id, holders, recalled_unix_s)


def _late(
    picture: Picture,
    device: Device,
    device_id: DeviceId,
    holders: list[SeenClaim],
    recalled_unix_s: float,
) -> Iterator[LateSale]:
    """Latest first, and as many as have to go; those that are going count as gone."""
    late = [seen for seen in holders if _came_late(seen, recalled_unix_s)]
    late.sort(key=lambda seen: (_is_going(picture, seen), _allocated_unix_s(seen)), reverse=True)
    left = list(holders)
    for seen in late:
        if _suffices(device, device_id, left):
            return
        left.remove(seen)
        pods = tuple(uid for uid in _users(seen) if not _is_gone(picture, uid))
        if pods:
            yield LateSale(device_id, f"{seen.claim.namespace}/{seen.claim.name}", pods)


def _came_late(seen: SeenClaim, recalled_unix_s: float) -> bool:
    claim = seen.claim
    by_dray = claim.decision > claim.void
    stamped_unix_s = _allocated_unix_s(seen)
    # The server's times are whole seconds.
    return not by_dray and (not stamped_unix_s or stamped_unix_s >= int(recalled_unix_s))


def _allocated_unix_s(seen: SeenClaim) -> float:
    """0 where the server keeps no such time."""
    allocation = (seen.object.get("status") or {}).get("allocation") or {}
    return time_from(allocation.get("allocationTimestamp"))


def _users(seen: SeenClaim) -> tuple[str, ...]:
    claim = seen.claim
    return claim.reserved_for or ((claim.pod_uid,) if claim.pod_uid else ())


def _is_gone(picture: Picture, uid: str) -> bool:
    seen = picture.pods.get(uid)
    return seen is None or seen.terminal or (seen.pod is not None and seen.pod.deleting)


def _is_going(picture: Picture, seen: SeenClaim) -> bool:
    return all(_is_gone(picture, uid) for uid in _users(seen))


def _suffices(device: Device, device_id: DeviceId, holders: Sequence[SeenClaim]) -> bool:
    allocations = (seen.claim.allocation for seen in holders)
    held = (one.shares_of(device_id) for one in allocations if one is not None)
    return suffices(device, [share for shares in held for share in shares])
