"""Pods that make no progress: refused by kube-scheduler, robbed of their allocation by it, or
left halfway by a lost log."""

from collections.abc import Callable, Iterable

import structlog

from dray.domain.errors import TemporaryError
from dray.kube.ports import Kube, NotFoundError, RefusedError
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.executing import Cleared, Halfway, Refused, StartedHalfway
from dray_claim_controller.execute.orders import Order
from dray_claim_controller.execute.withdraw import Withdrawer
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.tracing import taking_back


class StuckPods:
    """Looks every ``every_s`` seconds.

    What kube-scheduler has refused for ``after_s`` is withdrawn, an attempt after the first only
    ``backoff_s`` later; what it has cleared is voided;
    what has lain halfway for ``finish_after_s``, with nobody at it, is handed to ``finish``.
    ``executing`` tells the pods that are being executed, by UID.
    """

    def __init__(
        self,
        kube: Kube,
        watching: Watching,
        clock: Clock,
        *,
        after_s: float,
        backoff_s: float,
        finish_after_s: float,
        every_s: float,
        finish: Callable[[Order], None],
        executing: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.withdrawn = 0
        self.cleared = 0
        """Attempts voided because kube-scheduler had taken their allocation back."""
        self._watching = watching
        self._clock = clock
        self._every_s = every_s
        self._after_s = after_s
        self._backoff_s = backoff_s
        self._finish_after_s = finish_after_s
        self._stuck_since_s: dict[str, float] = {}
        self._halfway_since_s: dict[str, float] = {}
        self._finish = finish
        self._executing = executing
        self._withdrawer = Withdrawer(kube, watching)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.finish()
            await self.void_cleared()
            await self.look()
            await self._clock.sleep(self._every_s)

    def finish(self) -> None:
        """Hand over pods that have their devices and lack only the last step."""
        due = self._watching.ask(
            StartedHalfway(
                after_s=self._finish_after_s,
                now_s=self._clock.monotonic_s(),
                since_s=self._halfway_since_s,
            )
        )
        self._halfway_since_s = due.since_s
        if due.now:
            for order in self._watching.ask(Halfway(pods=due.now)):
                self._finish(order)

    async def void_cleared(self) -> None:
        """Void the attempts that kube-scheduler has undone; the allocators decide anew, and
        keep away from the node for a while."""
        question = Cleared(executing=tuple(sorted(self._executing())))
        for pod_uid, claim_uid in self._watching.ask(question):
            try:
                await self._void(pod_uid, claim_uid)
            except (TemporaryError, NotFoundError, RefusedError) as error:
                structlog.get_logger().info("not voided", claim_uid=claim_uid, error=str(error))

    async def look(self) -> None:
        """Withdraw what is due; the allocators see void claims and decide anew."""
        due = self._watching.ask(
            Refused(
                after_s=self._after_s,
                now_s=self._clock.monotonic_s(),
                since_s=self._stuck_since_s,
                backoff_s=self._backoff_s,
            )
        )
        self._stuck_since_s = due.since_s
        for uid in due.now:
            try:
                await self._withdraw(uid)
            except (TemporaryError, NotFoundError, RefusedError) as error:
                # A reservation that came in between is a conflict or refusal: kube-scheduler
                # is binding after all.
                structlog.get_logger().info("not withdrawn", pod_uid=uid, error=str(error))

    async def _void(self, pod_uid: str, claim_uid: str) -> None:
        picture = self._watching.picture
        seen, held = picture.pods[pod_uid], picture.claims[claim_uid]
        claim = held.claim
        structlog.get_logger().info(
            "cleared by kube-scheduler", claim=claim.name, voids=claim.decision
        )
        reason = "kube-scheduler took the allocation back to place the pod elsewhere"
        with taking_back("void", held, seen, attempt=claim.decision, reason=reason):
            await self._withdrawer.void(claim_uid, claim.decision)
        self.cleared += 1

    async def _withdraw(self, pod_uid: str) -> None:
        picture = self._watching.picture
        seen = picture.pods[pod_uid]
        if seen.pod is None:
            return
        for held in picture.claims_of(seen.pod):
            claim = held.claim
            if claim.allocation is None or not claim.decision or claim.reserved_for:
                continue
            structlog.get_logger().info(
                "withdrawing", pod=seen.pod.name, claim=claim.name, attempt=claim.decision
            )
            reason = "kube-scheduler finds the pod unschedulable on the claim's node"
            with taking_back("withdraw", held, seen, attempt=claim.decision, reason=reason):
                await self._withdrawer.void(claim.uid, claim.decision)
                await self._withdrawer.clear(claim.uid)
            self.withdrawn += 1
