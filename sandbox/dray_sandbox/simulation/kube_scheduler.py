"""kube-scheduler's other half in the simulation: it allocates devices that carry no taint.

Like the real one it decides by what its watches have shown, first fit, and writes later, fenced by
the claim's revision alone: nobody checks whether the device has room by then.
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
from dray.kube.ports import CLAIMS, PODS, SLICES, Changed, Deleted, Kube, Listed, Object, Resource
from dray_sandbox.simulation.loop import EPOCH_UNIX_S

STALE_S = 60.0
"""A decision that old is given up, as a request that never came through is."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_LOOKS_EVERY_S = 0.2


@dataclass(slots=True)
class DeviceAllocator:
    """One life; what it has decided and not written is lost with it."""

    kube: Kube
    draw: random.Random
    _seen: dict[Resource, dict[str, Object]] = field(default_factory=dict)
    _assumed: dict[str, Allocation] = field(default_factory=dict)
    """By claim, until the watch shows it or writing has failed."""
    _offered: list[ResourceSlice] = field(default_factory=list)
    """Slices with devices that no taint keeps it from."""
    _news: bool = True

    async def run(self) -> None:
        """Allocate until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in (SLICES, CLAIMS, PODS):
                group.create_task(self._watch(resource))
            while True:
                await asyncio.sleep(_LOOKS_EVERY_S)
                if not self._news or len(self._seen) < 3:
                    continue
                self._news = False
                for claim in list(self._wanted()) if self._offered else ():
                    if (allocation := self._fit(claim)) is not None:
                        self._assumed[claim.uid] = allocation
                        group.create_task(self._write(claim, allocation))

    async def _watch(self, resource: Resource) -> None:
        here: dict[str, Object] = {}
        async for event in self.kube.watch(resource):
            match event:
                case Listed(objects):
                    here.clear()
                    here.update((obj["metadata"]["uid"], obj) for obj in objects)
                case Changed(obj):
                    here[obj["metadata"]["uid"]] = obj
                case Deleted(obj):
                    here.pop(obj["metadata"]["uid"], None)
            self._seen[resource] = here
            self._news = True
            if resource == SLICES:
                parts = sorted(map(slice_from, here.values()), key=lambda part: part.name)
                self._offered = [part for part in parts if any(map(_is_offered, part.devices))]

    def _wanted(self) -> Iterator[Claim]:
        """Claims of pods that are kube-scheduler's to place."""
        pods = {uid: pod_from(obj) for uid, obj in self._seen[PODS].items()}
        for obj in self._seen[CLAIMS].values():
            claim = claim_from(obj)
            pod = pods.get(claim.pod_uid)
            free = claim.allocation is None and not claim.deleting
            if free and claim.uid not in self._assumed and pod is not None and _is_due(pod):
                yield claim

    def _fit(self, claim: Claim) -> Allocation | None:
        """The first devices on one node that suffice."""
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
        claims = {uid: claim_from(obj).allocation for uid, obj in self._seen[CLAIMS].items()}
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
                await asyncio.sleep(5.0)  # until the own watch shows it, mostly
        except DrayError:
            await asyncio.sleep(self.draw.uniform(0.5, 3.0))
        finally:
            self._assumed.pop(claim.uid, None)
            self._news = True

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
            reserved_for=[(claim.pod_name, claim.pod_uid)],
        )
        fence = {"uid": claim.uid, "resourceVersion": marked["metadata"]["resourceVersion"]}
        patch = {"metadata": fence, "status": status}
        await self.kube.patch(CLAIMS, claim.name, patch, claim.namespace, subresource="status")


def _is_due(pod: Pod) -> bool:
    waits = pod.phase == "Pending" and not pod.node and not pod.deleting
    return waits and pod.scheduler == DEFAULT_SCHEDULER and not pod.gated and not pod.other_gates


def _matches(device: Device, pool: str) -> bool:
    """What the generated selectors and the taints say in this simulation."""
    return _is_offered(device) and device.attributes.get("pool_name") == pool


def _is_offered(device: Device) -> bool:
    return not any(taint.effect in _KEEPS_AWAY for taint in device.taints)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
