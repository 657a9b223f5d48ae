"""Watches pods, nodes and claims, and carries out what the rules say."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import structlog

from dray.api.errors import DrayError
from dray.api.pods import Pod
from dray.kube.ports import (
    CLAIMS,
    EVENTS,
    NODES,
    PODS,
    Changed,
    ConflictError,
    Deleted,
    Kube,
    Listed,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)
from dray_sandbox.events import event_of
from dray_sandbox.scheduler.cluster import CachedClaim, SchedulerCache, claim_seen
from dray_sandbox.scheduler.queue import Queue
from dray_sandbox.scheduler.readiness import TIMEOUT_S, BindingError, are_ready
from dray_sandbox.scheduler.rules import (
    FilterFailure,
    NotQueued,
    ScheduleResult,
    Unschedulable,
    decide,
    is_candidate,
)

COMPONENT = "default-scheduler"
LOOK_EVERY_S: Final = 5.0
"""How often devices that are waited for are looked at."""


class Scheduler:
    """One scheduler for all pods of ``name``."""

    def __init__(
        self,
        kube: Kube,
        name: str = COMPONENT,
        *,
        binding_timeout_s: float = TIMEOUT_S,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._kube = kube
        self._name = name
        self._binding_timeout_s = binding_timeout_s
        self._look_every_s = look_every_s
        self._cluster = SchedulerCache()
        self._queue = Queue()
        self._wake = asyncio.Event()
        self._synced: set[str] = set()
        self._said: dict[str, tuple[str, str]] = {}
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(NODES, self._see_node, self._drop_node))
            group.create_task(self._watch(CLAIMS, self._see_claim, self._drop_claim))
            group.create_task(self._watch(PODS, self._see_pod, self._drop_pod))
            group.create_task(self._schedule(group))

    async def _watch(
        self,
        resource: Resource,
        see: Callable[[Object], None],
        drop: Callable[[Object], None],
    ) -> None:
        known: dict[str, Object] = {}
        async for event in self._kube.watch(resource):
            match event:
                case Listed(objects):
                    present = {obj["metadata"]["uid"] for obj in objects}
                    for uid in known.keys() - present:
                        drop(known.pop(uid))
                    for obj in objects:
                        known[obj["metadata"]["uid"]] = obj
                        see(obj)
                    self._synced.add(resource.plural)
                case Changed(obj):
                    known[obj["metadata"]["uid"]] = obj
                    see(obj)
                case Deleted(obj):
                    known.pop(obj["metadata"]["uid"], None)
                    drop(obj)
            self._wake.set()

    def _see_node(self, obj: Object) -> None:
        if self._cluster.see_node(obj):
            self._queue.activate_all()

    def _drop_node(self, obj: Object) -> None:
        self._cluster.forget_node(obj["metadata"]["name"])

    def _see_claim(self, obj: Object) -> None:
        claim = self._cluster.see_claim(obj)
        if claim is not None:
            self._activate_users(claim)

    def _drop_claim(self, obj: Object) -> None:
        self._cluster.forget_claim(obj)

    def _activate_users(self, claim: CachedClaim) -> None:
        for pod in self._cluster.users_of(claim):
            if is_candidate(pod, self._cluster, self._name):
                self._queue.activate(pod.uid)

    def _see_pod(self, obj: Object) -> None:
        before, pod = self._cluster.see_pod(obj)
        if not is_candidate(pod, self._cluster, self._name):
            self._queue.remove(pod.uid)
        elif before is None or _placement(before) != _placement(pod):
            self._queue.activate(pod.uid)
        if before is not None and before.node and before.phase != pod.phase:
            self._queue.activate_all()

    def _drop_pod(self, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        self._cluster.forget_pod(uid)
        self._queue.remove(uid)
        self._said.pop(uid, None)
        self._queue.activate_all()

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        while True:
            pause_s = self._queue.next_due_s(time.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            self._wake.clear()
            if self._synced >= {"nodes", "resourceclaims", "pods"}:
                for pod in self._queue.due(self._cluster.pods, time.monotonic()):
                    await self._try(pod, group)

    async def _try(self, pod: Pod, group: asyncio.TaskGroup) -> None:
        now_unix_s, timeout_s = time.time(), self._binding_timeout_s
        verdict = decide(pod, self._cluster, now_unix_s=now_unix_s, timeout_s=timeout_s)
        match verdict:
            case ScheduleResult(node, reserve):
                self._queue.remove(pod.uid)
                self._cluster.assume(pod, node)
                group.create_task(self._bind(pod, node, reserve))
            case Unschedulable(message, clear):
                self._queue.tried(pod.uid, time.monotonic())
                if clear is not None:
                    await self._guarded(pod, self._clear(clear))
                await self._guarded(pod, self._say(pod, "Unschedulable", message))
            case FilterFailure(message):
                self._queue.tried(pod.uid, time.monotonic())
                self._queue.activate(pod.uid)
                await self._guarded(pod, self._say(pod, "SchedulerError", message))
            case NotQueued():
                self._queue.parked(pod.uid, time.monotonic())

    async def _bind(self, pod: Pod, node: str, reserve: tuple[CachedClaim, ...]) -> None:
        try:
            for claim in reserve:
                await self._reserve(claim, pod)
            if any(claim.readiness.is_asked for claim in self._cluster.claims_of(pod)):
                await self._until_ready(pod, node)
            await self._kube.bind(pod.name, pod.namespace, uid=pod.uid, node=node)
        except DrayError as error:
            for claim in self._cluster.claims_of(pod):
                await self._guarded(pod, self._unreserve(claim, pod))
            self._cluster.withdraw(pod.uid)
            self._queue.tried(pod.uid, time.monotonic())
            self._queue.activate(pod.uid)
            self._wake.set()
            await self._guarded(pod, self._say(pod, "SchedulerError", str(error)))
            return
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        await self._guarded(pod, self._event(pod, "Normal", "Scheduled", message))

    async def _reserve(self, claim: CachedClaim, pod: Pod) -> None:
        """Add the pod to ``reservedFor``, again from the newest claim after a conflict."""
        consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        while True:
            current = await self._kube.get(CLAIMS, claim.name, claim.namespace)
            seen = claim_seen(current)
            if seen.uid != claim.uid or seen.deleting or not seen.allocated:
                raise ConflictError(
                    f"claim {claim.namespace}/{claim.name} was deleted, replaced or deallocated "
                    "while the pod was being bound: it is tried again"
                )
            if pod.uid in seen.reserved_for:
                return
            status = current["status"]
            status["reservedFor"] = [*(status.get("reservedFor") or ()), consumer]
            try:
                await self._kube.update(CLAIMS, current, subresource="status")
            except ConflictError:
                continue
            return

    async def _until_ready(self, pod: Pod, node: str) -> None:
        """Wait for the conditions of the pod's devices. Raises BindingError."""
        message = f"waiting for binding conditions for device on node {node}"
        await self._guarded(pod, self._event(pod, "Normal", "BindingConditionsPending", message))
        timeout_s = self._binding_timeout_s
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while pod.uid in self._cluster.pods:
                    claims = self._cluster.claims_of(pod)
                    told = [(claim.name, claim.readiness) for claim in claims]
                    if len(told) == len(pod.claims) and are_ready(told, time.time(), timeout_s):
                        return
                    await asyncio.sleep(self._look_every_s)
                raise BindingError(f"pod {pod.namespace}/{pod.name} was deleted")
        raise BindingError("device binding timeout: context deadline exceeded")

    async def _unreserve(self, claim: CachedClaim, pod: Pod) -> None:
        """Give back what was reserved for a pod that is not bound after all."""
        current = await self._kube.get(CLAIMS, claim.name, claim.namespace)
        seen = claim_seen(current)
        if seen.uid != claim.uid or pod.uid not in seen.reserved_for:
            return
        users = current["status"]["reservedFor"]
        current["status"]["reservedFor"] = [one for one in users if one["uid"] != pod.uid]
        await self._kube.update(CLAIMS, current, subresource="status")

    async def _clear(self, claim: CachedClaim) -> None:
        """PostFilter's deallocation, from the state the decision was made on."""
        current = await self._kube.get(CLAIMS, claim.name, claim.namespace)
        if current["metadata"]["resourceVersion"] != claim.resource_version:
            return
        for key in ("allocation", "reservedFor", "devices"):
            current["status"].pop(key, None)
        await self._kube.update(CLAIMS, current, subresource="status")
        self._log.info("deallocated a claim", claim=claim.name, namespace=claim.namespace)

    async def _say(self, pod: Pod, reason: str, message: str) -> None:
        """PodScheduled=False, written only when it says something new."""
        if self._said.get(pod.uid) == (reason, message):
            return
        self._said[pod.uid] = (reason, message)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        await self._kube.patch(
            PODS, pod.name, patch, pod.namespace, kind="strategic", subresource="status"
        )
        await self._event(pod, "Warning", "FailedScheduling", message)

    async def _event(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        event = event_of("Pod", pod.namespace, pod.name, pod.uid, kind, reason, message, COMPONENT)
        await self._kube.create(EVENTS, event, pod.namespace)

    async def _guarded(self, pod: Pod, call: Coroutine[Any, Any, None]) -> None:
        """What can fail without harm: the pod is tried again anyway."""
        try:
            await call
        except (NotFoundError, ConflictError, RefusedError) as error:
            self._log.info("not written", pod=pod.name, error=str(error))
        except DrayError as error:
            self._queue.activate(pod.uid)
            self._log.warning("the API server did not answer", pod=pod.name, error=str(error))


def _placement(pod: Pod) -> tuple[object, ...]:
    """What of a pod may change whether it can be placed."""
    return (pod.gated, pod.other_gates, pod.needs, pod.claims, pod.priority)
