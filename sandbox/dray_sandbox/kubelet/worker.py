"""One pod on the node of a stand-in kubelet, from admission to deletion."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from typing import Any
from weakref import WeakValueDictionary

import structlog

from dray.api.errors import TemporaryError
from dray.kube.convert import time_from, time_to
from dray.kube.ports import CLAIMS, Kube, NotFoundError, Object
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray.runtime.units import parse_duration
from dray_sandbox.kubelet import statuses
from dray_sandbox.kubelet.admission import Rejection
from dray_sandbox.kubelet.cdi import resolve
from dray_sandbox.kubelet.claims import (
    ClaimInfo,
    ContainerNotCreatedError,
    NotStartedError,
    PluginDevice,
    Prepared,
    claim_info,
    claim_names,
    container_devices,
)
from dray_sandbox.kubelet.device_health import DeviceKey
from dray_sandbox.kubelet.plan import NodePlan
from dray_sandbox.kubelet.plugins import PluginRegistry
from dray_sandbox.kubelet.pod_object import (
    CDI_ANNOTATION,
    LONGEST_RETRY_S,
    SHORTEST_RETRY_S,
    PodObject,
)
from dray_sandbox.kubelet.timings import KubeletTimings

_EXIT_ANNOTATION = "sandbox.dray.dev/exit-after"
"""A duration, such as ``2s``, after which the pod succeeds."""
_HOLD_ANNOTATION = "sandbox.dray.dev/hold"
"""A pod with this annotation does not start; for tests."""


class ClaimInfoCache:
    """The claims that the node's pods use; the last pod of a claim unprepares it."""

    def __init__(self) -> None:
        self._pods: dict[str, set[str]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def locked(self, claims: Sequence[ClaimInfo]) -> AsyncIterator[None]:
        """Lock the claims: no other pod prepares or unprepares them meanwhile."""
        async with AsyncExitStack() as stack:
            for uid in sorted({claim.uid for claim in claims}):
                lock = self._locks.setdefault(uid, asyncio.Lock())
                await stack.enter_async_context(lock)
            yield

    def hold(self, claim_uid: str, pod_uid: str) -> None:
        """Record that the pod uses the claim."""
        self._pods.setdefault(claim_uid, set()).add(pod_uid)

    def others(self, claim_uid: str, pod_uid: str) -> bool:
        """Whether another pod uses the claim."""
        return bool(self._pods.get(claim_uid, set()) - {pod_uid})

    def release(self, claim_uid: str, pod_uid: str) -> None:
        """Record that the pod no longer uses the claim."""
        pods = self._pods.get(claim_uid, set())
        pods.discard(pod_uid)
        if not pods:
            self._pods.pop(claim_uid, None)


class PodWorker:
    """Starts and ends one pod."""

    def __init__(
        self,
        pod: PodObject,
        *,
        kube: Kube,
        plan: NodePlan,
        plugins: PluginRegistry,
        claim_infos: ClaimInfoCache,
        clock: Clock,
        timings: KubeletTimings,
        pod_ip: str,
        host_ip: str,
        admit: Callable[[Object], Awaitable[Rejection | None]],
        is_rebooted: bool = False,
    ) -> None:
        """``is_rebooted``: whether the node has lost the containers of pods that ran."""
        self.pod = pod
        self.done = False
        """Whether the pod uses no resources of the node any more."""
        self.admitted = self.pod.terminal or self.pod.started
        self.pod_ip = pod_ip
        self._kube = kube
        self._plan = plan
        self._plugins = plugins
        self._claim_infos = claim_infos
        self._clock = clock
        self._timings = timings
        self._host_ip = host_ip
        self._admit = admit
        self._lost_containers = is_rebooted and self.pod.started
        self._claims: list[ClaimInfo] = []
        self._prepared: Prepared = pod.recorded_devices()
        for claim in pod.recorded_claims():
            self._hold(claim)

    async def run(self) -> None:
        """Run the pod until it is deleted."""
        if not self.admitted and not self.pod.ending:
            await self._admit_or_reject()
        if not self.pod.terminal and not self.pod.started:
            await self._start_with_retries()
        if self._lost_containers:
            await self._start_containers_again()
        if not self.pod.terminal and not self.pod.ending:
            await self._wait_for_the_end()
        await self._unprepare()
        await self._delete_when_ending()

    @property
    def prepared(self) -> Prepared:
        """The devices of the pod's claims; empty until they are prepared."""
        return self._prepared

    def on_health(self, devices: Sequence[DeviceKey]) -> None:
        """Show the health of devices that changed, if the pod has one of them."""
        own = {device.key for held in self._prepared.values() for device in held}
        if not own.isdisjoint(devices):
            self.pod.changed.set()

    async def _admit_or_reject(self) -> None:
        rejection = await self._admit(self.pod.obj)
        self.admitted = rejection is None  # before the next pod's admission, which counts this pod
        if rejection is not None:
            self.pod.log.warning("pod rejected", reason=rejection.reason)
            await self.pod.warn(rejection.reason, rejection.message)
            await self.pod.set_status(
                statuses.rejected(self.pod.obj, rejection.reason, rejection.message, self._now())
            )

    async def _start_with_retries(self) -> None:
        if self.pod.ending or not self.admitted:
            return
        await self.pod.set_status(statuses.creating(self.pod.obj, self._host_ip, self._now()))
        while not self.pod.ending:
            self.pod.changed.clear()
            try:
                await self._start()
            except ContainerNotCreatedError as error:
                await self.pod.warn_once("Failed", f"Error: {error}")
                await self.pod.wait_for_change(self._timings.container_delay_s())
            except (NotStartedError, NotFoundError, TemporaryError) as error:
                message = f"Failed to prepare dynamic resources: {error}"
                await self.pod.warn_once("FailedPrepareDynamicResources", message)
                await self.pod.wait_for_change(self._timings.resync_delay_s())
            else:
                return

    async def _start(self) -> None:
        if self.pod.annotation(_HOLD_ANNOTATION) is not None:
            raise NotStartedError(f"held by annotation {_HOLD_ANNOTATION}")
        claims = await self._usable_claims()
        async with self._claim_infos.locked(list(claims.values())):
            for claim in claims.values():
                self._hold(claim)
            self._prepared = await self._prepare(claims)
        containers = {
            name: {"cdi": list(cdi_ids), "env": resolve(cdi_ids, self._plan.cdi_dir)}
            for name, cdi_ids in container_devices(self.pod.obj, self._prepared).items()
        }
        if self._claims:
            record = _record(self._claims, self._prepared, containers)
            await self.pod.annotate(CDI_ANNOTATION, record)
        await self.pod.set_status(self._running())
        self.pod.log.info("pod running", claims=len(self._claims))

    async def _start_containers_again(self) -> None:
        """After a reboot. The kubelet knows that the claims are prepared and calls no driver."""
        restarts = statuses.restarts_of(self.pod.obj) + 1
        while not self.pod.ending:
            self.pod.changed.clear()
            try:
                for ids in container_devices(self.pod.obj, self._prepared).values():
                    resolve(ids, self._plan.cdi_dir)
            except ContainerNotCreatedError as error:
                await self.pod.warn_once("Failed", f"Error: {error}")
                await self.pod.wait_for_change(self._timings.container_delay_s())
            else:
                await self.pod.set_status(self._running(restarts))
                return

    def _running(self, restarts: int = 0) -> dict[str, Any]:
        status = statuses.running(self.pod.obj, self.pod_ip, self._now(), restarts)
        return statuses.with_device_health(
            status, self.pod.obj, self._prepared, lambda device: self._plugins.health(device)[0]
        )

    async def _usable_claims(self) -> dict[str, ClaimInfo]:
        """The pod's checked claims, by entry of ``spec.resourceClaims``."""
        claims: dict[str, ClaimInfo] = {}
        for reference, (name, must_own) in claim_names(self.pod.obj).items():
            obj = await self._kube.get(CLAIMS, name, self.pod.namespace)
            claims[reference] = claim_info(self.pod.obj, obj, must_own)
            for driver in claims[reference].drivers:
                self._plugins.plugin(driver)
        return claims

    async def _prepare(self, claims: dict[str, ClaimInfo]) -> Prepared:
        devices: dict[str, list[PluginDevice]] = {}
        for driver in dict.fromkeys(one for claim in claims.values() for one in claim.drivers):
            batch = [claim for claim in claims.values() if driver in claim.drivers]
            answers = await self._plugins.plugin(driver).prepare(_distinct(batch))
            for uid, prepared in answers.items():
                devices.setdefault(uid, []).extend(prepared)
        return {reference: devices.get(claim.uid, []) for reference, claim in claims.items()}

    async def _wait_for_the_end(self) -> None:
        after_s = _exit_after_s(self.pod.annotation(_EXIT_ANNOTATION))
        ends_s = time_from((self.pod.obj.get("status") or {}).get("startTime")) + (after_s or 0.0)
        while not self.pod.ending:
            self.pod.changed.clear()
            await self._show_health()
            if after_s is None:
                await self.pod.changed.wait()
                continue
            if (left_s := ends_s - self._clock.now_unix_s()) <= 0:
                await self.pod.set_status(statuses.succeeded(self.pod.obj, self._now()))
                return
            await self.pod.wait_for_change(left_s)

    async def _show_health(self) -> None:
        """Write the health of the pod's devices if the status differs."""
        known = (self.pod.obj.get("status") or {}).get("containerStatuses") or ()
        now = self._running()["containerStatuses"]
        differs = [_health_in(one) for one in known] != [_health_in(one) for one in now]
        if differs and len(known) == len(now):
            both = zip(known, now, strict=True)
            shown = [one | {"allocatedResourcesStatus": _health_in(new)} for one, new in both]
            await self.pod.set_status({"containerStatuses": shown})

    async def _unprepare(self) -> None:
        """Unprepare the claims that no other pod uses, with retries; then the pod is done."""
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        while self._claims:
            try:
                async with self._claim_infos.locked(self._claims):
                    await self._unprepare_unused()
            except NotStartedError as error:
                await self.pod.warn_once("FailedPrepareDynamicResources", str(error))
                await asyncio.sleep(backoff.next_s())
        self.done = True

    async def _unprepare_unused(self) -> None:
        free = [one for one in self._claims if not self._claim_infos.others(one.uid, self.pod.uid)]
        for driver in dict.fromkeys(one for claim in free for one in claim.drivers):
            batch = [claim for claim in free if driver in claim.drivers]
            await self._plugins.plugin(driver).unprepare(_distinct(batch))
        for claim in self._claims:
            self._claim_infos.release(claim.uid, self.pod.uid)
        self._claims = []

    async def _delete_when_ending(self) -> None:
        """Wait for the deletion of an ended pod, then confirm it."""
        while not self.pod.ending:
            self.pod.changed.clear()
            await self.pod.changed.wait()
        await self.pod.delete()

    def _hold(self, claim: ClaimInfo) -> None:
        if claim.uid not in {one.uid for one in self._claims}:
            self._claims.append(claim)
            self._claim_infos.hold(claim.uid, self.pod.uid)

    def _now(self) -> str:
        return time_to(self._clock.now_unix_s())


def _exit_after_s(text: str | None) -> float | None:
    try:
        return parse_duration(text) if text else None
    except ValueError as error:
        structlog.get_logger().error(
            "annotation ignored", annotation=_EXIT_ANNOTATION, error=str(error)
        )
        return None


def _distinct(claims: Sequence[ClaimInfo]) -> list[ClaimInfo]:
    return list({claim.uid: claim for claim in claims}.values())


def _health_in(status: dict[str, Any]) -> list[Any]:
    return status.get("allocatedResourcesStatus") or []


def _record(
    claims: Sequence[ClaimInfo], prepared: Prepared, containers: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The content of CDI_ANNOTATION."""
    return {
        "claims": [asdict(claim) for claim in claims],
        "devices": {name: [asdict(one) for one in devices] for name, devices in prepared.items()},
        "cdi": {name: one["cdi"] for name, one in containers.items()},
        "env": {name: one["env"] for name, one in containers.items()},
    }
