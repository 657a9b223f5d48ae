"""Rolls back the writes of a decision: voids the attempts on the pod and the claim, then clears."""

from typing import Final

import structlog

from dray.kube.ports import CLAIMS, PODS, Kube, KubeError, KubeUnavailableError, RefusedError
from dray.messages.decisions import ClaimDecision, PodDecision
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.cache.abandoned_attempts import abandon_attempts, may_be_committed
from dray_claim_controller.cache.cached_objects import CachedResourceClaim
from dray_claim_controller.execution.decisions.rollback_rules import (
    PodVoidAnnotation,
    RollbackCheck,
    is_held,
)
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers
from dray_claim_controller.pod_events import ReportEvent
from dray_claim_controller.work_queue import FairWorkQueue

_AGAIN_S: Final = 5.0
"""The first rest before a void that was refused is tried again."""
_LONGEST_S: Final = 300.0
_MOST_RESTS: Final = 1000
"""If there are more, those of claims that are gone are forgotten."""
_MESSAGE_LIMIT: Final = 512


class VoidWriter:
    """Writes the voids of one term. This term never carries out an attempt that was given up; once
    the fact about it is published, no later term does (docs/adr/0030).

    A void that could not be written is tried again at least every five minutes. If a claim's
    attempts keep failing, each new decision about it comes after a longer pause: five minutes or
    less, and no pause once somebody else has changed the claim.
    """

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        clock: Clock,
        writes: ExecutionWrites,
        warn: ReportEvent = lambda *_: None,
    ) -> None:
        self._kube = kube
        self._writes = writes
        self._warn = warn
        self._informers = informers
        self._cache = informers.cache
        self._queue = FairWorkQueue(
            clock,
            self._write_again,
            name="given-up",
            group_of=self._namespace_of,
            first_s=_AGAIN_S,
            most_s=_LONGEST_S,
        )
        self._rests: dict[str, Backoff] = {}
        """By UID, for claims whose attempts fail one after the other."""

    async def run(self) -> None:
        """Write what could not be written, and end the rests of claims, until cancelled."""
        for uid in self._cache.given_up:
            self._queue.add(uid)
        await self._queue.run()

    async def void(self, uid: str, attempt: int, *, is_last_try: bool = False) -> None:
        """Void attempts up to ``attempt``. Give them up if Kubernetes refuses the write, and after
        a last try on any error.

        Raises KubeError, but never RefusedError; after a last try only if the server is away.
        """
        cached = self._cache.claims.get(uid)
        if cached is None or self.is_settled(cached, attempt):
            return
        try:
            await self._write(cached, attempt, is_last_try=is_last_try)
        except RefusedError as error:
            await self._give_up(cached, attempt, error)
        except KubeError as error:
            if not is_last_try:
                raise
            # This raises if the server is away: that says nothing about the claim, so it is waited
            # out.
            await self._kube.version()
            await self._give_up(cached, attempt, error)

    def rest(self, uid: str, attempt: int, why: str) -> None:
        """The attempt failed, and the next one would fail for the same reason: delay the next
        decision about the claim."""
        cached, known = self._cache.claims.get(uid), self._cache.given_up.get(uid)
        if cached is None or (known is not None and known.message):
            return
        self._informers.give_up(
            uid, abandon_attempts(cached.as_written, known, attempt, why[:_MESSAGE_LIMIT])
        )
        if len(self._rests) >= _MOST_RESTS:
            alive = self._cache.claims
            self._rests = {one: rest for one, rest in self._rests.items() if one in alive}
        backoff = self._rests.setdefault(uid, Backoff(_AGAIN_S, _LONGEST_S))
        self._queue.add_after(uid, backoff.next_s())

    def is_settled(self, cached: CachedResourceClaim, attempt: int) -> bool:
        """Whether attempts up to ``attempt`` are void or given up already."""
        known = self._cache.given_up.get(cached.claim.uid)
        given_up = 0 if known is None else known.attempt
        return max(cached.written_void, given_up) >= attempt

    async def _write(self, cached: CachedResourceClaim, attempt: int, *, is_last_try: bool) -> None:
        try:
            answer = await self._writes.void(cached, attempt)
        except (RefusedError, KubeUnavailableError) as error:
            is_final = is_last_try or isinstance(error, RefusedError)
            if not is_final or not 0 < cached.claim.decision <= attempt:
                raise
            # The annotations may be full, or the claim may be as large as the server allows. A void
            # in place of the mark does not make the claim larger.
            answer = await self._writes.void(cached, attempt, in_place_of_mark=True)
        self._informers.apply_response(CLAIMS, answer)

    async def _give_up(self, cached: CachedResourceClaim, attempt: int, error: KubeError) -> None:
        claim = cached.claim
        try:
            # What was written last may have been written by a former leader.
            await self._informers.refresh_claim(claim.uid, claim.namespace, claim.name)
        except KubeError as unread:
            # Then the cache counts: it was listed when the term began, after the former leader's
            # last write.
            structlog.get_logger().info("not read again", claim=claim.name, error=str(unread))
        now = self._cache.claims.get(claim.uid)
        if now is None:
            return
        written = now.as_written
        known = abandon_attempts(
            written, self._cache.given_up.get(claim.uid), attempt, str(error)[:_MESSAGE_LIMIT]
        )
        structlog.get_logger().error(
            "Kubernetes does not store that an attempt is void; it is given up",
            claim=f"{claim.namespace}/{claim.name}",
            attempt=attempt,
            devices="kept" if may_be_committed(written, attempt) else "released",
            error=str(error),
        )
        self._informers.give_up(claim.uid, known)
        self._queue.add_after(claim.uid, _AGAIN_S)
        for pod in self._cache.users.of(claim):
            self._warn(
                self._cache.pods[pod.uid],
                "ClaimNotWritten",
                f"ResourceClaim {claim.name} can't be written, so no devices are allocated to it "
                f"until it can be: {error}",
            )

    async def _write_again(self, uid: str) -> None:
        """Void the attempts that were given up, and let the claim be decided about again. Raises
        any KubeError: it is tried again."""
        if (cached := self._cache.claims.get(uid)) is None:
            self._rests.pop(uid, None)
            return
        await self._informers.refresh_claim(uid, cached.claim.namespace, cached.claim.name)
        known, cached = self._cache.given_up.get(uid), self._cache.claims.get(uid)
        if known is None or cached is None:
            return
        if cached.claim.allocation is not None and cached.claim.decision > known.attempt:
            self._rests.pop(uid, None)
        if cached.written_void < known.attempt:
            await self._write(cached, known.attempt, is_last_try=True)
        if self._cache.given_up.get(uid) is known:
            self._informers.give_up(uid, None)

    def _namespace_of(self, uid: str) -> str:
        cached = self._cache.claims.get(uid)
        return "" if cached is None else cached.claim.namespace


class Rollback:
    """Voids attempts and clears allocations that nobody but dray has reserved.

    The attempt is voided first: from then on no executor, however late, commits it again, and after
    a restart between the two writes the claim is found void and is cleared. Even before that, a pod
    that dray binds gets the void annotation: from then on no executor binds it by that attempt. If
    an executor bound it before, the write conflicts, and nothing is rolled back.
    """

    def __init__(self, informers: Informers, writes: ExecutionWrites, voids: VoidWriter) -> None:
        self.voids = voids
        self._writes = writes
        self._informers = informers
        self._cache = informers.cache

    async def roll_back(
        self, decision: PodDecision, *, is_last_try: bool = False, failure: str = ""
    ) -> None:
        """Roll the whole decision back. Raises any KubeError: read again and repeat. Attempts that
        the API server refuses to void are given up; after a last try, those that it can't void are
        also given up.

        ``failure``: why another attempt would fail for the same reason; then the next one is
        delayed.
        """
        for claim in decision.claims:
            if not self._may_roll_back(claim, decision):
                continue
            # A claim that holds nothing now can't be committed once it is void, so the pod needs no
            # annotation because of it.
            if is_held(self._cache, claim):
                await self._keep_unbound(decision)
            await self.voids.void(claim.uid, claim.attempt, is_last_try=is_last_try)
            if is_held(self._cache, claim):
                await self.clear(claim.uid)
            if failure:
                # Nothing else has run since the last write, so both get into the same fact.
                self.voids.rest(claim.uid, claim.attempt, failure)

    async def clear(self, uid: str) -> None:
        """Clear the allocation. Raises ConflictError, also if it was reserved."""
        cached = self._cache.claims.get(uid)
        if cached is not None and cached.claim.allocation is not None:
            self._informers.apply_response(CLAIMS, await self._writes.clear(cached))

    async def _keep_unbound(self, decision: PodDecision) -> None:
        """Write the pod's void annotation, once for the whole decision: it names the attempts by
        which the pod is never bound."""
        if voids := self._informers.evaluate(PodVoidAnnotation(decision=decision)):
            pod = self._cache.pods[decision.pod_uid].pod
            assert pod is not None
            self._informers.apply_response(PODS, await self._writes.keep_unbound(pod, voids))

    def _may_roll_back(self, claim: ClaimDecision, decision: PodDecision) -> bool:
        rule = RollbackCheck(
            claim_uid=claim.uid,
            attempt=claim.attempt,
            pod_uid=decision.pod_uid,
            binder=decision.binder,
        )
        return self._informers.evaluate(rule)
