"""Takes back what a decision wrote: void first, then clear."""

from dray.kube.ports import CLAIMS, Kube
from dray.messages.decisions import PodDecision
from dray_claim_controller.deciding.executing import MayTakeBack
from dray_claim_controller.execute.rules import same_allocation
from dray_claim_controller.execute.writes import ClaimWrites
from dray_claim_controller.observe.watching import Watching


class Withdrawer:
    """Voids attempts and clears allocations that nobody but dray has reserved.

    Void comes first: from then on no executor, however late, commits the attempt again; a
    restart between the two finds the claim void and clears it.
    """

    def __init__(self, kube: Kube, watching: Watching) -> None:
        self._writes = ClaimWrites(kube)
        self._watching = watching
        self._picture = watching.picture

    async def withdraw(self, decision: PodDecision) -> None:
        """Take the whole decision back. Raises ConflictError: read again and repeat."""
        for claim in decision.claims:
            question = MayTakeBack(
                claim_uid=claim.uid,
                attempt=claim.attempt,
                pod_uid=decision.pod_uid,
                binder=decision.binder,
            )
            if not self._watching.ask(question):
                continue
            await self.void(claim.uid, claim.attempt)
            seen = self._picture.claims.get(claim.uid)
            held = None if seen is None else seen.claim.allocation
            if held is not None and same_allocation(held, claim.allocation):
                await self.clear(claim.uid)

    async def void(self, uid: str, attempt: int) -> None:
        """Void attempts up to ``attempt``. Raises ConflictError."""
        seen = self._picture.claims.get(uid)
        if seen is not None and seen.claim.void < attempt:
            self._watching.answered(CLAIMS, await self._writes.void(seen, attempt))

    async def clear(self, uid: str) -> None:
        """Clear the allocation. Raises ConflictError, also where somebody reserved it."""
        seen = self._picture.claims.get(uid)
        if seen is not None and seen.claim.allocation is not None:
            self._watching.answered(CLAIMS, await self._writes.clear(seen))
