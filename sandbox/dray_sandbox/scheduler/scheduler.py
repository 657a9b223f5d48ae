"""Watches pods, nodes and claims, and carries out the rules' decisions."""

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
    ConflictError,
    Kube,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)
from dray_sandbox.events import event_object
from dray_sandbox.informer import changes
from dray_sandbox.scheduler.cache import CachedClaim, SchedulerCache, cached_claim
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
_POLL_INTERVAL_S: Final = 5.0
"""The period after which the devices of a pod that is being bound are checked again."""


class Scheduler:
    """The scheduler of all pods with the scheduler name ``name``."""

    def __init__(
        self,
        kube: Kube,
        name: str = COMPONENT,
        *,
        binding_timeout_s: float = TIMEOUT_S,
        poll_interval_s: float = _POLL_INTERVAL_S,
    ) -> None:
        self._kube = kube
        self._name = name
        self._binding_timeout_s = binding_timeout_s
        self._poll_interval_s = poll_interval_s
        self._cluster = SchedulerCache()
        self._queue = Queue()
        self._wake = asyncio.Event()
        self._synced: set[str] = set()
        self._last_condition: dict[str, tuple[str, str]] = {}
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(NODES, self._update_node, self._remove_node))
            group.create_task(self._watch(CLAIMS, self._update_claim, self._remove_claim))
            group.create_task(self._watch(PODS, self._update_pod, self._remove_pod))
            group.create_task(self._schedule(group))

    async def _watch(
        self,
        resource: Resource,
        update: Callable[[Object], None],
        remove: Callable[[Object], None],
    ) -> None:
        async for batch in changes(self._kube, resource):
            for obj, deleted in batch:
                (remove if deleted else update)(obj)
            self._synced.add(resource.plural)
            self._wake.set()

    def _update_node(self, obj: Object) -> None:
        if self._cluster.update_node(obj):
            self._queue.activate_all()

    def _remove_node(self, obj: Object) -> None:
        self._cluster.remove_node(obj["metadata"]["name"])

    def _update_claim(self, obj: Object) -> None:
        claim = self._cluster.update_claim(obj)
        if claim is not None:
            self._activate_users(claim)

    def _remove_claim(self, obj: Object) -> None:
        self._cluster.remove_claim(obj)

    def _activate_users(self, claim: CachedClaim) -> None:
        for pod in self._cluster.users_of(claim):
            if is_candidate(pod, self._cluster, self._name):
                self._queue.activate(pod.uid)

    def _update_pod(self, obj: Object) -> None:
        before, pod = self._cluster.update_pod(obj)
        if not is_candidate(pod, self._cluster, self._name):
            self._queue.remove(pod.uid)
        elif before is None or _placement(before) != _placement(pod):
            self._queue.activate(pod.uid)
        if before is not None and before.node and before.phase != pod.phase:
            self._queue.activate_all()

    def _remove_pod(self, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        self._cluster.remove_pod(uid)
        self._queue.remove(uid)
        self._last_condition.pop(uid, None)
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
                    await self._schedule_pod(pod, group)

    async def _schedule_pod(self, pod: Pod, group: asyncio.TaskGroup) -> None:
        now_unix_s, timeout_s = time.time(), self._binding_timeout_s
        verdict = decide(pod, self._cluster, now_unix_s=now_unix_s, timeout_s=timeout_s)
        match verdict:
            case ScheduleResult(node, reserve):
                self._queue.remove(pod.uid)
                self._cluster.assume(pod, node)
                group.create_task(self._bind(pod, node, reserve))
            case Unschedulable(message, clear):
                self._queue.record_attempt(pod.uid, time.monotonic())
                if clear is not None:
                    await self._log_failure(pod, self._clear(clear))
                await self._log_failure(pod, self._write_condition(pod, "Unschedulable", message))
            case FilterFailure(message):
                self._queue.record_attempt(pod.uid, time.monotonic())
                self._queue.activate(pod.uid)
                await self._log_failure(pod, self._write_condition(pod, "SchedulerError", message))
            case NotQueued():
                self._queue.record_gated(pod.uid, time.monotonic())

    async def _bind(self, pod: Pod, node: str, reserve: tuple[CachedClaim, ...]) -> None:
        try:
            for claim in reserve:
                await self._reserve(claim, pod)
            if any(claim.readiness.has_conditions for claim in self._cluster.claims_of(pod)):
                await self._wait_until_ready(pod, node)
            await self._kube.bind(pod.name, pod.namespace, uid=pod.uid, node=node)
        except DrayError as error:
            for claim in self._cluster.claims_of(pod):
                await self._log_failure(pod, self._unreserve(claim, pod))
            self._cluster.forget_assumed(pod.uid)
            self._queue.record_attempt(pod.uid, time.monotonic())
            self._queue.activate(pod.uid)
            self._wake.set()
            await self._log_failure(pod, self._write_condition(pod, "SchedulerError", str(error)))
            return
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        await self._log_failure(pod, self._event(pod, "Normal", "Scheduled", message))

    async def _reserve(self, claim: CachedClaim, pod: Pod) -> None:
        """Add the pod to ``reservedFor``; retry with the newest claim after a conflict."""
        consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        while True:
            current = await self._kube.get(CLAIMS, claim.name, claim.namespace)
            seen = cached_claim(current)
            if seen.uid != claim.uid or seen.deleting or not seen.allocated:
                raise ConflictError(
                    f"claim {claim.namespace}/{claim.name} was deleted, replaced or deallocated "
                    "while the pod was being bound: the pod is retried"
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

    async def _wait_until_ready(self, pod: Pod, node: str) -> None:
        """Wait for the binding conditions of the pod's devices. Raises BindingError."""
        message = f"waiting for binding conditions for device on node {node}"
        await self._log_failure(
            pod, self._event(pod, "Normal", "BindingConditionsPending", message)
        )
        timeout_s = self._binding_timeout_s
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while pod.uid in self._cluster.pods:
                    claims = self._cluster.claims_of(pod)
                    readiness = [(claim.name, claim.readiness) for claim in claims]
                    if len(readiness) == len(pod.claims) and are_ready(
                        readiness, time.time(), timeout_s
                    ):
                        return
                    await asyncio.sleep(self._poll_interval_s)
                raise BindingError(f"pod {pod.namespace}/{pod.name} was deleted")
        raise BindingError("device binding timeout: context deadline exceeded")

    async def _unreserve(self, claim: CachedClaim, pod: Pod) -> None:
        """Remove the reservation of a pod whose binding failed."""
        current = await self._kube.get(CLAIMS, claim.name, claim.namespace)
        seen = cached_claim(current)
        if seen.uid != claim.uid or pod.uid not in seen.reserved_for:
            return
        users = current["status"]["reservedFor"]
        current["status"]["reservedFor"] = [one for one in users if one["uid"] != pod.uid]
        await self._kube.update(CLAIMS, current, subresource="status")

    async def _clear(self, claim: CachedClaim) -> None:
        """PostFilter's deallocation, unless the claim has changed since the decision."""
        current = await self._kube.get(CLAIMS, claim.name, claim.namespace)
        if current["metadata"]["resourceVersion"] != claim.resource_version:
            return
        for key in ("allocation", "reservedFor", "devices"):
            current["status"].pop(key, None)
        await self._kube.update(CLAIMS, current, subresource="status")
        self._log.info("deallocated a claim", claim=claim.name, namespace=claim.namespace)

    async def _write_condition(self, pod: Pod, reason: str, message: str) -> None:
        """Write PodScheduled=False if its reason or message changed."""
        if self._last_condition.get(pod.uid) == (reason, message):
            return
        self._last_condition[pod.uid] = (reason, message)
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
        event = event_object(
            "Pod", pod.namespace, pod.name, pod.uid, kind, reason, message, COMPONENT
        )
        await self._kube.create(EVENTS, event, pod.namespace)

    async def _log_failure(self, pod: Pod, call: Coroutine[Any, Any, None]) -> None:
        """Log failures of a call: the pod is retried anyway."""
        try:
            await call
        except (NotFoundError, ConflictError, RefusedError) as error:
            self._log.info("not written", pod=pod.name, error=str(error))
        except DrayError as error:
            self._queue.activate(pod.uid)
            self._log.warning("the API server did not answer", pod=pod.name, error=str(error))


def _placement(pod: Pod) -> tuple[object, ...]:
    """The parts of a pod that scheduling depends on."""
    return (pod.gated, pod.other_gates, pod.needs, pod.claims, pod.priority)
