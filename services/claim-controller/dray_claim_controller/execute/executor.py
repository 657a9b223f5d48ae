"""Walks the steps of decisions: serial per pod, a bounded number of pods at a time."""

import asyncio
from dataclasses import dataclass, field

import structlog

from dray.kube.ports import ConflictError, Kube, KubeUnavailableError, NotFoundError, RefusedError
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.executing import NextStep
from dray_claim_controller.execute.orders import Order
from dray_claim_controller.execute.progress import Environment
from dray_claim_controller.execute.resting import Resting, subjects
from dray_claim_controller.execute.rules import (
    AwaitDevices,
    AwaitWatch,
    Bind,
    Commit,
    Done,
    LiftGate,
    Mark,
    Step,
    Stop,
    same_allocation,
)
from dray_claim_controller.execute.steps import Hook, Steps
from dray_claim_controller.observe.watching import Watching

_MISSING = ("pod-gone", "claim-gone")
_LEAST_REST_S = 0.1
"""The facts' time may stand still for a while, and a rest must not be none then."""


@dataclass(slots=True)
class _Memory:
    """What one execution has seen and done, by claim UID."""

    committed: set[str]
    since_unix_s: float
    """When it was decided, in the facts' time; if that is not known, when this began."""
    marked: set[str] = field(default_factory=set)
    asked_for: set[str] = field(default_factory=set)
    """Reasons of stopping after which the server was asked: the watch may be behind."""
    awaited: str = ""
    """What was last said to be waited for."""


class Executor:
    """Carries out the newest order of each pod until it is done or stopped.

    Of those that wait for their devices there may be any number: they rest, and no other waits
    for them.
    """

    def __init__(
        self,
        kube: Kube,
        watching: Watching,
        clock: Clock,
        environment: Environment,
        *,
        concurrency: int = 16,
        watch_timeout_s: float = 2.0,
        binding_timeout_s: float = 600.0,
        hook: Hook | None = None,
    ) -> None:
        self._steps = Steps(kube, watching, clock, environment, hook)
        self._watching = watching
        self._picture = watching.picture
        self._clock = clock
        self._environment = environment
        self._slots = asyncio.Semaphore(concurrency)
        self._watch_timeout_s = watch_timeout_s
        self._binding_timeout_s = binding_timeout_s
        self._resting = Resting(watching, clock)
        self._newest: dict[str, Order] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def double_sales_prevented(self) -> int:
        """Allocations not written because they would have sold a device twice."""
        return self._steps.double_sales_prevented

    @property
    def busy(self) -> int:
        """Pods whose execution has not ended."""
        return len(self._tasks)

    @property
    def resting(self) -> int:
        """Of these, pods whose devices aren't ready."""
        return self._resting.number

    def executing(self) -> tuple[str, ...]:
        """UIDs of the pods whose execution has not ended."""
        return tuple(self._tasks)

    def submit(self, order: Order) -> None:
        """Carry ``order`` out; it replaces an older one of the same pod."""
        pod_uid = order.decision.pod_uid
        known = self._newest.get(pod_uid)
        if known is not None and known.attempt > order.attempt:
            return
        self._newest[pod_uid] = order
        self._resting.wake(pod_uid)
        if pod_uid not in self._tasks:
            task = asyncio.create_task(self._serve(pod_uid), name=f"execute-{pod_uid}")
            self._tasks[pod_uid] = task
            task.add_done_callback(lambda ended: self._ended(pod_uid, ended))

    def resume(self, order: Order) -> None:
        """Carry ``order`` out unless the pod is being executed already."""
        if order.decision.pod_uid not in self._tasks:
            self.submit(order)

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
        done: Order | None = None
        while (order := self._newest[pod_uid]) is not done:
            await self._follow(order)
            done = order
        del self._newest[pod_uid]

    async def _follow(self, order: Order) -> None:
        """Carry out, rest while the devices aren't ready, carry on."""
        since_unix_s = order.decided_unix_s
        if since_unix_s is None:
            since_unix_s = self._environment.now_unix_s()
        memory = _Memory(set(order.committed), since_unix_s)
        while True:
            try:
                async with self._slots:
                    awaited = await self._traced(order, memory)
            finally:
                for claim in order.decision.claims:
                    self._steps.in_flight.leave(claim.uid)
            # Nothing else runs from the question that was answered so to the beginning of the rest.
            if awaited is None or not self._is_newest(order):
                return
            about = subjects(self._picture, order.decision)
            rest_s = awaited.until_unix_s - self._environment.now_unix_s()
            await self._resting.until_changed(about, max(rest_s, _LEAST_REST_S))

    async def _traced(self, order: Order, memory: _Memory) -> AwaitDevices | None:
        step = self._next(order, memory)
        if self._is_told_already(step, memory):
            return await self._carry_out(order, memory)
        with self._steps.spans.carrying_out(order, self._environment.epoch_of(order.domain)):
            return await self._carry_out(order, memory)

    @staticmethod
    def _is_told_already(step: Step, memory: _Memory) -> bool:
        """Whether there is nothing for the trace: read again after a restart, or still waiting."""
        if isinstance(step, Stop):
            return step.reason in _MISSING
        if isinstance(step, AwaitDevices):
            return step.detail == memory.awaited
        return isinstance(step, Done)

    async def _carry_out(self, order: Order, memory: _Memory) -> AwaitDevices | None:
        """Until it is at its end, or replaced; or has to wait for devices."""
        backoff = Backoff(0.05, 5.0)
        while self._is_newest(order):
            step = self._next(order, memory)
            if isinstance(step, AwaitDevices):
                if step.detail != memory.awaited:
                    memory.awaited = step.detail
                    self._steps.report(order, "awaiting", detail=step.detail)
                return step
            try:
                if isinstance(step, Stop) and self._may_be_behind(step, memory):
                    await self._refresh_once(order)
                    continue
                if await self._take(step, order):
                    return None
                if isinstance(step, Mark):
                    memory.marked.add(step.claim.uid)
                backoff.reset()
            except (ConflictError, NotFoundError, KubeUnavailableError):
                await self._refresh(order, backoff)
            except RefusedError as error:
                await self._refuse(order, step, error, backoff)
                return None
        return None

    def _is_newest(self, order: Order) -> bool:
        return self._newest.get(order.decision.pod_uid) is order

    def _next(self, order: Order, memory: _Memory) -> Step:
        decision = order.decision
        for claim in decision.claims:
            seen = self._picture.claims.get(claim.uid)
            held = None if seen is None else seen.claim.allocation
            if held is not None and same_allocation(held, claim.allocation):
                memory.committed.add(claim.uid)
                self._steps.in_flight.leave(claim.uid)
        return self._watching.ask(
            NextStep(
                decision=decision,
                epoch=self._environment.epoch_of(order.domain),
                committed=tuple(sorted(memory.committed)),
                marked=tuple(sorted(memory.marked)),
                now_unix_s=self._environment.now_unix_s(),
                since_unix_s=memory.since_unix_s,
                binding_timeout_s=self._binding_timeout_s,
            )
        )

    async def _take(self, step: Step, order: Order) -> bool:
        """Do the step; True when the order is at its end."""
        match step:
            case Mark(claim):
                await self._steps.mark(claim, order)
            case Commit(claim):
                return await self._steps.commit(claim, order)
            case AwaitWatch():
                if not await self._watching.changed(self._watch_timeout_s):
                    await self._refresh_once(order)
            case LiftGate():
                await self._steps.lift_gate(order)
                return True
            case Bind():
                await self._steps.bind(order)
                return True
            case Done():
                self._steps.report(order, "done")
                return True
            case Stop():
                await self._steps.stop(step, order)
                return True
        return False

    @staticmethod
    def _may_be_behind(stop: Stop, memory: _Memory) -> bool:
        # Nothing is taken back, or given up as gone, on the word of a watch alone.
        doubtful = stop.withdraw or stop.reason in _MISSING
        if not doubtful or stop.reason in memory.asked_for:
            return False
        memory.asked_for.add(stop.reason)
        return True

    async def _refuse(
        self, order: Order, step: Step, error: RefusedError, backoff: Backoff
    ) -> None:
        structlog.get_logger().error(
            "Kubernetes refused a step", step=type(step).__name__, error=str(error)
        )
        stop = Stop("refused", str(error), withdraw=True)
        while True:
            try:
                await self._steps.stop(stop, order)
                return
            except (ConflictError, NotFoundError, KubeUnavailableError):
                await self._refresh(order, backoff)
            except RefusedError as again:
                # Not even the withdrawal is allowed: the allocator's void command comes next.
                self._steps.report(order, "failed", reason="refused", detail=str(again))
                return

    async def _refresh(self, order: Order, backoff: Backoff) -> None:
        """Read what the order is about from the server, however long that takes."""
        while True:
            await self._clock.sleep(backoff.next_s())
            try:
                await self._refresh_once(order)
                return
            except KubeUnavailableError:
                continue

    async def _refresh_once(self, order: Order) -> None:
        decision = order.decision
        seen = self._picture.pods.get(decision.pod_uid)
        held = [] if seen is None or seen.pod is None else self._picture.claims_of(seen.pod)
        about = [(one.claim.uid, one.claim.namespace, one.claim.name) for one in held]
        about += [(claim.uid, claim.namespace, claim.name) for claim in decision.claims]
        for uid, namespace, name in dict.fromkeys(about):
            await self._watching.refresh_claim(uid, namespace, name)
        await self._watching.refresh_pod(decision.pod_uid, decision.namespace, decision.name)
