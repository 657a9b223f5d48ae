"""Withdraws allocations that kube-scheduler has refused for a while."""

import structlog

from dray.domain.errors import TemporaryError
from dray.kube.ports import Kube, NotFoundError, RefusedError
from dray.runtime.clock import Clock
from dray_claim_controller.execute.withdraw import Withdrawer
from dray_claim_controller.execute.withdrawal import Stuck, is_stuck
from dray_claim_controller.observe.watching import Watching


class StuckPods:
    """Looks every ``every_s`` seconds; what is stuck for ``after_s`` is withdrawn."""

    def __init__(
        self, kube: Kube, watching: Watching, clock: Clock, *, after_s: float, every_s: float
    ) -> None:
        self.withdrawn = 0
        self._watching = watching
        self._clock = clock
        self._every_s = every_s
        self._stuck = Stuck(after_s)
        self._withdrawer = Withdrawer(kube, watching)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(self._every_s)

    async def look(self) -> None:
        """Withdraw what is due; the allocators see void claims and decide anew."""
        picture = self._watching.picture
        stuck = [seen.uid for seen in picture.our_pods() if is_stuck(picture, seen)]
        for uid in self._stuck.due(stuck, self._clock.monotonic_s()):
            try:
                await self._withdraw(uid)
            except (TemporaryError, NotFoundError, RefusedError) as error:
                # A reservation that came in between is a conflict or refusal: kube-scheduler
                # is binding after all.
                structlog.get_logger().info("not withdrawn", pod_uid=uid, error=str(error))

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
            await self._withdrawer.void(claim.uid, claim.decision)
            await self._withdrawer.clear(claim.uid)
            self.withdrawn += 1
