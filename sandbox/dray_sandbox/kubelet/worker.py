"""One pod on a played node, from admission to the end."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from dray.domain.errors import DrayError, TemporaryError
from dray.kube.convert import time_from, time_to
from dray.kube.ports import CLAIMS, EVENTS, PODS, Kube, NotFoundError, Object
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray.runtime.units import parse_duration
from dray_sandbox.events import event_of
from dray_sandbox.kubelet import statuses
from dray_sandbox.kubelet.admission import Rejection
from dray_sandbox.kubelet.cdi import resolve
from dray_sandbox.kubelet.claims import (
    HeldClaim,
    NotStartedError,
    claim_names,
    container_devices,
    held_claim,
)
from dray_sandbox.kubelet.plan import NodePlan
from dray_sandbox.kubelet.plugins import PluginFinder, PreparedDevice

CDI_ANNOTATION = "sandbox.dray.dev/cdi"
"""What the pod's containers got, as JSON: claims, and CDI ids and environment by container."""
EXIT_ANNOTATION = "sandbox.dray.dev/exit-after"
"""A duration such as ``2s`` after which the pod succeeds."""
HOLD_ANNOTATION = "sandbox.dray.dev/hold"
"""While it is there the pod is not started, for tests that need it between two steps."""
SHORTEST_RETRY_S = 0.1
LONGEST_RETRY_S = 5.0


class Holders:
    """Which pods of the node use which claim: the last one to go unprepares it."""

    def __init__(self) -> None:
        self._pods: dict[str, set[str]] = {}

    def hold(self, claim_uid: str, pod_uid: str) -> None:
        """The pod uses the claim from now on."""
        self._pods.setdefault(claim_uid, set()).add(pod_uid)

    def others(self, claim_uid: str, pod_uid: str) -> bool:
        """Whether another pod uses the claim."""
        return bool(self._pods.get(claim_uid, set()) - {pod_uid})

    def release(self, claim_uid: str, pod_uid: str) -> None:
        """The pod no longer uses the claim."""
        pods = self._pods.get(claim_uid, set())
        pods.discard(pod_uid)
        if not pods:
            self._pods.pop(claim_uid, None)


class PodWorker:
    """Brings one pod up and down. ``pod`` is replaced as the watch tells; ``notify`` wakes."""

    def __init__(
        self,
        pod: Object,
        *,
        kube: Kube,
        plan: NodePlan,
        plugins: PluginFinder,
        holders: Holders,
        clock: Clock,
        pod_ip: str,
        host_ip: str,
        admit: Callable[[Object], Rejection | None],
    ) -> None:
        self.pod = pod
        self.gone = False
        """The object vanished from the API."""
        self.done = False
        """Nothing of the node is used any more; the pod counts for nothing."""
        self.admitted = statuses.is_terminal(pod) or _was_started(pod)
        self.pod_ip = pod_ip
        self._kube = kube
        self._plan = plan
        self._plugins = plugins
        self._holders = holders
        self._clock = clock
        self._host_ip = host_ip
        self._admit = admit
        self._woken = asyncio.Event()
        self._said = ""
        self._claims: list[HeldClaim] = []
        for claim in recorded_claims(pod):
            self._hold(claim)
        self._log = structlog.get_logger().bind(
            node=plan.name, pod=f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        )

    @property
    def uid(self) -> str:
        """Of the pod."""
        return str(self.pod["metadata"]["uid"])

    def update(self, pod: Object, *, gone: bool = False) -> None:
        """The watch told a state; it may be older than the answer to our last write."""
        if _newer(pod, self.pod):
            self.pod = pod
        self.gone = self.gone or gone
        self._woken.set()

    async def run(self) -> None:
        """The pod's life; ends when it has left the node."""
        if not self.admitted and not self._ending():
            await self._admit_or_reject()
        if not statuses.is_terminal(self.pod) and not _was_started(self.pod):
            await self._start_until_it_works()
        if not statuses.is_terminal(self.pod) and not self._ending():
            await self._run_until_it_ends()
        await self._give_back()
        await self._leave()

    def _ending(self) -> bool:
        return self.gone or bool(self.pod["metadata"].get("deletionTimestamp"))

    async def _admit_or_reject(self) -> None:
        rejection = self._admit(self.pod)
        self.admitted = rejection is None
        if rejection is not None:
            self._log.warning("pod rejected", reason=rejection.reason)
            await self._event("Warning", rejection.reason, rejection.message)
            await self._status(
                statuses.rejected(self.pod, rejection.reason, rejection.message, self._now())
            )

    async def _start_until_it_works(self) -> None:
        if self._ending() or not self.admitted:
            return
        await self._status(statuses.creating(self.pod, self._host_ip, self._now()))
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        while not self._ending():
            self._woken.clear()
            try:
                await self._start()
            except (NotStartedError, NotFoundError, TemporaryError) as error:
                await self._complain(str(error))
                await self._wait(backoff.next_s())
            else:
                return

    async def _start(self) -> None:
        if HOLD_ANNOTATION in (self.pod["metadata"].get("annotations") or {}):
            raise NotStartedError(f"held by annotation {HOLD_ANNOTATION}")
        prepared = await self._prepare(await self._usable_claims())
        ids = container_devices(self.pod, prepared)
        containers = {
            name: {"cdi": list(cdi_ids), "env": resolve(cdi_ids, self._plan.cdi_dir)}
            for name, cdi_ids in ids.items()
        }
        if self._claims:
            await self._annotate({"claims": [_to(one) for one in self._claims], **_by(containers)})
        await self._status(statuses.running(self.pod, self.pod_ip, self._now()))
        self._log.info("pod running", claims=len(self._claims))

    async def _usable_claims(self) -> dict[str, HeldClaim]:
        """The pod's claims by the pod's names for them, checked as the kubelet checks them."""
        claims: dict[str, HeldClaim] = {}
        for reference, (name, must_own) in claim_names(self.pod).items():
            obj = await self._kube.get(CLAIMS, name, self.pod["metadata"]["namespace"])
            claims[reference] = held_claim(self.pod, obj, must_own)
            for driver in claims[reference].drivers:
                self._plugins.plugin(driver)
        for claim in claims.values():
            self._hold(claim)
        return claims

    async def _prepare(
        self, claims: dict[str, HeldClaim]
    ) -> dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]:
        """Requests and CDI ids of every device, by the pod's names for its claims."""
        devices: dict[str, list[PreparedDevice]] = {}
        for driver in dict.fromkeys(one for claim in claims.values() for one in claim.drivers):
            batch = [claim for claim in claims.values() if driver in claim.drivers]
            answers = await self._plugins.plugin(driver).prepare(_once(batch))
            for uid, prepared in answers.items():
                devices.setdefault(uid, []).extend(prepared)
        return {
            reference: [(one.requests, one.cdi_ids) for one in devices.get(claim.uid, [])]
            for reference, claim in claims.items()
        }

    async def _run_until_it_ends(self) -> None:
        after_s = _exit_after_s(self.pod)
        ends_s = time_from((self.pod.get("status") or {}).get("startTime")) + (after_s or 0.0)
        while not self._ending():
            self._woken.clear()
            if after_s is None:
                await self._woken.wait()
                continue
            if (left_s := ends_s - self._clock.now_unix_s()) <= 0:
                await self._status(statuses.succeeded(self.pod, self._now()))
                return
            await self._wait(left_s)

    async def _give_back(self) -> None:
        """Unprepare what no other pod uses, again and again: the node is not free before."""
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        while self._claims:
            free = [one for one in self._claims if not self._holders.others(one.uid, self.uid)]
            try:
                for driver in dict.fromkeys(one for claim in free for one in claim.drivers):
                    batch = [claim for claim in free if driver in claim.drivers]
                    await self._plugins.plugin(driver).unprepare(_once(batch))
            except NotStartedError as error:
                await self._complain(str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            for claim in self._claims:
                self._holders.release(claim.uid, self.uid)
            self._claims = []
        self.done = True

    async def _leave(self) -> None:
        """Wait for the deletion of an ended pod, then confirm it with grace 0."""
        while not self._ending():
            self._woken.clear()
            await self._woken.wait()
        metadata = self.pod["metadata"]
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        while not self.gone:
            try:
                await self._kube.delete(
                    PODS, metadata["name"], metadata["namespace"], uid=self.uid, grace_period_s=0
                )
            except TemporaryError as error:
                self._log.info("pod not deleted yet", error=str(error))
                await self._wait(backoff.next_s())
            else:
                return

    def _hold(self, claim: HeldClaim) -> None:
        if claim.uid not in {one.uid for one in self._claims}:
            self._claims.append(claim)
            self._holders.hold(claim.uid, self.uid)

    async def _annotate(self, content: dict[str, Any]) -> None:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        await self._patch({"metadata": {"annotations": {CDI_ANNOTATION: text}}}, "")

    async def _status(self, status: dict[str, Any]) -> None:
        """Write a status, trying until the API takes it; a pod that vanished needs none."""
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        while not self.gone:
            try:
                await self._patch({"status": status}, "status")
            except NotFoundError:
                self.gone = True
                return
            except TemporaryError as error:
                self._log.info("status not written yet", error=str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def _patch(self, patch: dict[str, Any], subresource: str) -> None:
        metadata = self.pod["metadata"]
        fenced = {"metadata": {"uid": self.uid} | patch.get("metadata", {})}
        answer = await self._kube.patch(
            PODS,
            metadata["name"],
            patch | fenced,
            metadata["namespace"],
            subresource=subresource,
        )
        if _newer(answer, self.pod):
            self.pod = answer

    async def _complain(self, message: str) -> None:
        """Say why the pod does not start, each reason once in a row."""
        if message != self._said:
            self._said = message
            self._log.info("pod waits", why=message)
            await self._event(
                "Warning",
                "FailedPrepareDynamicResources",
                f"Failed to prepare dynamic resources: {message}",
            )

    async def _event(self, severity: str, reason: str, message: str) -> None:
        metadata = self.pod["metadata"]
        event = event_of(
            "Pod",
            metadata["namespace"],
            metadata["name"],
            self.uid,
            severity,
            reason,
            message[:1024],
            "kubelet",
        )
        try:
            await self._kube.create(EVENTS, event, metadata["namespace"])
        except DrayError as error:
            self._log.info("event not written", error=str(error))

    async def _wait(self, longest_s: float) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self._woken.wait()
        except TimeoutError:
            return

    def _now(self) -> str:
        return time_to(self._clock.now_unix_s())


def recorded_claims(pod: Object) -> list[HeldClaim]:
    """The claims that an earlier stand-in prepared for the pod."""
    text = (pod["metadata"].get("annotations") or {}).get(CDI_ANNOTATION)
    return [
        HeldClaim(one["uid"], one["namespace"], one["name"], tuple(one["drivers"]))
        for one in (json.loads(text)["claims"] if text else ())
    ]


def _was_started(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _exit_after_s(pod: Object) -> float | None:
    text = (pod["metadata"].get("annotations") or {}).get(EXIT_ANNOTATION)
    try:
        return parse_duration(text) if text else None
    except ValueError as error:
        structlog.get_logger().error("annotation ignored", annotation=EXIT_ANNOTATION, error=error)
        return None


def _once(claims: Sequence[HeldClaim]) -> list[HeldClaim]:
    return list({claim.uid: claim for claim in claims}.values())


def _to(claim: HeldClaim) -> dict[str, Any]:
    return {
        "uid": claim.uid,
        "namespace": claim.namespace,
        "name": claim.name,
        "drivers": list(claim.drivers),
    }


def _by(containers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "cdi": {name: one["cdi"] for name, one in containers.items()},
        "env": {name: one["env"] for name, one in containers.items()},
    }


def _newer(one: Object, other: Object) -> bool:
    return int(one["metadata"]["resourceVersion"]) >= int(other["metadata"]["resourceVersion"])
