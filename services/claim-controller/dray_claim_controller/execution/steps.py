"""The writes of each step of a decision, and their reports."""

from collections.abc import Awaitable, Callable

import structlog
from msgspec.structs import replace

from dray.api.names import CLAIM_FINALIZER, DECISION, GPU_IDS, OWNER_DRAY
from dray.api.pods import Pod
from dray.kube.convert_claims import Consumer
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
from dray_claim_controller.cache.cached_objects import CachedResourceClaim
from dray_claim_controller.cache.devices import uuid_of
from dray_claim_controller.cache.groups import group_of_claim
from dray_claim_controller.execution.decisions.double_allocation_check import ClaimHolding
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.decisions.in_flight_allocations import (
    CommitCheck,
    InFlightAllocations,
)
from dray_claim_controller.execution.decisions.next_step import NOT_WRITTEN, REFUSED, Stop
from dray_claim_controller.execution.progress import ExecutorEnvironment, Progress, log_progress
from dray_claim_controller.execution.rollback import Rollback
from dray_claim_controller.execution.spans import ExecutionSpans
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers
from dray_claim_controller.leader.lease import MAX_WRITE_S, LeaseExpiredError

Hook = Callable[[str, PodDecision], Awaitable[None]]
"""Called with a step's name right before its write; tests hold an executor there."""


class Steps:
    """One method per step that writes; each raises the errors of ``Kube`` (``dray.kube.ports``)."""

    def __init__(
        self,
        informers: Informers,
        clock: Clock,
        environment: ExecutorEnvironment,
        writes: ExecutionWrites,
        rollback: Rollback,
        hook: Hook | None = None,
    ) -> None:
        self.double_allocations_prevented = 0
        self.in_flight = InFlightAllocations(informers.cache)
        self.spans = ExecutionSpans()
        self._informers = informers
        self._cache = informers.cache
        self._clock = clock
        self._environment = environment
        self._writes = writes
        self._rollback = rollback
        self._hook = hook

    async def mark(self, claim: ClaimDecision, execution: Execution) -> None:
        """Mark the claim with the attempt that is about to allocate it."""
        cached = self._cache.claims[claim.uid]
        await self._hold("mark", execution)
        self._informers.caused(claim.uid, execution.cause)
        answer = await self._writes.mark(cached, claim.attempt, self.spans.position(execution))
        self._informers.apply_response(CLAIMS, answer)
        _check_kept(attempt_annotation(answer, DECISION) == claim.attempt, f"annotation {DECISION}")
        finalizers = answer["metadata"].get("finalizers") or ()
        _check_kept(CLAIM_FINALIZER in finalizers, f"finalizer {CLAIM_FINALIZER}")

    async def commit(self, claim: ClaimDecision, execution: Execution) -> Stop | None:
        """Write the allocation. Return a stop if it would allocate a device twice."""
        cached = self._cache.claims[claim.uid]
        await self._hold("commit", execution)
        self._informers.caused(claim.uid, execution.cause)
        # No other task runs between the check and the entry below: two executions can't both pass.
        checked = self._informers.evaluate(
            CommitCheck(claim=claim, in_flight=self.in_flight.writes)
        )
        holding = ClaimHolding(claim.uid, checked.allocation)
        if checked.problem is not None:
            return self._refused(claim, checked.problem, is_withheld=checked.is_withheld)
        self.in_flight.enter(holding, cached.claim.resource_version)
        await self._write_allocation(cached, holding, execution)
        self.report(execution, "committed", claim=claim.name)
        return None

    def _refused(self, claim: ClaimDecision, problem: str, *, is_withheld: bool) -> Stop:
        """The stop of a commit that was refused. Only a double allocation is logged as an error:
        devices that were removed and claims that became unreadable after the decision are no
        errors."""
        if is_withheld:
            return Stop("device-withheld", problem, withdraw=True)
        cards = self._cache.devices
        if any(cards.device(share.id) is None for share in claim.allocation.devices):
            return Stop("device-gone", problem, withdraw=True)
        self.double_allocations_prevented += 1
        structlog.get_logger().error("double allocation prevented", claim=claim.name, why=problem)
        return Stop("double-sale", problem, withdraw=True)

    async def lift_gate(self, execution: Execution) -> None:
        """Take dray's scheduling gate off the pod: kube-scheduler binds it."""
        cached = self._cache.pods[execution.decision.pod_uid]
        assert cached.pod is not None
        await self._hold("lift-gate", execution)
        self._informers.apply_response(PODS, await self._writes.lift_gate(cached, cached.pod))
        self.report(execution, "ungated")
        self.report(execution, "done")

    async def bind(self, execution: Execution) -> None:
        """Bind the pod to the decision's node."""
        cached = self._cache.pods[execution.decision.pod_uid]
        assert cached.pod is not None
        await self._hold("bind", execution)
        annotations = {}
        if cached.pod.has_accounting_claim and (uuids := self._uuids(cached.pod)):
            annotations[GPU_IDS] = ",".join(uuids)
        await self._writes.bind(cached.pod, execution.decision.node, annotations)
        self.report(execution, "bound")
        self.report(execution, "done")

    def _uuids(self, pod: Pod) -> list[str]:
        """The UUIDs of the pod's GPUs, each once."""
        ids = (
            device.id
            for held in self._cache.claims_of(pod)
            if held.claim.allocation is not None
            for device in held.claim.allocation.devices
        )
        return list(dict.fromkeys(uuid_of(one, self._cache.devices.device(one)) for one in ids))

    async def roll_back(self, stop: Stop, execution: Execution, *, is_last_try: bool) -> None:
        """Roll back the writes of an execution if ``stop`` says so."""
        if stop.withdraw:
            decision = execution.decision
            whole = replace(decision, claims=(*stop.siblings, *decision.claims))
            failure = stop.detail if stop.reason in (REFUSED, NOT_WRITTEN) else ""
            await self._rollback.roll_back(whole, is_last_try=is_last_try, failure=failure)

    def report_end(self, stop: Stop, execution: Execution) -> None:
        """Report that the decision is not carried out."""
        step = "failed" if stop.withdraw else "stopped"
        self.report(execution, step, reason=stop.reason, detail=stop.detail)

    def report(
        self,
        execution: Execution,
        step: str,
        *,
        claim: str = "",
        reason: str = "",
        detail: str = "",
    ) -> None:
        """Tell log, trace and reports that the execution reached ``step`` (see ``Progress``)."""
        progress = Progress(execution, step, claim, reason, detail)
        if step != "done":
            log_progress(progress)
        self.spans.progress(progress)
        self._environment.report(progress)

    async def _write_allocation(
        self, cached: CachedResourceClaim, holding: ClaimHolding, execution: Execution
    ) -> None:
        decision = execution.decision
        reserved = self._consumers(cached, decision)
        keeps = self._environment.keeps_timestamp()
        try:
            answer = await self._writes.commit(
                cached,
                holding.allocation,
                reserved_for=reserved,
                timestamp_unix_s=self._clock.now_unix_s() if keeps else None,
            )
        except (ConflictError, NotFoundError, RefusedError, LeaseExpiredError):
            # Certainly not written.
            self.in_flight.leave(holding.claim_uid)
            raise
        except KubeError:
            self.in_flight.doubt(holding.claim_uid, self._clock.monotonic_s() + MAX_WRITE_S)
            raise
        self._informers.apply_response(CLAIMS, answer)
        self.in_flight.leave(holding.claim_uid)
        _check_kept(bool((answer.get("status") or {}).get("allocation")), "status.allocation")

    def _consumers(self, cached: CachedResourceClaim, decision: PodDecision) -> list[Consumer]:
        """The consumers for which a claim is reserved with its allocation: the pod if dray binds
        it, or the native PodGroup that owns the claim. kube-scheduler makes its own
        reservations."""
        if decision.binder != OWNER_DRAY:
            return []
        pod = self._cache.pods[decision.pod_uid].pod
        group = None if pod is None else group_of_claim(self._cache, pod, cached.claim.name)
        if group is not None:
            return [Consumer(group.key.name, group.uid, is_group=True)]
        return [Consumer(decision.name, decision.pod_uid)]

    async def _hold(self, name: str, execution: Execution) -> None:
        if self._hook is not None:
            await self._hook(name, execution.decision)


def _check_kept(is_kept: bool, what: str) -> None:
    """Raises KubeUnavailableError if the server has stored a write without a part of it: then the
    step is tried again after a rest, and not at once for ever."""
    if not is_kept:
        raise KubeUnavailableError(
            f"the API server does not keep {what} of the ResourceClaim: does an admission webhook "
            "or policy remove it?"
        )
