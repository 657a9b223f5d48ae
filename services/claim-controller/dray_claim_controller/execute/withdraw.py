"""Takes back what a decision wrote: the pod is told, the claim voided, then cleared."""

from dray.kube.ports import CLAIMS, PODS
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.deciding.executing import MayTakeBack, Untold
from dray_claim_controller.execute.void_writes import VoidWrites
from dray_claim_controller.execute.voids import is_held
from dray_claim_controller.execute.writes import ClaimWrites
from dray_claim_controller.observe.watching import Watching


class Withdrawer:
    """Voids attempts and clears allocations that nobody but dray has reserved.

    Void comes first: from then on no executor, however late, commits the attempt again; a
    restart between the two finds the claim void and clears it. Before that a pod that dray binds
    is told: from then on no executor binds it by that attempt, and one that has bound it
    already moved the pod, so that nothing is taken back.
    """

    def __init__(self, watching: Watching, writes: ClaimWrites, voids: VoidWrites) -> None:
        self.voids = voids
        self._writes = writes
        self._watching = watching
        self._picture = watching.picture

    async def withdraw(
        self, decision: PodDecision, *, is_last_try: bool = False, failure: str = ""
    ) -> None:
        """Take the whole decision back. Raises any KubeError: read again and repeat; only what the
        API server refuses to void is given up, and after a last try what it can't.

        ``failure``: why another attempt would fare alike; then that is not made at once.
        """
        for claim in decision.claims:
            if not self._may_take_back(claim, decision):
                continue
            # What is not held now can't be committed once it is void: only this needs the pod.
            if is_held(self._picture, claim):
                await self._keep_unbound(decision)
            await self.voids.void(claim.uid, claim.attempt, is_last_try=is_last_try)
            if is_held(self._picture, claim):
                await self.clear(claim.uid)
            if failure:
                # In one fact with what was written last: nothing has run since.
                self.voids.rest(claim.uid, claim.attempt, failure)

    async def clear(self, uid: str) -> None:
        """Clear the allocation. Raises ConflictError, also where somebody reserved it."""
        seen = self._picture.claims.get(uid)
        if seen is not None and seen.claim.allocation is not None:
            self._watching.answered(CLAIMS, await self._writes.clear(seen))

    async def _keep_unbound(self, decision: PodDecision) -> None:
        """Have the pod say, once for all of the decision, by what it is never bound."""
        if voids := self._watching.ask(Untold(decision=decision)):
            pod = self._picture.pods[decision.pod_uid].pod
            assert pod is not None
            self._watching.answered(PODS, await self._writes.keep_unbound(pod, voids))

    def _may_take_back(self, claim: ClaimDecision, decision: PodDecision) -> bool:
        question = MayTakeBack(
            claim_uid=claim.uid,
            attempt=claim.attempt,
            pod_uid=decision.pod_uid,
            binder=decision.binder,
        )
        return self._watching.ask(question)
