"""What each step of a decision writes, and what is told about it."""

from collections.abc import Awaitable, Callable

import structlog
from msgspec.structs import replace

from dray.domain.names import CLAIM_FINALIZER, DECISION, OWNER_DRAY
from dray.kube.convert_metadata import attempt_annotation
from dray.kube.ports import (
    CLAIMS,
    PODS,
    ConflictError,
    KubeError,
    KubeUnavailableError,
    NotFoundError,
    RefusedError,
)
from dray.messages.decisions import ClaimDecision, PodDecision
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.executing import MayCommit
from dray_claim_controller.execute.defence import Holding
from dray_claim_controller.execute.inflight import InFlight
from dray_claim_controller.execute.orders import Order
from dray_claim_controller.execute.progress import Environment, Progress, log
from dray_claim_controller.execute.rules import NOT_WRITTEN, REFUSED, Stop
from dray_claim_controller.execute.withdraw import Withdrawer
from dray_claim_controller.execute.writes import ClaimWrites
from dray_claim_controller.leading.held import MOST_S, LeaseExpiredError
from dray_claim_controller.observe.seen import SeenClaim
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.tracing import Executions

Hook = Callable[[str, PodDecision], Awaitable[None]]
"""Called with a step's name right before its write; tests hold an executor there."""


class Steps:
    """One method per step that writes; each raises the errors of ``Kube`` (``dray.kube.ports``)."""

    def __init__(
        self,
        watching: Watching,
        clock: Clock,
        environment: Environment,
        writes: ClaimWrites,
        withdrawer: Withdrawer,
        hook: Hook | None = None,
    ) -> None:
        self.double_sales_prevented = 0
        self.in_flight = InFlight(watching.picture)
        self.spans = Executions()
        self._watching = watching
        self._picture = watching.picture
        self._clock = clock
        self._environment = environment
        self._writes = writes
        self._withdrawer = withdrawer
        self._hook = hook

    async def mark(self, claim: ClaimDecision, order: Order) -> None:
        """Note on the claim which decision is about to allocate it."""
        seen = self._picture.claims[claim.uid]
        await self._hold("mark", order)
        self._watching.caused(claim.uid, order.cause)
        answer = await self._writes.mark(seen, claim.attempt, self.spans.position(order))
        self._watching.answered(CLAIMS, answer)
        _check_kept(attempt_annotation(answer, DECISION) == claim.attempt, f"annotation {DECISION}")
        finalizers = answer["metadata"].get("finalizers") or ()
        _check_kept(CLAIM_FINALIZER in finalizers, f"finalizer {CLAIM_FINALIZER}")

    async def commit(self, claim: ClaimDecision, order: Order) -> Stop | None:
        """Write the allocation, unless it would sell a device twice: that ends the order."""
        seen = self._picture.claims[claim.uid]
        await self._hold("commit", order)
        self._watching.caused(claim.uid, order.cause)
        # From the check to its entry below nothing else runs: two executions can't both pass.
        checked = self._watching.ask(MayCommit(claim=claim, in_flight=self.in_flight.writes))
        holding = Holding(claim.uid, checked.allocation)
        if checked.problem is not None:
            return self._refused(claim, checked.problem, is_withheld=checked.is_withheld)
        self.in_flight.enter(holding, seen.claim.resource_version)
        await self._write_allocation(seen, holding, order)
        self.report(order, "committed", claim=claim.name)
        return None

    def _refused(self, claim: ClaimDecision, problem: str, *, is_withheld: bool) -> Stop:
        """A device that went after the decision is nobody's mistake, and no reason for an alarm;
        nor is a claim that became unreadable after it."""
        if is_withheld:
            return Stop("device-withheld", problem, withdraw=True)
        cards = self._picture.cards
        if any(cards.device(share.id) is None for share in claim.allocation.devices):
            return Stop("device-gone", problem, withdraw=True)
        self.double_sales_prevented += 1
        structlog.get_logger().error("double sale prevented", claim=claim.name, why=problem)
        return Stop("double-sale", problem, withdraw=True)

    async def lift_gate(self, order: Order) -> None:
        """Take dray's scheduling gate off the pod: kube-scheduler binds it."""
        seen = self._picture.pods[order.decision.pod_uid]
        assert seen.pod is not None
        await self._hold("lift-gate", order)
        self._watching.answered(PODS, await self._writes.lift_gate(seen, seen.pod))
        self.report(order, "ungated")
        self.report(order, "done")

    async def bind(self, order: Order) -> None:
        """Bind the pod to the decision's node."""
        seen = self._picture.pods[order.decision.pod_uid]
        assert seen.pod is not None
        await self._hold("bind", order)
        await self._writes.bind(seen.pod, order.decision.node)
        self.report(order, "bound")
        self.report(order, "done")

    async def take_back(self, stop: Stop, order: Order, *, is_last_try: bool) -> None:
        """Take back what the order wrote, where ``stop`` says so."""
        if stop.withdraw:
            decision = order.decision
            whole = replace(decision, claims=(*stop.siblings, *decision.claims))
            failure = stop.detail if stop.reason in (REFUSED, NOT_WRITTEN) else ""
            await self._withdrawer.withdraw(whole, is_last_try=is_last_try, failure=failure)

    def report_end(self, stop: Stop, order: Order) -> None:
        """Tell that the order has come to nothing."""
        step = "failed" if stop.withdraw else "stopped"
        self.report(order, step, reason=stop.reason, detail=stop.detail)

    def report(
        self, order: Order, step: str, *, claim: str = "", reason: str = "", detail: str = ""
    ) -> None:
        """Tell log, trace and reports that the execution came to ``step`` (see ``Progress``)."""
        progress = Progress(order, step, claim, reason, detail)
        if step != "done":
            log(progress)
        self.spans.progress(progress)
        self._environment.report(progress)

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
        except (ConflictError, NotFoundError, RefusedError, LeaseExpiredError):
            # Surely not written.
            self.in_flight.leave(holding.claim_uid)
            raise
        except KubeError:
            self.in_flight.doubt(holding.claim_uid, self._clock.monotonic_s() + MOST_S)
            raise
        self._watching.answered(CLAIMS, answer)
        self.in_flight.leave(holding.claim_uid)
        _check_kept(bool((answer.get("status") or {}).get("allocation")), "status.allocation")

    async def _hold(self, name: str, order: Order) -> None:
        if self._hook is not None:
            await self._hook(name, order.decision)


def _check_kept(is_kept: bool, what: str) -> None:
    """Raises KubeUnavailableError where the server has stored a write without a part of it: the
    step is tried again after a rest, and not at once for ever."""
    if not is_kept:
        raise KubeUnavailableError(
            f"the API server does not keep {what} of the ResourceClaim: does an admission webhook "
            "or policy remove it?"
        )
