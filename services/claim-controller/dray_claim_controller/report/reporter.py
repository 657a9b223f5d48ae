"""Writes BindRequests, events and the annotation, off the critical path.

There is one report per pod and subject; a newer one replaces one that was not written yet. ``scan``
finds reports that a restart has lost, because it compares objects.

While many pods are on their way to their nodes, reports of success are deferred for a while,
because each write would delay a pod (``ReportQueue``).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from dray.api.enforcement import guarantee
from dray.api.errors import DrayError, TemporaryError
from dray.api.names import ALLOCATED, CONDITIONS_PENDING, DERIVED_FROM_LABEL, OWNER_DRAY
from dray.api.pods import Pod, Policy
from dray.bus.ports import Bus, StreamMissingError
from dray.kube.convert import pod_from, policy_from
from dray.kube.node_problem import NODE_LOST, NODE_NOT_READY, node_problem
from dray.kube.pod_end import pod_end
from dray.kube.ports import BIND_REQUESTS, CLAIMS, NODES, POLICIES, Kube, KubeError, Object
from dray.messages.base import encode
from dray.messages.decisions import PodDecision, Waiting
from dray.messages.facts import PolicyObserved
from dray.reasons import in_words
from dray.runtime.clock import Clock
from dray.runtime.token_bucket import TokenBucket
from dray_claim_controller.cache.cached_objects import CachedPod, CachedResourceClaim, FactKey
from dray_claim_controller.cache.changes import Unread
from dray_claim_controller.execution.decisions.binding_conditions import NEVER_READY
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.decisions.next_step import NOT_WRITTEN, REFUSED
from dray_claim_controller.execution.progress import Progress
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers
from dray_claim_controller.report.decisions import event_messages
from dray_claim_controller.report.decisions.container_gpus import (
    asks_by_container,
    container_gpus,
    says,
)
from dray_claim_controller.report.decisions.device_health import DeviceHealth
from dray_claim_controller.report.queue import ReportQueue, Subject, Work
from dray_claim_controller.report.writes import ReportWrites

_AT_ONCE: Final = 250
"""Pods that are looked at in one step."""
_EVENTS: Final = 25
_EVENTS_PER_S: Final = 1 / 300
"""Events about one pod that warn, or say why it waits: as many as client-go's EventRecorder lets
through (``EventSourceObjectSpamFilter``). Repetitions of a reason are counted in one Event."""
_SETTLING_S: Final = 5.0
"""How long a pod may wait for the taint of a dedicated node before an event says so: dray gives
the taint as soon as it knows the node."""
_BIND_REQUEST: Final = "bindrequest"
_WAITS_EVENT: Final = "event-GPUWaiting"
_ON_THE_BUS = ("committed", "awaiting", "bound", "ungated", "failed")


class Reporter:
    """A queue of reports. One that can't be written delays no report of another pod."""

    def __init__(
        self,
        kube: Kube,
        bus: Bus,
        informers: Informers,
        clock: Clock,
        claims: ExecutionWrites,
        *,
        instance: str,
        patience_s: float = 30.0,
        too_large: Callable[[], Mapping[FactKey, str]] = dict,
    ) -> None:
        """``too_large``: why facts are not published as a whole."""
        self._bus = bus
        self._informers = informers
        self._cache = informers.cache
        self._clock = clock
        self._instance = instance
        self._writes = ReportWrites(kube, informers, clock, instance=instance)
        self._claims = claims
        self._queue = ReportQueue(clock, group_of=self._namespace_of, patience_s=patience_s)
        self._waiting: dict[str, None] = {}
        """Pods that are not on their way: not decided since they were reported as waiting, or their
        devices aren't ready."""
        self._undecided: dict[str, None] = {}
        """Pods that were reported as waiting for a decision, and got none since."""
        self._events: dict[str, TokenBucket] = {}
        """How many more events may be written about a pod."""
        self._by: dict[str, dict[str, Any]] = {}
        """``decided_by`` of pods that were not reported as assigned yet."""
        self._settling: dict[str, tuple[float, str]] = {}
        """Messages of pods whose reason may pass soon, and when they are due (monotonic)."""
        self._scheduled: dict[str, None] = {}
        """Pods about which the event ``Scheduled`` was queued."""
        self._assigning: dict[str, Work] = {}
        """Reports that pods are assigned, which are not written yet."""
        self._reported: dict[str, None] = {}
        """Pods that were reported as assigned."""
        self._on_their_way: dict[str, None] = {}
        """Pods without a node that don't wait."""
        self._health = DeviceHealth(informers.cache)
        self._unread: Unread[str] | None = None
        """Pods to look at; None before the first look."""
        self._changed_nodes: Unread[str] = Unread()
        self._troubled: dict[str, None] = {}
        """Nodes that were gone or not ready when they changed last."""
        self._too_large = too_large
        self._problems: dict[tuple[str, str], str] = {}
        """What was reported of objects that dray can't take as they are, by UID and reason."""

    @property
    def backlog(self) -> int:
        """Reports not written yet."""
        return len(self._queue)

    async def run(self, *, look_every_s: float = 0.2) -> None:
        """Write reports until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run(), name="report")
                group.create_task(self._reconcile_forever(look_every_s), name="report-look")
        finally:
            if self._unread is not None:
                self._cache.changed_pods.unsubscribe(self._unread)
                self._cache.changed_nodes.unsubscribe(self._changed_nodes)
            self._health.close()

    def waiting(self, waiting: Waiting) -> None:
        """The pod waits, for these reasons."""
        pod = self._pod(waiting.pod_uid)
        if pod is None or pod.node:
            return
        put = self._repeat if pod.uid in self._waiting else self._put
        self._waits(pod)
        self._undecided[pod.uid] = None
        put((pod.uid, _BIND_REQUEST), lambda: self._write_waiting(pod, waiting))
        message = "waiting for a GPU: " + in_words(waiting.reasons, 900).replace("\n", "; ")
        if any(map(event_messages.may_pass_soon, waiting.reasons)):
            due_s = self._clock.monotonic_s() + _SETTLING_S
            self._settling[pod.uid] = (self._settling.get(pod.uid, (due_s, ""))[0], message)
            return
        self._settling.pop(pod.uid, None)
        self._say_waiting(pod, message, put)

    async def _write_waiting(self, pod: Pod, waiting: Waiting) -> None:
        if self._still_waits(pod):
            spec = event_messages.undecided_spec(pod.uid)
            await self._writes.bind_request(pod, spec, event_messages.waiting_status(waiting))

    def _still_waits(self, pod: Pod) -> bool:
        """Whether a pod still waits for a decision: its turn to be reported may come late."""
        now = self._pod(pod.uid)
        return now is not None and not now.node and pod.uid in self._undecided

    def _waits_no_more(self, uid: str) -> None:
        self._undecided.pop(uid, None)
        for report in (_BIND_REQUEST, _WAITS_EVENT):
            self._queue.cancel_repeated((uid, report))

    def _say_waiting(self, pod: Pod, message: str, put: Callable[[Subject, Work], None]) -> None:
        """An event with the pod's reasons to wait, unless many events about it were written."""
        if self._may_write_event(pod.uid):
            put((pod.uid, _WAITS_EVENT), lambda: self._write_waiting_event(pod, message))

    def _may_write_event(self, uid: str) -> bool:
        """Whether one more event may be written about a pod."""
        now_s = self._clock.monotonic_s()
        if uid not in self._events:
            self._events[uid] = TokenBucket(_EVENTS, _EVENTS_PER_S, now_s=now_s)
        return self._events[uid].take(now_s)

    async def _write_waiting_event(self, pod: Pod, message: str) -> None:
        if self._still_waits(pod):
            about = event_messages.pod_reference(pod)
            await self._writes.event(about, "GPUWaiting", message, warning=True)

    def decided(self, execution: Execution) -> None:
        """The pod's decision is being carried out."""
        decision = execution.decision
        self._waiting.pop(decision.pod_uid, None)
        self._settling.pop(decision.pod_uid, None)
        self._waits_no_more(decision.pod_uid)
        pod = self._pod(decision.pod_uid)
        if pod is None or pod.node:
            return
        if not pod.deleting:
            self._on_their_way[pod.uid] = None
        by = event_messages.decided_by(
            execution.by, self._policy(pod), self._cache.pods[pod.uid].object, self._known(pod)
        )
        if by:
            self._by[pod.uid] = by
        spec, status = event_messages.decided_spec(decision), event_messages.binding_status(by)
        self._put_off(
            (pod.uid, _BIND_REQUEST), lambda: self._writes.bind_request(pod, spec, status)
        )

    def progress(self, progress: Progress) -> None:
        """An execution made a step, or came to its end."""
        decision = progress.execution.decision
        if progress.step in _ON_THE_BUS:
            key = (decision.pod_uid, f"step-{progress.step}-{progress.claim}")
            self._put(key, lambda: self._publish(progress))
        pod = self._pod(decision.pod_uid)
        if progress.step == "bound" and pod is not None:
            self._scheduled[pod.uid] = None
            self._put(
                (pod.uid, "event-Scheduled"), lambda: self._writes.scheduled(pod, decision.node)
            )
        if progress.step == "awaiting" and pod is not None:
            self._awaiting(pod, decision, progress.detail)
        elif progress.step == "failed" and pod is not None:
            spec = event_messages.decided_spec(decision)
            self._put(
                (pod.uid, _BIND_REQUEST),
                lambda: self._failed(pod, spec, progress.reason, progress.detail),
            )
            if progress.reason in NEVER_READY:
                message = event_messages.never_ready(decision.node, progress.detail)
                self._warn(pod, "BindingConditionsFailed", message)
            elif progress.reason in (REFUSED, NOT_WRITTEN):
                message = event_messages.not_carried_out(decision.node, progress.detail)
                self._warn(pod, "AllocationRefused", message)

    def report_wait(self, cached: CachedPod, message: str) -> None:
        """Nobody has decided about the pod yet, for this reason; empty: no reason is known."""
        pod = self._pod(cached.uid)
        if pod is None or pod.node:
            return
        spec, status = (
            event_messages.undecided_spec(pod.uid),
            event_messages.undecided_status(message),
        )
        self._put((pod.uid, _BIND_REQUEST), lambda: self._writes.bind_request(pod, spec, status))

    def warn(self, cached: CachedPod, reason: str, message: str) -> None:
        """A warning event about the pod."""
        if cached.pod is not None:
            self._warn(cached.pod, reason, message)

    def note(self, cached: CachedPod, reason: str, message: str) -> None:
        """A normal event about the pod."""
        if cached.pod is not None:
            self._warn(cached.pod, reason, message, warning=False)

    def warn_pool(self, pool: Object, reason: str, message: str) -> None:
        """A warning event about a GPUPool."""
        self._warn_about(event_messages.pool_reference(pool), reason, message)

    def _warn(self, pod: Pod, reason: str, message: str, *, warning: bool = True) -> None:
        if pod.uid not in self._cache.pods or self._may_write_event(pod.uid):
            self._warn_about(event_messages.pod_reference(pod), reason, message, warning=warning)

    def _warn_about(
        self, about: Object, reason: str, message: str, *, warning: bool = True
    ) -> None:
        self._put(
            (about["uid"], f"event-{reason}"),
            lambda: self._writes.event(about, reason, message, warning=warning),
        )

    def _awaiting(self, pod: Pod, decision: PodDecision, detail: str) -> None:
        self._waits(pod)
        spec, status = event_messages.decided_spec(decision), event_messages.awaiting_status(detail)
        self._put((pod.uid, _BIND_REQUEST), lambda: self._writes.bind_request(pod, spec, status))
        message = event_messages.awaiting_devices(decision.node, detail)
        self._warn(pod, CONDITIONS_PENDING, message, warning=False)

    def scan(self) -> None:
        """Find pods that run with devices of any allocator and were not reported so. Of the pods
        that changed, a limited number is looked at each time."""
        if self._unread is None:
            self._unread = Unread()
            self._unread.add(self._cache.pods)
            self._cache.changed_pods.subscribe(self._unread)
            self._cache.changed_nodes.subscribe(self._changed_nodes)
        self._look_at_changed(self._unread)
        for node in self._changed_nodes.take(_AT_ONCE):
            self._look_at_node(node)
        now_s = self._clock.monotonic_s()
        for uid in [uid for uid, (due_s, _) in self._settling.items() if due_s <= now_s]:
            _, message = self._settling.pop(uid)
            if (pod := self._pod(uid)) is not None and not pod.node:
                self._say_waiting(pod, message, self._put)
        for news in self._health.take():
            self._warn(news.pod, news.reason, news.message, warning=news.is_warning)
        self._queue.scan(len(self._on_their_way))
        self._report_problems()

    def _look_at_changed(self, pods: Unread[str]) -> None:
        for uid in pods.take(_AT_ONCE):
            self._look_at(uid)

    def _look_at(self, uid: str) -> None:
        cached = self._cache.pods.get(uid)
        pod = None if cached is None else cached.pod
        if pod is None or pod.node:
            self._waits_no_more(uid)
        if pod is None:
            self._by.pop(uid, None)
            self._events.pop(uid, None)
            for left in (self._assigning, self._settling, self._scheduled):
                left.pop(uid, None)
            for known in (self._waiting, self._reported, self._on_their_way):
                known.pop(uid, None)
            if cached is not None and cached.terminal and cached.object:
                self._put_end(pod_from(cached.object))
            return
        if pod.deleting or pod.node or uid in self._waiting or uid in self._reported:
            self._on_their_way.pop(uid, None)
        else:
            self._on_their_way[uid] = None
        if pod.node and not pod.deleting and uid not in self._reported:
            claims = [held for held in self._cache.claims_of(pod) if _is_drays(held)]
            if claims and all(held.claim.allocation is not None for held in claims):
                self._reported[uid] = None
                self._assigned(pod, claims)
        if cached is not None and cached.terminal:
            self._put_end(pod)
        elif pod.node and not pod.deleting:
            self._put_trouble(pod)

    def _look_at_node(self, name: str) -> None:
        """Update the BindRequests of a node's pods if the node has a problem, or has none any
        more."""
        has_problem = self._problem(name) is not None
        if not has_problem and name not in self._troubled:
            return
        for cached in self._cache.pods_on(name):
            if cached.pod is not None and not cached.terminal and not cached.pod.deleting:
                self._put_trouble(cached.pod)
        self._troubled.pop(name, None)
        if has_problem and name in self._cache.plain[NODES.plural]:
            self._troubled[name] = None

    def _problem(self, node: str) -> tuple[str, str] | None:
        return node_problem(self._cache.plain[NODES.plural].get(node))

    def _put_trouble(self, pod: Pod) -> None:
        """The same for one bound pod. If it is not reported as bound yet, that report includes the
        problem."""
        known = self._known(pod)
        if known is None or pod.uid in self._assigning:
            return
        before, problem = known.get("status") or {}, self._problem(pod.node)
        if problem is None and before.get("reason") not in (NODE_LOST, NODE_NOT_READY):
            return
        wanted = self._bound_status(pod)
        if any(before.get(name) != value for name, value in wanted.items()):
            spec = known["spec"]
            self._put_off((pod.uid, _BIND_REQUEST), lambda: self._settle(pod, spec))

    def _bound_status(self, pod: Pod) -> dict[str, Any]:
        problem = self._problem(pod.node)
        if problem is None:
            return event_messages.succeeded_status({})
        return event_messages.troubled_status(problem[0], pod.node, problem[1])

    def _put_end(self, pod: Pod) -> None:
        """Have the BindRequest of a pod that has ended say so."""
        known, end = self._known(pod), pod_end(self._cache.pods[pod.uid].object)
        if known is None or end is None:
            return
        before, spec = known.get("status") or {}, known["spec"]
        if all(
            before.get(name) == value for name, value in event_messages.ended_status(end).items()
        ):
            return
        work = self._assigning.get(pod.uid, lambda: self._settle(pod, spec))
        self._put_off((pod.uid, _BIND_REQUEST), work)

    async def _settle(self, pod: Pod, spec: dict[str, Any]) -> None:
        """Write the last phase: that the pod is bound, how it ended, or that its node is lost."""
        cached = self._cache.pods.get(pod.uid)
        end = None if cached is None else pod_end(cached.object)
        by = self._by.get(pod.uid, {})
        status = self._bound_status(pod) if end is None else event_messages.ended_status(end)
        await self._writes.bind_request(pod, spec, status | by)

    def _known(self, pod: Pod) -> Object | None:
        """The pod's BindRequest; None also if it belongs to an earlier pod of this name."""
        known = self._cache.plain[BIND_REQUESTS.plural].get(f"{pod.namespace}/{pod.name}")
        if known is None or (known.get("spec") or {}).get("podUID") != pod.uid:
            return None
        return known

    def _policy(self, pod: Pod) -> Policy | None:
        """The policy of the pod's pool; None if it has none, or it can't be read."""
        pool = self._cache.pool_selectors.pools().get(pod.pool)
        name = "" if pool is None else pool.template
        found = self._cache.plain[POLICIES.plural].get(name)
        unreadable = self._cache.is_unreadable(FactKey(PolicyObserved.NAME, name))
        return None if found is None or unreadable else policy_from(found)

    def _waits(self, pod: Pod) -> None:
        self._waiting[pod.uid] = None
        self._on_their_way.pop(pod.uid, None)

    def _report_problems(self) -> None:
        """Report objects that can't be read, and those whose facts are too large."""
        found = {(one.uid, "Unreadable"): one for one in self._cache.unreadable.values()}
        for key, why in self._too_large().items():
            if (problem := self._cache.problem_of(key, why)) is not None:
                found[problem.uid, "TooLargeForBus"] = problem
        for (uid, reason), problem in found.items():
            if self._problems.get((uid, reason)) != problem.why:
                self._warn_about(
                    event_messages.reference(problem), reason, event_messages.problem(problem)
                )
        self._problems = {known: one.why for known, one in found.items()}

    def _assigned(self, pod: Pod, claims: list[CachedResourceClaim]) -> None:
        for held in claims:
            if not _is_announced(held):
                uid = held.claim.uid
                self._put_off((uid, "announce"), lambda uid=uid: self._announce(uid))  # type: ignore[misc]
        known = self._known(pod)
        if known is None and not any(held.claim.decision for held in claims):
            # kube-scheduler allocated: there was no request of dray's to bind, so none is made.
            if not all(_is_announced(held) for held in claims):
                self._put((pod.uid, "event-allocated"), lambda: self._report_assigned(pod, claims))
            self._put_containers(pod, claims)
            return
        if known is not None and (known.get("status") or {}).get("phase") == "Succeeded":
            self._put_containers(pod, claims)
            return
        spec = event_messages.allocated_spec(pod, claims)
        self._assigning[pod.uid] = lambda: self._succeed(pod, spec, claims)
        self._put_off((pod.uid, _BIND_REQUEST), self._assigning[pod.uid])

    async def _succeed(
        self, pod: Pod, spec: dict[str, Any], claims: list[CachedResourceClaim]
    ) -> None:
        # The phase is written last: it shows that everything was reported.
        await self._write_containers(pod, claims)
        if pod.binder == OWNER_DRAY and pod.uid not in self._scheduled:
            await self._writes.scheduled(pod, pod.node)  # An earlier term has bound it.
        await self._report_assigned(pod, claims)
        await self._settle(pod, spec)
        self._by.pop(pod.uid, None)
        self._assigning.pop(pod.uid, None)

    def _put_containers(self, pod: Pod, claims: list[CachedResourceClaim]) -> None:
        if asks_by_container(self._cache.pods[pod.uid].object):
            self._put((pod.uid, "containers"), lambda: self._write_containers(pod, claims))

    async def _write_containers(self, pod: Pod, claims: list[CachedResourceClaim]) -> None:
        cached = self._cache.pods.get(pod.uid)
        if cached is None or not asks_by_container(cached.object):
            return
        held = [claim.claim for claim in claims]
        text = container_gpus(cached.object, held, self._cache.devices.device)
        if not says(cached.object, text):
            await self._writes.containers(pod, text)

    async def _report_assigned(self, pod: Pod, claims: list[CachedResourceClaim]) -> None:
        devices = "; ".join(
            event_messages.in_short(held.claim.allocation, pod.node)
            for held in claims
            if held.claim.allocation is not None
        )
        await self._writes.event(
            event_messages.pod_reference(pod),
            "GPUAllocated",
            f"Successfully assigned resources: {devices}{self._guarantee(pod)}",
            warning=False,
        )

    def _guarantee(self, pod: Pod) -> str:
        pool = self._cache.pool_selectors.pools().get(pod.pool)
        held = guarantee(pool.enforcement, pool.isolation) if pool is not None else ""
        return f"; {held}" if held else ""

    async def _failed(self, pod: Pod, spec: dict[str, Any], reason: str, detail: str) -> None:
        known = self._cache.plain[BIND_REQUESTS.plural].get(f"{pod.namespace}/{pod.name}") or {}
        before = int((known.get("status") or {}).get("failedAttempts") or 0)
        await self._writes.bind_request(
            pod, spec, event_messages.failed_status(reason, detail, before)
        )

    async def _announce(self, claim_uid: str) -> None:
        cached = self._cache.claims.get(claim_uid)
        if cached is not None and cached.claim.allocation is not None:
            self._informers.apply_response(CLAIMS, await self._claims.announce(cached))

    async def _publish(self, progress: Progress) -> None:
        decision = progress.execution.decision
        source = f"/claim-controller/{self._instance}"
        outgoing = encode(
            event_messages.execution_step(progress, self._clock.now_unix_s()),
            source=source,
            correlation_id=decision.request_id,
            causation_id=progress.execution.cause,
            traceparent=decision.traceparent,
        )
        await self._bus.publish(outgoing)

    def _pod(self, uid: str) -> Pod | None:
        cached = self._cache.pods.get(uid)
        return None if cached is None or cached.terminal else cached.pod

    def _put(self, subject: Subject, work: Work) -> None:
        self._queue.put(subject, lambda: self._report(subject, work))

    def _repeat(self, subject: Subject, work: Work) -> None:
        self._queue.repeat(subject, lambda: self._report(subject, work))

    def _put_off(self, subject: Subject, work: Work) -> None:
        self._queue.put_off(subject, lambda: self._report(subject, work))

    async def _reconcile_forever(self, every_s: float) -> None:
        while True:
            self.scan()
            while self._unread:
                await asyncio.sleep(0)
                self._look_at_changed(self._unread)
            await self._clock.sleep(every_s)

    async def _report(self, subject: Subject, work: Work) -> None:
        """Raises TemporaryError, KubeError: it is tried again, unless nobody would read it."""
        try:
            await work()
        except StreamMissingError:
            # The bus is being set up again.
            return
        except (TemporaryError, KubeError):
            if subject[0] in self._cache.pods or subject[0] in self._cache.claims:
                raise
        except DrayError as error:
            structlog.get_logger().error("report refused", about=subject[1], error=str(error))

    def _namespace_of(self, subject: Subject) -> str:
        if (pod := self._cache.pods.get(subject[0])) is not None and pod.pod is not None:
            return pod.pod.namespace
        claim = self._cache.claims.get(subject[0])
        return "" if claim is None else claim.claim.namespace


def _is_drays(held: CachedResourceClaim) -> bool:
    """Whether dray decided about the claim, or derived it for kube-scheduler to decide."""
    labels = held.object["metadata"].get("labels") or {}
    return bool(held.claim.decision) or DERIVED_FROM_LABEL in labels


def _is_announced(held: CachedResourceClaim) -> bool:
    annotations = held.object["metadata"].get("annotations") or {}
    return bool(annotations.get(ALLOCATED) == "true")
