"""Questions about decision logs' epochs. Pure."""

from dray.bus.ports import StreamState
from dray_claim_controller.deciding.seam import Question
from dray_claim_controller.domains.rules import Recorded, is_lost, next_epoch
from dray_claim_controller.observe.picture import Picture


class MustBegin(Question[bool], frozen=True, kw_only=True, tag="must-begin"):
    """Whether a domain's log is begun anew, under the next epoch."""

    domain: str
    remembered: Recorded
    """In the pool's status."""
    state: StreamState | None
    """Of the remembered epoch's log."""
    seen_sequence: int
    """Last record of that log that this term has read."""
    facts_created: str
    """Which stream of facts there is."""

    def answer(self, picture: Picture) -> bool:
        lost = is_lost(self.remembered, self.state, self.seen_sequence)
        begins = self.remembered.epoch == 0
        return lost or begins or self.remembered.facts_created != self.facts_created


class NextEpoch(Question[int], frozen=True, kw_only=True, tag="next-epoch"):
    """The epoch to begin with."""

    domain: str
    remembered: Recorded
    published: int
    """Epoch that the domain's fact says."""
    attempts: tuple[int, ...]
    """Highest attempt on each of the pool's claims."""
    inherited: tuple[int, ...] = ()
    """Highest attempt on each that is older than the pool and not allocated."""
    created_unix_s: float = 0.0
    """When the pool was created."""

    def answer(self, picture: Picture) -> int:
        return next_epoch(
            self.remembered,
            self.published,
            self.attempts,
            inherited=self.inherited,
            created_unix_s=self.created_unix_s,
        )
