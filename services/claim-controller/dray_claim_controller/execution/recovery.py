"""Recovers pods that make no progress: kube-scheduler refuses them, it cleared their allocation,
or the log of their decision was lost."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from dray.runtime.clock import Clock
from dray_claim_controller.cache.object_cache import PodValue
from dray_claim_controller.execution.decisions.adoption import (
    UnfinishedPlacements,
    UnfinishedPods,
    is_unfinished,
)
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.decisions.unschedulable import (
    Cleared,
    Refused,
    cleared,
    unschedulable_attempt,
)
from dray_claim_controller.execution.rollback import Rollback
from dray_claim_controller.informers import Informers
from dray_claim_controller.tracing import rollback_span
from dray_claim_controller.work_queue import FairWorkQueue

_LOOKED_AT: Final[tuple[PodValue[Any], ...]] = (is_unfinished, cleared, unschedulable_attempt)


@dataclass(frozen=True, slots=True)
class _PendingRollback:
    """What is to be rolled back for one pod."""

    namespace: str
    pod_uid: str
    cleared: tuple[str, int] | None = None
    """The claim, by UID, whose allocation kube-scheduler has cleared, and the attempt to be voided;
    None: kube-scheduler refuses the pod, and all of its claims are rolled back."""


class PodRecovery:
    """Looks every ``every_s`` seconds.

    An allocation that kube-scheduler has refused for ``after_s`` is rolled back; if it is not the
    pod's first, ``backoff_s`` later. An attempt whose allocation kube-scheduler has cleared is
    voided. Pods that have lacked only the last step for ``finish_after_s`` are given to ``finish``.
    ``executing`` returns the UIDs of pods in execution. Failed writes are tried again, later each
    time, and delay no other pod.
    """

    def __init__(
        self,
        informers: Informers,
        clock: Clock,
        rollback: Rollback,
        *,
        after_s: float,
        backoff_s: float,
        finish_after_s: float,
        every_s: float,
        finish: Callable[[Execution], None],
        executing: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.rolled_back = 0
        self.cleared = 0
        """Attempts voided because kube-scheduler had cleared their allocation."""
        self._informers = informers
        self._clock = clock
        self._every_s = every_s
        self._after_s = after_s
        self._backoff_s = backoff_s
        self._finish_after_s = finish_after_s
        self._stuck_since_s: dict[str, float] = {}
        self._halfway_since_s: dict[str, float] = {}
        self._finish = finish
        self._executing = executing
        self._rollback = rollback
        self._queue = FairWorkQueue(
            clock, self._roll_back, name="stuck", group_of=lambda what: what.namespace
        )

    @property
    def backlog(self) -> int:
        """Pods still to be rolled back."""
        return len(self._queue)

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="take-back")
            group.create_task(self._reconcile_forever(), name="look-for-stuck")

    async def _reconcile_forever(self) -> None:
        while True:
            for value in _LOOKED_AT:
                for _ in self._informers.cache.prepare(value):
                    await asyncio.sleep(0)
            self.finish()
            self.void_cleared()
            self.scan()
            await self._clock.sleep(self._every_s)

    def finish(self) -> None:
        """Hand over pods that have their devices and lack only the last step."""
        due = self._informers.evaluate(
            UnfinishedPods(
                after_s=self._finish_after_s,
                now_s=self._clock.monotonic_s(),
                since_s=self._halfway_since_s,
            )
        )
        self._halfway_since_s = due.since_s
        if due.now:
            for execution in self._informers.evaluate(UnfinishedPlacements(pods=due.now)):
                self._finish(execution)

    def void_cleared(self) -> None:
        """Void the attempts that kube-scheduler has undone; the allocators decide again,
        and avoid the node for a while."""
        rule = Cleared(executing=tuple(sorted(self._executing())))
        for pod_uid, claim_uid in self._informers.evaluate(rule):
            claim = self._informers.cache.claims[claim_uid].claim
            self._queue.add(_PendingRollback(claim.namespace, pod_uid, (claim_uid, claim.decision)))

    def scan(self) -> None:
        """Roll back what is due; the allocators see void claims and decide again."""
        due = self._informers.evaluate(
            Refused(
                after_s=self._after_s,
                now_s=self._clock.monotonic_s(),
                since_s=self._stuck_since_s,
                backoff_s=self._backoff_s,
            )
        )
        self._stuck_since_s = due.since_s
        for uid in due.now:
            if (pod := self._informers.cache.pods[uid].pod) is not None:
                self._queue.add(_PendingRollback(pod.namespace, uid))

    async def _roll_back(self, what: _PendingRollback) -> None:
        # A reservation that came in between is a conflict or refusal: kube-scheduler is binding
        # after all.
        if what.cleared is not None:
            await self._void(what.pod_uid, *what.cleared)
        elif what.pod_uid in self._stuck_since_s:
            await self._roll_back_stuck(what.pod_uid)

    async def _void(self, pod_uid: str, claim_uid: str, attempt: int) -> None:
        cache = self._informers.cache
        cached, held = cache.pods.get(pod_uid), cache.claims.get(claim_uid)
        if held is None or held.claim.allocation is not None:
            return
        if self._rollback.voids.is_settled(held, attempt):
            return
        structlog.get_logger().info(
            "cleared by kube-scheduler", claim=held.claim.name, voids=attempt
        )
        reason = "kube-scheduler cleared the allocation to place the pod elsewhere"
        with rollback_span("void", held, cached, attempt=attempt, reason=reason):
            await self._rollback.voids.void(claim_uid, attempt)
        self.cleared += 1

    async def _roll_back_stuck(self, pod_uid: str) -> None:
        cache = self._informers.cache
        cached = cache.pods.get(pod_uid)
        if cached is None or cached.pod is None:
            return
        for held in cache.claims_of(cached.pod):
            claim = held.claim
            if claim.allocation is None or not claim.decision or claim.reserved_for:
                continue
            structlog.get_logger().info(
                "rolling back", pod=cached.pod.name, claim=claim.name, attempt=claim.decision
            )
            reason = "kube-scheduler finds the pod unschedulable on the claim's node"
            with rollback_span("withdraw", held, cached, attempt=claim.decision, reason=reason):
                await self._rollback.voids.void(claim.uid, claim.decision)
                await self._rollback.clear(claim.uid)
            self.rolled_back += 1
