"""Which epoch a domain's decision log has to be in. Pure."""

import math
from collections.abc import Iterable, Sequence

from dray.api.claims import EPOCH_SPAN
from dray.bus.ports import StreamState
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.cache.stored_pool_status import RememberedLog
from dray_claim_controller.execution.decisions.next_step import epoch_of


def is_lost(remembered: RememberedLog, state: StreamState | None, seen_sequence: int) -> bool:
    """Whether the log is missing, or ends below a sequence that somebody has seen.

    A purged log keeps its last sequence, so a lower one means that acknowledged records are
    gone (a server that lost power before it synced, an older store brought back).
    """
    if state is None:
        return True
    return state.last_sequence < max(remembered.last_sequence, seen_sequence)


def next_epoch(
    remembered: RememberedLog,
    published: int,
    attempts: Iterable[int],
    *,
    inherited: Sequence[int] = (),
    created_unix_s: float = 0.0,
) -> int:
    """An epoch above every one that anybody may have decided in.

    ``remembered``: by the pool. ``published``: on the bus. ``attempts``: the highest of each claim,
    begun or void. ``inherited``: the same for open claims that are older than the pool, which was
    created at ``created_unix_s``: then an earlier pool of this name was deleted. If nothing
    remembers the epochs of that pool, the second of the new pool's creation is above all of them.
    """
    executed = [epoch_of(attempt) for attempt in attempts if attempt > 0]
    counted = max(remembered.epoch, published, *executed, 0) + 1
    if remembered.epoch or published or not inherited or _voided_together(inherited):
        return counted
    return max(counted, math.ceil(created_unix_s))


def _voided_together(attempts: Sequence[int]) -> bool:
    """Whether the end of an epoch voided all of these claims, and no attempt was begun since: then
    an epoch counted from their marks is above every decision about them."""
    highest = max(attempts)
    return 0 < highest == min(attempts) and highest % EPOCH_SPAN == 0


class ReopenCheck(RecordedRule[bool], frozen=True, kw_only=True, tag="must-begin"):
    """Whether a domain's log is opened again, under the next epoch."""

    domain: str
    remembered: RememberedLog
    """In the pool's status."""
    state: StreamState | None
    """The state of the remembered epoch's log."""
    seen_sequence: int
    """Last record of that log that this term has read."""
    facts_created: str
    """The creation time of the current facts' stream."""

    def answer(self, cache: ObjectCache) -> bool:
        lost = is_lost(self.remembered, self.state, self.seen_sequence)
        begins = self.remembered.epoch == 0
        return lost or begins or self.remembered.facts_created != self.facts_created


class NextEpoch(RecordedRule[int], frozen=True, kw_only=True, tag="next-epoch"):
    """The epoch to begin with."""

    domain: str
    remembered: RememberedLog
    published: int
    """The epoch in the domain's fact."""
    attempts: tuple[int, ...]
    """Highest attempt on each of the pool's claims."""
    inherited: tuple[int, ...] = ()
    """Highest attempt on each claim that is older than the pool and not allocated."""
    created_unix_s: float = 0.0
    """When the pool was created."""

    def answer(self, cache: ObjectCache) -> int:
        return next_epoch(
            self.remembered,
            self.published,
            self.attempts,
            inherited=self.inherited,
            created_unix_s=self.created_unix_s,
        )
