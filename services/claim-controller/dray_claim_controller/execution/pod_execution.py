"""Carries out one execution of a decision: the steps for one pod, one after the other."""

import asyncio
from dataclasses import dataclass, replace
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
from dray_claim_controller.execution.steps import Steps
from dray_claim_controller.execution.waiters import WatchWaiters, awaited_uids
from dray_claim_controller.informers import Informers
from dray_claim_controller.leader.lease import LeaseExpiredError
from dray_claim_controller.work_queue import FairSlots

_MISSING = ("pod-gone", "claim-gone")
_LEAST_REST_S: Final = 0.1
"""The shortest wait: the facts' time may stand still, and waiting must not become a busy loop
then."""
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
    """0: until the watch shows a change."""


@dataclass(frozen=True, slots=True)
class ExecutorParts:
    """What all executions of an executor share."""

    informers: Informers
    clock: Clock
    environment: ExecutorEnvironment
    steps: Steps
    slots: FairSlots
    waiters: WatchWaiters
    joint: JointExecutions
    newest: dict[str, Execution]
    """By pod UID, the execution that counts."""
    watch_timeout_s: float
    binding_timeout_s: float
    give_up_after_s: float


class PodExecution:
    """The newest decision of a pod, until it is done, stopped or replaced.

    It holds a slot only while it does something: not while it waits for the watch, for its devices,
    or for another try. After ``give_up_after_s`` of tries that failed it is given up; its writes
    are rolled back, however long that takes.
    """

    def __init__(
        self, parts: ExecutorParts, execution: Execution, unreported: Stop | None = None
    ) -> None:
        """``unreported``: why the execution that this one replaces was given up. Then this one is
        also given up: it would fail for the same reason, and only a pod's newest execution reports
        it."""
        self._parts = parts
        self._execution = execution
        self._informers = parts.informers
        self._cache = parts.informers.cache
        self._clock = parts.clock
        self._environment = parts.environment
        self._steps = parts.steps
        decided_unix_s = execution.decided_unix_s
        self._since_unix_s = (
            parts.environment.now_unix_s() if decided_unix_s is None else decided_unix_s
        )
        """When it was decided, in the facts' time; if unknown, when this execution began."""
        self._committed = set(execution.committed)
        self._marked: set[str] = set()
        """Claims by UID, as in ``_committed``."""
        self._asked_for: set[str] = set()
        """Stop reasons that were checked with the server: the watch may be behind."""
        self._awaited = ""
        """The last reported reason for waiting."""
        self._stop = unreported
        """Why it is rolled back; later observations do not change that."""
        self._is_reported = False
        """Whether its failure was reported."""
        self._is_over = False
        """Whether it only waits for the outcome of a write."""
        self._is_behind = False
        """Whether to read from the server first."""
        self._failing_s = 0.0
        """How long reads and writes have failed without a success."""
        self._backoff = Backoff(_FIRST_S, _MOST_S)
        self._alarm: asyncio.Event | None = None
        """Ends the wait for another try; None while there is no such wait."""

    @property
    def is_failing(self) -> bool:
        """Whether it waits to try a failed write again."""
        return self._alarm is not None

    def interrupt(self) -> None:
        """End its wait for another try: it is replaced."""
        if self._alarm is not None:
            self._alarm.set()

    async def run(self) -> Stop | None:
        """Do the steps until it ends or is replaced; return why it was given up if it was replaced
        before it reported that."""
        while True:
            awaited = await self._traced()
            # No other task runs between the rule's answer and the start of waiting.
            if awaited is None or not self._is_newest():
                stop = self._stop
                is_given_up = stop is not None and stop.reason in (REFUSED, NOT_WRITTEN)
                return stop if is_given_up and not self._is_reported else None
            about = awaited_uids(self._cache, self._execution.decision)
            rest_s = awaited.until_unix_s - self._environment.now_unix_s()
            await self._parts.waiters.until_changed(about, max(rest_s, _LEAST_REST_S))

    async def _traced(self) -> _Awaited | None:
        step = self._next()
        if self._adds_no_span(step):
            return await self._carry_out()
        with self._steps.spans.carrying_out(
            self._execution, self._environment.epoch_of(self._execution.domain)
        ):
            return await self._carry_out()

    def _adds_no_span(self, step: Step) -> bool:
        """Whether the step adds nothing to the trace: repeated on restart, or still waiting."""
        if isinstance(step, Stop):
            return step.reason in _MISSING
        if isinstance(step, _Awaited):
            return step.detail == self._awaited
        return isinstance(step, Done)

    async def _carry_out(self) -> _Awaited | None:
        """Run until the end or a replacement, or until it has to wait for devices or its group."""
        while self._is_newest():
            async with self._parts.slots.held(self._execution.decision.namespace):
                outcome = await self._go_on()
            match outcome:
                case _Rest(rest_s=0.0):
                    if not await self._informers.changed(self._parts.watch_timeout_s):
                        self._is_behind = True
                case _Rest(rest_s=rest_s):
                    await self._rest(rest_s)
                case _:
                    return outcome
        return None

    async def _go_on(self) -> _Awaited | _Rest | None:
        """Run steps without a pause; None: it has ended, or was replaced."""
        if self._is_behind and (rest := await self._refresh()) is not None:
            return rest
        if self._is_over:
            return self._end()
        while self._is_newest():
            step = self._stop or self._next()
            if isinstance(step, AwaitWatch):
                return _Rest()
            if isinstance(step, AwaitGroup):
                if self._parts.joint.arrive(self._execution):
                    continue
                step = replace(
                    step, until_unix_s=self._parts.joint.deadline_unix_s(self._execution)
                )
            if isinstance(step, _Awaited):
                if step.detail != self._awaited:
                    self._awaited = step.detail
                    self._steps.report(self._execution, "awaiting", detail=step.detail)
                return step
            if isinstance(step, Stop) and self._may_be_behind(step):
                if (rest := await self._refresh()) is not None:
                    return rest
                continue
            began_s = self._clock.monotonic_s()
            try:
                is_over = await self._take(step)
            except LeaseExpiredError as error:
                return self._try_again(error)
            except KubeError as error:
                return self._failed(step, error, began_s)
            self._failing_s = 0.0
            self._backoff.reset()
            if is_over:
                return self._end()
        return None

    def _end(self) -> _Rest | None:
        """End, once the outcome of every write is known: until then its devices stay reserved."""
        uids = [claim.uid for claim in self._execution.decision.claims]
        until_s = self._steps.in_flight.doubted_until_s(uids)
        if until_s is None:
            return None
        self._is_over = self._is_behind = True
        return _Rest(max(until_s - self._clock.monotonic_s(), _LEAST_REST_S))

    def _is_newest(self) -> bool:
        return self._parts.newest.get(self._execution.decision.pod_uid) is self._execution

    def _next(self) -> Step:
        decision = self._execution.decision
        for claim in decision.claims:
            cached = self._cache.claims.get(claim.uid)
            held = None if cached is None else cached.claim.allocation
            if held is not None and same_allocation(held, claim.allocation):
                self._committed.add(claim.uid)
                self._steps.in_flight.leave(claim.uid)
        return self._informers.evaluate(
            NextStep(
                decision=decision,
                epoch=self._environment.epoch_of(self._execution.domain),
                committed=tuple(sorted(self._committed)),
                marked=tuple(sorted(self._marked)),
                now_unix_s=self._environment.now_unix_s(),
                since_unix_s=self._since_unix_s,
                binding_timeout_s=self._parts.binding_timeout_s,
                joint=self._parts.joint.verdict(self._execution),
            )
        )

    async def _take(self, step: Step) -> bool:
        """Do the step; True if the execution has ended."""
        match step:
            case Mark(claim):
                await self._steps.mark(claim, self._execution)
                self._marked.add(claim.uid)
            case Commit(claim):
                self._stop = await self._steps.commit(claim, self._execution)
            case LiftGate():
                await self._steps.lift_gate(self._execution)
                return True
            case BindPod():
                await self._steps.bind(self._execution)
                return True
            case Done():
                self._parts.joint.go(self._execution)
                self._steps.report(self._execution, "done")
                return True
            case Stop():
                self._parts.joint.fail(self._execution, step.detail)
                is_last_try = self._failing_s >= self._parts.give_up_after_s
                await self._steps.roll_back(step, self._execution, is_last_try=is_last_try)
                self._report_end(step)
                return True
        return False

    def _report_end(self, stop: Stop) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._steps.report_end(stop, self._execution)

    def _may_be_behind(self, stop: Stop) -> bool:
        # A watch alone is not proof that something is gone or has to be rolled back.
        doubtful = stop.withdraw or stop.reason in _MISSING
        if not doubtful or stop.reason in self._asked_for:
            return False
        self._asked_for.add(stop.reason)
        return True

    def _failed(
        self,
        step: Step | None,
        error: KubeError,
        began_s: float,
    ) -> _Rest:
        """A write failed, or a read (no step): it is tried again, unless Kubernetes refuses it, or
        it has failed for too long. A rollback is tried for ever."""
        rest = self._try_again(error)
        self._failing_s += self._clock.monotonic_s() - began_s + rest.rest_s
        is_refused = isinstance(error, RefusedError)
        if not is_refused and self._failing_s < self._parts.give_up_after_s:
            return rest
        if not isinstance(step, Stop):
            structlog.get_logger().error(
                "Kubernetes does not store a write; the attempt is given up",
                step="Read" if step is None else type(step).__name__,
                pod=f"{self._execution.decision.namespace}/{self._execution.decision.name}",
                error=str(error),
            )
            self._stop = Stop(REFUSED if is_refused else NOT_WRITTEN, str(error), withdraw=True)
            return rest
        self._stop = step
        if not self._is_reported:
            self._report_end(
                Stop(step.reason, f"{step.detail}; it can't be rolled back yet: {error}", True),
            )
            self._backoff = Backoff(_MOST_S, _LONGEST_S)
        return rest

    def _try_again(self, error: KubeError | LeaseExpiredError) -> _Rest:
        self._is_behind = True
        return _Rest(self._backoff.next_s(getattr(error, "retry_after_s", 0.0)))

    async def _refresh(self) -> _Rest | None:
        """Read the pod and the claims from the server; returns how long to wait if that fails."""
        began_s = self._clock.monotonic_s()
        try:
            await self._refresh_once()
        except KubeError as error:
            if self._is_over:
                return self._try_again(error)
            return self._failed(self._stop, error, began_s)
        self._is_behind = False
        return None

    async def _refresh_once(self) -> None:
        decision = self._execution.decision
        cached = self._cache.pods.get(decision.pod_uid)
        held = [] if cached is None or cached.pod is None else self._cache.claims_of(cached.pod)
        about = [(one.claim.uid, one.claim.namespace, one.claim.name) for one in held]
        about += [(claim.uid, claim.namespace, claim.name) for claim in decision.claims]
        for uid, namespace, name in dict.fromkeys(about):
            asked_s = self._clock.monotonic_s()
            await self._informers.refresh_claim(uid, namespace, name)
            self._steps.in_flight.read(uid, asked_s)
        await self._informers.refresh_pod(decision.pod_uid, decision.namespace, decision.name)

    async def _rest(self, rest_s: float) -> None:
        """Wait for ``rest_s`` seconds, or until the execution is replaced."""
        alarm = self._alarm = asyncio.Event()
        sleep = asyncio.ensure_future(self._clock.sleep(rest_s))
        sleep.add_done_callback(lambda _: alarm.set())
        try:
            await alarm.wait()
        finally:
            self._alarm = None
            sleep.cancel()
