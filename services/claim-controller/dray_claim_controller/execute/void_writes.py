"""Writes on claims that attempts are void, and gives attempts up where Kubernetes refuses that."""

from collections.abc import Callable
from typing import Final

import structlog

from dray.kube.ports import CLAIMS, Kube, KubeError, KubeUnavailableError, RefusedError
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.execute.writes import ClaimWrites
from dray_claim_controller.observe.given_up import given_up, may_be_committed
from dray_claim_controller.observe.seen import SeenClaim, SeenPod
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.work_queue import WorkQueue

_AGAIN_S: Final = 5.0
"""The first rest before a void that was refused is tried again."""
_LONGEST_S: Final = 300.0
_MOST_RESTS: Final = 1000
"""Kept before those of claims that are gone are forgotten."""
_MESSAGE_LIMIT: Final = 512
Tell = Callable[[SeenPod, str, str], None]
"""Reports (pod, reason, message) as a warning event."""


class VoidWrites:
    """The voids of one term. What is given up is never carried out by this term, nor, once its
    fact is published, by any later one (docs/adr/0030).

    A void that could not be written is tried again, at least every five minutes. A claim whose
    attempts fail one after the other is decided about again later each time, at least every five
    minutes, too, or once somebody else has changed it.
    """

    def __init__(
        self,
        kube: Kube,
        watching: Watching,
        clock: Clock,
        writes: ClaimWrites,
        tell: Tell = lambda *_: None,
    ) -> None:
        self._kube = kube
        self._writes = writes
        self._tell = tell
        self._watching = watching
        self._picture = watching.picture
        self._queue = WorkQueue(
            clock,
            self._write_again,
            name="given-up",
            group_of=self._namespace_of,
            first_s=_AGAIN_S,
            most_s=_LONGEST_S,
        )
        self._rests: dict[str, Backoff] = {}
        """Of claims whose attempts fail one after the other, by UID."""

    async def run(self) -> None:
        """Write what could not be written, and end the rests of claims, until cancelled."""
        for uid in self._picture.given_up:
            self._queue.add(uid)
        await self._queue.run()

    async def void(self, uid: str, attempt: int, *, is_last_try: bool = False) -> None:
        """Void attempts up to ``attempt``, or give them up: where Kubernetes refuses to write it,
        and after a last try whatever it answers.

        Raises KubeError, but RefusedError: after a last try only where the server is away.
        """
        seen = self._picture.claims.get(uid)
        if seen is None or self.is_settled(seen, attempt):
            return
        try:
            await self._write(seen, attempt, is_last_try=is_last_try)
        except RefusedError as error:
            await self._give_up(seen, attempt, error)
        except KubeError as error:
            if not is_last_try:
                raise
            # A server that is away answers about no claim: that is waited out.
            await self._kube.version()
            await self._give_up(seen, attempt, error)

    def rest(self, uid: str, attempt: int, why: str) -> None:
        """The attempt came to nothing, and the next one would fare alike: have it decided about
        again only after a while."""
        seen, known = self._picture.claims.get(uid), self._picture.given_up.get(uid)
        if seen is None or (known is not None and known.message):
            return
        self._watching.give_up(uid, given_up(seen.as_written, known, attempt, why[:_MESSAGE_LIMIT]))
        if len(self._rests) >= _MOST_RESTS:
            alive = self._picture.claims
            self._rests = {one: rest for one, rest in self._rests.items() if one in alive}
        backoff = self._rests.setdefault(uid, Backoff(_AGAIN_S, _LONGEST_S))
        self._queue.add_after(uid, backoff.next_s())

    def is_settled(self, seen: SeenClaim, attempt: int) -> bool:
        """Whether attempts up to ``attempt`` are void or given up already."""
        known = self._picture.given_up.get(seen.claim.uid)
        given_up = 0 if known is None else known.attempt
        return max(seen.written_void, given_up) >= attempt

    async def _write(self, seen: SeenClaim, attempt: int, *, is_last_try: bool) -> None:
        try:
            answer = await self._writes.void(seen, attempt)
        except (RefusedError, KubeUnavailableError) as error:
            is_final = is_last_try or isinstance(error, RefusedError)
            if not is_final or not 0 < seen.claim.decision <= attempt:
                raise
            # Its annotations may be full, or the claim as large as the server stores any: in place
            # of the mark the void makes it no larger.
            answer = await self._writes.void(seen, attempt, in_place_of_mark=True)
        self._watching.answered(CLAIMS, answer)

    async def _give_up(self, seen: SeenClaim, attempt: int, error: KubeError) -> None:
        claim = seen.claim
        try:
            # What was written last may have been written by a former leader.
            await self._watching.refresh_claim(claim.uid, claim.namespace, claim.name)
        except KubeError as unread:
            # Then what was listed when the term began counts, and what was seen since: whoever
            # led before has written its last mark by then.
            structlog.get_logger().info("not read again", claim=claim.name, error=str(unread))
        now = self._picture.claims.get(claim.uid)
        if now is None:
            return
        written = now.as_written
        known = given_up(
            written, self._picture.given_up.get(claim.uid), attempt, str(error)[:_MESSAGE_LIMIT]
        )
        structlog.get_logger().error(
            "Kubernetes does not store that an attempt is void; it is given up",
            claim=f"{claim.namespace}/{claim.name}",
            attempt=attempt,
            devices="kept" if may_be_committed(written, attempt) else "released",
            error=str(error),
        )
        self._watching.give_up(claim.uid, known)
        self._queue.add_after(claim.uid, _AGAIN_S)
        for pod in self._picture.users.of(claim):
            self._tell(
                self._picture.pods[pod.uid],
                "ClaimNotWritten",
                f"ResourceClaim {claim.name} can't be written, so no devices are allocated to it "
                f"until it can be: {error}",
            )

    async def _write_again(self, uid: str) -> None:
        """Void what is given up, and have the claim be decided about again. Raises any KubeError:
        it is tried again."""
        if (seen := self._picture.claims.get(uid)) is None:
            self._rests.pop(uid, None)
            return
        await self._watching.refresh_claim(uid, seen.claim.namespace, seen.claim.name)
        known, seen = self._picture.given_up.get(uid), self._picture.claims.get(uid)
        if known is None or seen is None:
            return
        if seen.claim.allocation is not None and seen.claim.decision > known.attempt:
            self._rests.pop(uid, None)
        if seen.written_void < known.attempt:
            await self._write(seen, known.attempt, is_last_try=True)
        if self._picture.given_up.get(uid) is known:
            self._watching.give_up(uid, None)

    def _namespace_of(self, uid: str) -> str:
        seen = self._picture.claims.get(uid)
        return "" if seen is None else seen.claim.namespace
