"""Runs the steps of decisions: serially per pod, for a limited number of pods at a time."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from dray.kube.ports import KubeError, RefusedError
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.decisions.next_step import (
    NOT_WRITTEN,
    REFUSED,
    AwaitDevices,
    AwaitGroup,
    AwaitWatch,
    BindPod,
    Commit,
    Done,
    LiftGate,
    Mark,
    NextStep,
    Step,
    Stop,
    same_allocation,
)
from dray_claim_controller.execution.joint_executions import JointExecutions
from dray_claim_controller.execution.progress import ExecutorEnvironment
from dray_claim_controller.execution.rollback import Rollback
from dray_claim_controller.execution.steps import Hook, Steps
from dray_claim_controller.execution.waiters import WatchWaiters, awaited_uids
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers
from dray_claim_controller.leader.lease import LeaseExpiredError
from dray_claim_controller.work_queue import FairSlots

_MISSING = ("pod-gone", "claim-gone")
_LEAST_REST_S: Final = 0.1
"""The facts' time may stand still, and waiting must not become a busy loop then."""
_FIRST_S: Final = 0.05
_MOST_S: Final = 5.0
"""The longest backoff between tries."""
_LONGEST_S: Final = 300.0
"""The longest backoff between tries to roll back what was given up."""


_Awaited = AwaitDevices | AwaitGroup


@dataclass(frozen=True, slots=True)
class _Rest:
    """Release the slot, and continue later."""

    rest_s: float = 0.0
    """0: when the watch shows a change."""


@dataclass(slots=True)
class _Memory:
    """What one execution has observed and done; claims by UID."""

    committed: set[str]
    since_unix_s: float
    """When it was decided, in the facts' time; if unknown, when this execution began."""
    marked: set[str] = field(default_factory=set)
    asked_for: set[str] = field(default_factory=set)
    """Stop reasons that were checked with the server: the watch may be behind."""
    awaited: str = ""
    """The last reported reason for waiting."""
    stop: Stop | None = None
    """Why it is rolled back; later observations do not change that."""
    is_reported: bool = False
    """Whether its failure was reported."""
    is_over: bool = False
    """Whether it only waits for the outcome of a write."""
    is_behind: bool = False
    """Whether to read from the server first."""
    failing_s: float = 0.0
    """How long reads and writes have failed without a success."""
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_S, _MOST_S))


class PodExecutor:
    """Carries out the newest decision of each pod until it is done or stopped.

    An execution holds a slot only while it does something: not while it waits for the watch, for
    its devices, or for another try. Namespaces take turns. After ``give_up_after_s`` of tries that
    failed an attempt is given up; its writes are rolled back, however long that takes.
    """

    def __init__(
        self,
        informers: Informers,
        clock: Clock,
        environment: ExecutorEnvironment,
        writes: ExecutionWrites,
        rollback: Rollback,
        *,
        concurrency: int = 16,
        watch_timeout_s: float = 2.0,
        binding_timeout_s: float = 600.0,
        give_up_after_s: float = 20.0,
        hook: Hook | None = None,
    ) -> None:
        self._steps = Steps(informers, clock, environment, writes, rollback, hook)
        self._informers = informers
        self._cache = informers.cache
        self._clock = clock
        self._environment = environment
        self._slots = FairSlots(clock, concurrency)
        self._watch_timeout_s = watch_timeout_s
        self._binding_timeout_s = binding_timeout_s
        self._give_up_after_s = give_up_after_s
        self._waiters = WatchWaiters(informers, clock)
        self._joint = JointExecutions(informers, environment.now_unix_s, self._waiters.wake)
        self._newest: dict[str, Execution] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._alarms: dict[str, asyncio.Event] = {}
        """By pod UID, of executions that wait for another try."""

    @property
    def double_allocations_prevented(self) -> int:
        """Allocations not written because they would have allocated a device twice."""
        return self._steps.double_allocations_prevented

    @property
    def busy(self) -> int:
        """Pods whose execution has not ended."""
        return len(self._tasks)

    @property
    def resting(self) -> int:
        """Pods being executed whose devices aren't ready."""
        return self._waiters.number

    @property
    def failing(self) -> int:
        """Pods being executed with a failed write that is tried again."""
        return len(self._alarms)

    def executing(self) -> tuple[str, ...]:
        """UIDs of the pods whose execution has not ended."""
        return tuple(self._tasks)

    def submit(self, execution: Execution) -> None:
        """Start an execution; it replaces an older one of the same pod."""
        pod_uid = execution.decision.pod_uid
        known = self._newest.get(pod_uid)
        if known is not None and known.attempt > execution.attempt:
            return
        if known is not None and known.decision.group != execution.decision.group:
            self._joint.fail(known, "it was decided again")
            self._joint.leave(known)
        self._newest[pod_uid] = execution
        self._joint.join(execution)
        self._waiters.wake(pod_uid)
        if (alarm := self._alarms.get(pod_uid)) is not None:
            alarm.set()
        if pod_uid not in self._tasks:
            task = asyncio.create_task(self._serve(pod_uid), name=f"execute-{pod_uid}")
            self._tasks[pod_uid] = task
            task.add_done_callback(lambda ended: self._ended(pod_uid, ended))

    def resume(self, execution: Execution) -> None:
        """Start an execution unless its pod has one already."""
        if execution.decision.pod_uid not in self._tasks:
            self.submit(execution)

    async def close(self) -> None:
        """Stop where it is; a later execution resumes from what is observed."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until nothing is being carried out."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _ended(self, pod_uid: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(pod_uid, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            structlog.get_logger().error("execution failed", pod_uid=pod_uid, exc_info=error)

    async def _serve(self, pod_uid: str) -> None:
        done: Execution | None = None
        unreported: Stop | None = None
        while (execution := self._newest[pod_uid]) is not done:
            unreported = await self._follow(execution, unreported)
            done = execution
        self._joint.leave(self._newest.pop(pod_uid))

    async def _follow(self, execution: Execution, unreported: Stop | None) -> Stop | None:
        """Do the steps of an execution until it ends or is replaced.

        ``unreported``: why the execution that this one replaces was given up. Then this one is
        given up, too: it would fail for the same reason, and only a pod's newest execution
        reports it. Returns the reason if this one was replaced before it reported it."""
        since_unix_s = execution.decided_unix_s
        if since_unix_s is None:
            since_unix_s = self._environment.now_unix_s()
        memory = _Memory(set(execution.committed), since_unix_s, stop=unreported)
        while True:
            awaited = await self._traced(execution, memory)
            # No other task runs between the rule's answer and the start of waiting.
            if awaited is None or not self._is_newest(execution):
                stop = memory.stop
                is_given_up = stop is not None and stop.reason in (REFUSED, NOT_WRITTEN)
                return stop if is_given_up and not memory.is_reported else None
            about = awaited_uids(self._cache, execution.decision)
            rest_s = awaited.until_unix_s - self._environment.now_unix_s()
            await self._waiters.until_changed(about, max(rest_s, _LEAST_REST_S))

    async def _traced(self, execution: Execution, memory: _Memory) -> _Awaited | None:
        step = self._next(execution, memory)
        if self._adds_no_span(step, memory):
            return await self._carry_out(execution, memory)
        with self._steps.spans.carrying_out(
            execution, self._environment.epoch_of(execution.domain)
        ):
            return await self._carry_out(execution, memory)

    @staticmethod
    def _adds_no_span(step: Step, memory: _Memory) -> bool:
        """Whether the step adds nothing to the trace: repeated on restart, or still waiting."""
        if isinstance(step, Stop):
            return step.reason in _MISSING
        if isinstance(step, _Awaited):
            return step.detail == memory.awaited
        return isinstance(step, Done)

    async def _carry_out(self, execution: Execution, memory: _Memory) -> _Awaited | None:
        """Run until the end or a replacement, or until it has to wait for devices or its group."""
        while self._is_newest(execution):
            async with self._slots.held(execution.decision.namespace):
                outcome = await self._go_on(execution, memory)
            match outcome:
                case _Rest(rest_s=0.0):
                    if not await self._informers.changed(self._watch_timeout_s):
                        memory.is_behind = True
                case _Rest(rest_s=rest_s):
                    await self._rest(execution, rest_s)
                case _:
                    return outcome
        return None

    async def _go_on(self, execution: Execution, memory: _Memory) -> _Awaited | _Rest | None:
        """Run steps without a pause; None: it has ended, or was replaced."""
        if memory.is_behind and (rest := await self._refresh(execution, memory)) is not None:
            return rest
        if memory.is_over:
            return self._end(execution, memory)
        while self._is_newest(execution):
            step = memory.stop or self._next(execution, memory)
            if isinstance(step, AwaitWatch):
                return _Rest()
            if isinstance(step, AwaitGroup):
                if self._joint.arrive(execution):
                    continue
                step = replace(step, until_unix_s=self._joint.deadline_unix_s(execution))
            if isinstance(step, _Awaited):
                if step.detail != memory.awaited:
                    memory.awaited = step.detail
                    self._steps.report(execution, "awaiting", detail=step.detail)
                return step
            if isinstance(step, Stop) and self._may_be_behind(step, memory):
                if (rest := await self._refresh(execution, memory)) is not None:
                    return rest
                continue
            began_s = self._clock.monotonic_s()
            try:
                is_over = await self._take(step, execution, memory)
            except LeaseExpiredError as error:
                return self._try_again(memory, error)
            except KubeError as error:
                return self._failed(execution, memory, step, error, began_s)
            memory.failing_s = 0.0
            memory.backoff.reset()
            if is_over:
                return self._end(execution, memory)
        return None

    def _end(self, execution: Execution, memory: _Memory) -> _Rest | None:
        """End, once the outcome of every write is known: until then its devices stay reserved."""
        uids = [claim.uid for claim in execution.decision.claims]
        until_s = self._steps.in_flight.doubted_until_s(uids)
        if until_s is None:
            return None
        memory.is_over = memory.is_behind = True
        return _Rest(max(until_s - self._clock.monotonic_s(), _LEAST_REST_S))

    def _is_newest(self, execution: Execution) -> bool:
        return self._newest.get(execution.decision.pod_uid) is execution

    def _next(self, execution: Execution, memory: _Memory) -> Step:
        decision = execution.decision
        for claim in decision.claims:
            cached = self._cache.claims.get(claim.uid)
            held = None if cached is None else cached.claim.allocation
            if held is not None and same_allocation(held, claim.allocation):
                memory.committed.add(claim.uid)
                self._steps.in_flight.leave(claim.uid)
        return self._informers.evaluate(
            NextStep(
                decision=decision,
                epoch=self._environment.epoch_of(execution.domain),
                committed=tuple(sorted(memory.committed)),
                marked=tuple(sorted(memory.marked)),
                now_unix_s=self._environment.now_unix_s(),
                since_unix_s=memory.since_unix_s,
                binding_timeout_s=self._binding_timeout_s,
                joint=self._joint.verdict(execution),
            )
        )

    async def _take(self, step: Step, execution: Execution, memory: _Memory) -> bool:
        """Do the step; True if the execution has ended."""
        match step:
            case Mark(claim):
                await self._steps.mark(claim, execution)
                memory.marked.add(claim.uid)
            case Commit(claim):
                memory.stop = await self._steps.commit(claim, execution)
            case LiftGate():
                await self._steps.lift_gate(execution)
                return True
            case BindPod():
                await self._steps.bind(execution)
                return True
            case Done():
                self._joint.go(execution)
                self._steps.report(execution, "done")
                return True
            case Stop():
                self._joint.fail(execution, step.detail)
                is_last_try = memory.failing_s >= self._give_up_after_s
                await self._steps.roll_back(step, execution, is_last_try=is_last_try)
                self._report_end(step, execution, memory)
                return True
        return False

    def _report_end(self, stop: Stop, execution: Execution, memory: _Memory) -> None:
        if not memory.is_reported:
            memory.is_reported = True
            self._steps.report_end(stop, execution)

    @staticmethod
    def _may_be_behind(stop: Stop, memory: _Memory) -> bool:
        # A watch alone is not proof that something is gone or has to be rolled back.
        doubtful = stop.withdraw or stop.reason in _MISSING
        if not doubtful or stop.reason in memory.asked_for:
            return False
        memory.asked_for.add(stop.reason)
        return True

    def _failed(
        self,
        execution: Execution,
        memory: _Memory,
        step: Step | None,
        error: KubeError,
        began_s: float,
    ) -> _Rest:
        """A write failed, or a read (no step): it is tried again, unless Kubernetes refuses it, or
        has failed it for too long. A rollback is tried for ever."""
        rest = self._try_again(memory, error)
        memory.failing_s += self._clock.monotonic_s() - began_s + rest.rest_s
        is_refused = isinstance(error, RefusedError)
        if not is_refused and memory.failing_s < self._give_up_after_s:
            return rest
        if not isinstance(step, Stop):
            structlog.get_logger().error(
                "Kubernetes does not take a step; the attempt is given up",
                step="Read" if step is None else type(step).__name__,
                pod=f"{execution.decision.namespace}/{execution.decision.name}",
                error=str(error),
            )
            memory.stop = Stop(REFUSED if is_refused else NOT_WRITTEN, str(error), withdraw=True)
            return rest
        memory.stop = step
        if not memory.is_reported:
            self._report_end(
                Stop(step.reason, f"{step.detail}; it can't be rolled back yet: {error}", True),
                execution,
                memory,
            )
            memory.backoff = Backoff(_MOST_S, _LONGEST_S)
        return rest

    def _try_again(self, memory: _Memory, error: KubeError | LeaseExpiredError) -> _Rest:
        memory.is_behind = True
        return _Rest(memory.backoff.next_s(getattr(error, "retry_after_s", 0.0)))

    async def _refresh(self, execution: Execution, memory: _Memory) -> _Rest | None:
        """Read the pod and the claims from the server; returns how long to wait if that fails."""
        began_s = self._clock.monotonic_s()
        try:
            await self._refresh_once(execution)
        except KubeError as error:
            if memory.is_over:
                return self._try_again(memory, error)
            return self._failed(execution, memory, memory.stop, error, began_s)
        memory.is_behind = False
        return None

    async def _refresh_once(self, execution: Execution) -> None:
        decision = execution.decision
        cached = self._cache.pods.get(decision.pod_uid)
        held = [] if cached is None or cached.pod is None else self._cache.claims_of(cached.pod)
        about = [(one.claim.uid, one.claim.namespace, one.claim.name) for one in held]
        about += [(claim.uid, claim.namespace, claim.name) for claim in decision.claims]
        for uid, namespace, name in dict.fromkeys(about):
            asked_s = self._clock.monotonic_s()
            await self._informers.refresh_claim(uid, namespace, name)
            self._steps.in_flight.read(uid, asked_s)
        await self._informers.refresh_pod(decision.pod_uid, decision.namespace, decision.name)

    async def _rest(self, execution: Execution, rest_s: float) -> None:
        """Wait so long, or until the execution is replaced."""
        alarm = self._alarms[execution.decision.pod_uid] = asyncio.Event()
        sleep = asyncio.ensure_future(self._clock.sleep(rest_s))
        sleep.add_done_callback(lambda _: alarm.set())
        try:
            await alarm.wait()
        finally:
            del self._alarms[execution.decision.pod_uid]
            sleep.cancel()
