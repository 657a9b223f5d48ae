"""kube-scheduler's allocation of devices without taints.

Like the real one it takes the first fit in its cache and writes later, conditional only on the
claim's resourceVersion: nothing checks the device's capacity again.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dray.api.claims import AllocatedDevice, Allocation, Claim
from dray.api.devices import Device, DeviceId, ResourceSlice
from dray.api.errors import DrayError
from dray.api.names import CLAIM_FINALIZER, DEFAULT_SCHEDULER, DRIVER
from dray.api.pods import Pod
from dray.api.quantities import parse_quantity
from dray.kube.convert import claim_from, pod_from, slice_from, status_to
from dray.kube.convert_claims import Consumer
from dray.kube.ports import (
    CLAIMS,
    PODS,
    SLICES,
    ConflictError,
    Kube,
    NotFoundError,
    Object,
    Resource,
)
from dray_sandbox.informer import changes
from tools.simulation.loop import EPOCH_UNIX_S

STALE_S = 60.0
"""Older decisions are dropped, like requests that never arrive."""
_LATEST_S = 21.0
"""No request is under way for longer."""
_SCHEDULING_EFFECTS = ("NoSchedule", "NoExecute")
_INTERVAL_S = 0.2


@dataclass(slots=True)
class DeviceAllocator:
    """A running allocator; a restart loses decisions that are not written."""

    kube: Kube
    draw: random.Random
    _objects: dict[Resource, dict[str, Object]] = field(default_factory=dict)
    _assumed: dict[str, Allocation] = field(default_factory=dict)
    """Allocations by claim, until the watch has them or the write failed."""
    _offered: list[ResourceSlice] = field(default_factory=list)
    """Slices with devices without taints."""
    _changed: bool = True

    async def run(self) -> None:
        """Allocate until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in (SLICES, CLAIMS, PODS):
                group.create_task(self._watch(resource))
            while True:
                await asyncio.sleep(_INTERVAL_S)
                if not self._changed or len(self._objects) < 3:
                    continue
                self._changed = False
                for claim in list(self._pending_claims()) if self._offered else ():
                    if (allocation := self._fit(claim)) is not None:
                        self._assumed[claim.uid] = allocation
                        group.create_task(self._write(claim, allocation))

    async def _watch(self, resource: Resource) -> None:
        objects: dict[str, Object] = {}
        async for batch in changes(self.kube, resource):
            for obj, deleted in batch:
                objects.pop(obj["metadata"]["uid"], None)
                if not deleted:
                    objects[obj["metadata"]["uid"]] = obj
            self._objects[resource] = objects
            self._changed = True
            if resource == SLICES:
                parts = sorted(map(slice_from, objects.values()), key=lambda part: part.name)
                self._offered = [part for part in parts if any(map(_is_offered, part.devices))]

    def _pending_claims(self) -> Iterator[Claim]:
        """Unallocated claims of kube-scheduler's pods."""
        pods = {uid: pod_from(obj) for uid, obj in self._objects[PODS].items()}
        for obj in self._objects[CLAIMS].values():
            claim = claim_from(obj)
            pod = pods.get(claim.pod_uid)
            free = claim.allocation is None and not claim.deleting
            if free and claim.uid not in self._assumed and pod is not None and _is_due(pod):
                yield claim

    def _fit(self, claim: Claim) -> Allocation | None:
        """The first feasible devices on one node."""
        (request,) = claim.spec.requests
        for part in self._offered:
            fitting = [
                AllocatedDevice(
                    request.name,
                    device_id,
                    share_id=f"{claim.uid}-{device.name}",
                    consumed=dict(request.capacity),
                )
                for device in part.devices
                if _matches(device, claim.pool)
                and self._has_room(
                    device, device_id := DeviceId(DRIVER, part.pool, device.name), request.capacity
                )
            ]
            if len(fitting) >= request.count:
                return Allocation(tuple(fitting[: request.count]), part.node)
        return None

    def _has_room(self, device: Device, device_id: DeviceId, asked: dict[str, str]) -> bool:
        claims = {uid: claim_from(obj).allocation for uid, obj in self._objects[CLAIMS].items()}
        held = {**self._assumed, **{uid: one for uid, one in claims.items() if one is not None}}
        shares = [share for one in held.values() for share in one.devices if share.id == device_id]
        return all(
            sum(parse_quantity(share.consumed.get(name, "0")).nano for share in shares)
            + parse_quantity(amount).nano
            <= parse_quantity(device.capacity[name].value).nano
            for name, amount in asked.items()
        )

    async def _write(self, claim: Claim, allocation: Allocation) -> None:
        decided_s = _now_s()
        try:
            await asyncio.sleep(0.01 * 800 ** self.draw.random())  # up to 8 s in flight
            if _now_s() - decided_s < STALE_S:
                await self._commit(claim, allocation)
                await asyncio.sleep(5.0)  # mostly until its watch has the allocation
        except (ConflictError, NotFoundError):
            await asyncio.sleep(self.draw.uniform(0.5, 3.0))
        except DrayError:
            # The write may still arrive, and dray can't guarantee this invariant of kube-scheduler.
            await asyncio.sleep(_LATEST_S)
        finally:
            self._assumed.pop(claim.uid, None)
            self._changed = True

    async def _commit(self, claim: Claim, allocation: Allocation) -> None:
        metadata: dict[str, Any] = {
            "uid": claim.uid,
            "resourceVersion": str(claim.resource_version),
            "finalizers": [CLAIM_FINALIZER],
        }
        marked = await self.kube.patch(CLAIMS, claim.name, {"metadata": metadata}, claim.namespace)
        status = status_to(
            allocation,
            timestamp_unix_s=EPOCH_UNIX_S + _now_s(),
            reserved_for=[Consumer(claim.pod_name, claim.pod_uid)],
        )
        fence = {"uid": claim.uid, "resourceVersion": marked["metadata"]["resourceVersion"]}
        patch = {"metadata": fence, "status": status}
        await self.kube.patch(CLAIMS, claim.name, patch, claim.namespace, subresource="status")


def _is_due(pod: Pod) -> bool:
    waits = pod.phase == "Pending" and not pod.node and not pod.deleting
    return waits and pod.scheduler == DEFAULT_SCHEDULER and not pod.gated and not pod.other_gates


def _matches(device: Device, pool: str) -> bool:
    """Whether the device matches the generated selectors and has no taints."""
    return _is_offered(device) and device.attributes.get("pool_name") == pool


def _is_offered(device: Device) -> bool:
    return not any(taint.effect in _SCHEDULING_EFFECTS for taint in device.taints)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
