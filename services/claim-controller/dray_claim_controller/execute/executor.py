"""Walks the steps of decisions: serial per pod, a bounded number of pods at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from dray.domain.names import OWNER_DRAY
from dray.kube.ports import (
    CLAIMS,
    PODS,
    ConflictError,
    Kube,
    KubeUnavailableError,
    NotFoundError,
    RefusedError,
)
from dray.messages.decisions import ClaimDecision, PodDecision
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.executing import MayCommit, NextStep
from dray_claim_controller.execute.defence import Holding
from dray_claim_controller.execute.inflight import InFlight
from dray_claim_controller.execute.orders import Order
from dray_claim_controller.execute.progress import Environment, Progress, log
from dray_claim_controller.execute.rules import (
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
from dray_claim_controller.execute.withdraw import Withdrawer
from dray_claim_controller.execute.writes import ClaimWrites
from dray_claim_controller.observe.seen import SeenClaim
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.tracing import Executions

_MISSING = ("pod-gone", "claim-gone")

Hook = Callable[[str, PodDecision], Awaitable[None]]
"""Called with a step's name right before its write; tests hold an executor there."""


@dataclass(slots=True)
class _Memory:
    """What one execution has seen and done, by claim UID."""

    committed: set[str]
    marked: set[str]
    asked_for: set[str] = field(default_factory=set)
    """Reasons of stopping after which the server was asked: the watch may be behind."""


class Executor:
    """Carries out the newest order of each pod until it is done or stopped."""

    def __init__(
        self,
        kube: Kube,
        watching: Watching,
        clock: Clock,
        environment: Environment,
        *,
        concurrency: int = 16,
        watch_timeout_s: float = 2.0,
        hook: Hook | None = None,
    ) -> None:
        self.double_sales_prevented = 0
        self._watching = watching
        self._picture = watching.picture
        self._clock = clock
        self._environment = environment
        self._writes = ClaimWrites(kube)
        self._withdrawer = Withdrawer(kube, watching)
        self._slots = asyncio.Semaphore(concurrency)
        self._watch_timeout_s = watch_timeout_s
        self._hook = hook
        self._spans = Executions()
        self._newest: dict[str, Order] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._in_flight = InFlight(watching.picture)

    @property
    def busy(self) -> int:
        """Pods whose execution has not ended."""
        return len(self._tasks)

    def submit(self, order: Order) -> None:
        """Carry ``order`` out; it replaces an older one of the same pod."""
        pod_uid = order.decision.pod_uid
        known = self._newest.get(pod_uid)
        if known is not None and known.attempt > order.attempt:
            return
        self._newest[pod_uid] = order
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
            try:
                async with self._slots:
                    await self._traced(order)
            finally:
                for claim in order.decision.claims:
                    self._in_flight.leave(claim.uid)
            done = order
        del self._newest[pod_uid]

    async def _traced(self, order: Order) -> None:
        step = self._next(order, _Memory(set(order.committed), set()))
        if isinstance(step, Done) or (isinstance(step, Stop) and step.reason in _MISSING):
            # Read again after a restart: the trace was told long ago.
            await self._carry_out(order)
            return
        with self._spans.carrying_out(order, self._environment.epoch_of(order.domain)):
            await self._carry_out(order)

    async def _carry_out(self, order: Order) -> None:
        backoff = Backoff(0.05, 5.0)
        memory = _Memory(set(order.committed), set())
        while self._newest.get(order.decision.pod_uid) is order:
            step = self._next(order, memory)
            try:
                if isinstance(step, Stop) and self._may_be_behind(step, memory):
                    await self._refresh_once(order)
                    continue
                if await self._take(step, order):
                    return
                if isinstance(step, Mark):
                    memory.marked.add(step.claim.uid)
                backoff.reset()
            except (ConflictError, NotFoundError, KubeUnavailableError):
                await self._refresh(order, backoff)
            except RefusedError as error:
                await self._refuse(order, step, error, backoff)
                return

    def _next(self, order: Order, memory: _Memory) -> Step:
        decision = order.decision
        for claim in decision.claims:
            seen = self._picture.claims.get(claim.uid)
            held = None if seen is None else seen.claim.allocation
            if held is not None and same_allocation(held, claim.allocation):
                memory.committed.add(claim.uid)
                self._in_flight.leave(claim.uid)
        return self._watching.ask(
            NextStep(
                decision=decision,
                epoch=self._environment.epoch_of(order.domain),
                committed=tuple(sorted(memory.committed)),
                marked=tuple(sorted(memory.marked)),
            )
        )

    async def _take(self, step: Step, order: Order) -> bool:
        """Do the step; True when the order is at its end."""
        match step:
            case Mark(claim):
                await self._mark(claim, order)
            case Commit(claim):
                return await self._commit(claim, order)
            case AwaitWatch():
                if not await self._watching.changed(self._watch_timeout_s):
                    await self._refresh_once(order)
            case LiftGate():
                await self._lift_gate(order)
                return True
            case Bind():
                await self._bind(order)
                return True
            case Done():
                self._report(order, "done")
                return True
            case Stop():
                await self._stop(step, order)
                return True
        return False

    @staticmethod
    def _may_be_behind(stop: Stop, memory: _Memory) -> bool:
        if stop.reason not in _MISSING or stop.reason in memory.asked_for:
            return False
        memory.asked_for.add(stop.reason)
        return True

    async def _mark(self, claim: ClaimDecision, order: Order) -> None:
        seen = self._picture.claims[claim.uid]
        await self._hold("mark", order)
        self._watching.caused(claim.uid, order.cause)
        answer = await self._writes.mark(seen, claim.attempt, self._spans.position(order))
        self._watching.answered(CLAIMS, answer)

    async def _commit(self, claim: ClaimDecision, order: Order) -> bool:
        seen = self._picture.claims[claim.uid]
        await self._hold("commit", order)
        self._watching.caused(claim.uid, order.cause)
        # From the check to its entry below nothing else runs: two executions can't both pass.
        checked = self._watching.ask(MayCommit(claim=claim, in_flight=self._in_flight.writes))
        problem, holding = checked.problem, Holding(claim.uid, checked.allocation)
        if problem is not None:
            self.double_sales_prevented += 1
            structlog.get_logger().error("double sale prevented", claim=claim.name, why=problem)
            await self._stop(Stop("double-sale", problem, withdraw=True), order)
            return True
        self._in_flight.enter(holding)
        await self._write_allocation(seen, holding, order)
        self._report(order, "committed", claim=claim.name)
        return False

    async def _write_allocation(self, seen: SeenClaim, holding: Holding, order: Order) -> None:
        decision = order.decision
        reserved = [(decision.name, decision.pod_uid)] if decision.binder == OWNER_DRAY else []
        keeps = self._environment.keeps_timestamp()
        try:
            answer = await self._writes.commit(
                seen,
                holding.allocation,
                reserved_for=reserved,
                timestamp_unix_s=self._clock.now_unix_s() if keeps else None,
            )
        except (ConflictError, NotFoundError, RefusedError):
            # Surely not written; with any other failure the entry stays until it is known.
            self._in_flight.leave(holding.claim_uid)
            raise
        self._watching.answered(CLAIMS, answer)
        self._in_flight.leave(holding.claim_uid)

    async def _lift_gate(self, order: Order) -> None:
        seen = self._picture.pods[order.decision.pod_uid]
        assert seen.pod is not None
        await self._hold("lift-gate", order)
        self._watching.answered(PODS, await self._writes.lift_gate(seen, seen.pod))
        self._report(order, "ungated")
        self._report(order, "done")

    async def _bind(self, order: Order) -> None:
        seen = self._picture.pods[order.decision.pod_uid]
        assert seen.pod is not None
        await self._hold("bind", order)
        await self._writes.bind(seen.pod, order.decision.node)
        self._report(order, "bound")
        self._report(order, "done")

    async def _stop(self, stop: Stop, order: Order) -> None:
        if stop.withdraw:
            await self._withdrawer.withdraw(order.decision)
        step = "failed" if stop.withdraw else "stopped"
        self._report(order, step, reason=stop.reason, detail=stop.detail)

    async def _refuse(
        self, order: Order, step: Step, error: RefusedError, backoff: Backoff
    ) -> None:
        structlog.get_logger().error(
            "Kubernetes refused a step", step=type(step).__name__, error=str(error)
        )
        stop = Stop("refused", str(error), withdraw=True)
        while True:
            try:
                await self._stop(stop, order)
                return
            except (ConflictError, NotFoundError, KubeUnavailableError):
                await self._refresh(order, backoff)
            except RefusedError as again:
                # Not even the withdrawal is allowed: the allocator's void command comes next.
                self._report(order, "failed", reason="refused", detail=str(again))
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
        for claim in decision.claims:
            await self._watching.refresh_claim(claim.uid, claim.namespace, claim.name)
        await self._watching.refresh_pod(decision.pod_uid, decision.namespace, decision.name)

    async def _hold(self, name: str, order: Order) -> None:
        if self._hook is not None:
            await self._hook(name, order.decision)

    def _report(
        self, order: Order, step: str, *, claim: str = "", reason: str = "", detail: str = ""
    ) -> None:
        progress = Progress(order, step, claim, reason, detail)
        if step != "done":
            log(progress)
        self._spans.progress(progress)
        self._environment.report(progress)
