"""Which epoch a domain's decision log has to be in. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dray.bus.ports import StreamState
from dray.domain.claims import EPOCH_SPAN
from dray.kube.ports import Object
from dray_claim_controller.domains.stored_status import stored_status
from dray_claim_controller.execute.rules import epoch_of


@dataclass(frozen=True, slots=True)
class Recorded:
    """What ``GPUPool.status.decisionLog`` remembers."""

    epoch: int = 0
    last_sequence: int = 0
    facts_created: str = ""
    """Which stream of facts the records count in: ``StreamState.created``."""


def recorded(pool: Object) -> Recorded:
    """The pool's log as its status remembers it; epoch 0: none was ever opened."""
    log = stored_status(pool).get("decisionLog") or {}
    return Recorded(
        int(log.get("epoch") or 0),
        int(log.get("lastSequence") or 0),
        str(log.get("factsCreated") or ""),
    )


def is_lost(remembered: Recorded, state: StreamState | None, seen_sequence: int) -> bool:
    """Whether the log is missing, or ends below a sequence that somebody has seen.

    A purged log keeps its last sequence, so a lower one means that acknowledged records are
    gone (a server that lost power before it synced, an older store brought back).
    """
    if state is None:
        return True
    return state.last_sequence < max(remembered.last_sequence, seen_sequence)


def next_epoch(
    remembered: Recorded,
    published: int,
    attempts: Iterable[int],
    *,
    inherited: Sequence[int] = (),
    created_unix_s: float = 0.0,
) -> int:
    """An epoch above every one that anybody may have decided in.

    ``remembered`` by the pool, ``published`` on the bus, ``attempts``: the highest on each claim,
    begun or void. ``inherited``: those of open claims that are older than the pool, which was
    created at ``created_unix_s``: the pool was deleted and made again. Where nothing remembers
    its former epochs, the second of its creation is above all of them.
    """
    executed = [epoch_of(attempt) for attempt in attempts if attempt > 0]
    counted = max(remembered.epoch, published, *executed, 0) + 1
    if remembered.epoch or published or not inherited or _voided_together(inherited):
        return counted
    return max(counted, math.ceil(created_unix_s))


def _voided_together(attempts: Sequence[int]) -> bool:
    """Whether an epoch's end voided these claims, all of them, and none was begun since: then
    an epoch counted from their marks is above what anybody decided for them."""
    highest = max(attempts)
    return 0 < highest == min(attempts) and highest % EPOCH_SPAN == 0
