"""In which order facts are published that build on one another. Pure.

Of a claim that can't be read it is unknown which devices it holds, so the slices say that these are
given to nobody. Readers know of every device at every moment that it is held: slices say so before
the claim's fact stops saying which devices it holds, and stop saying so after it says that again.
"""

from enum import IntEnum

from dray.messages.facts import ClaimObserved, SliceObserved
from dray_claim_controller.observe.cards import is_vague
from dray_claim_controller.observe.facts import is_withheld
from dray_claim_controller.observe.outbox import Outbox
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import Key


class Turn(IntEnum):
    """When something is published."""

    WITHHOLDS = 0
    """A slice with devices that a claim may hold."""
    IS_VAGUE = 1
    """A claim of which it is, or was, unknown which devices it holds."""
    ANY = 2
    RELEASES = 3
    """A slice with devices that were withheld."""


class FactQueue:
    """What changed and is not published yet."""

    def __init__(self, picture: Picture, outbox: Outbox) -> None:
        """``outbox``: what was published."""
        self._picture = picture
        self._outbox = outbox
        self._waiting: dict[Turn, dict[Key, int]] = {turn: {} for turn in Turn}

    def take_all(self) -> None:
        """Take over what changed."""
        for key, revision in self._picture.take_dirty():
            self._waiting[self._turn(key)][key] = revision

    def take(self, most: int) -> list[tuple[Key, int]]:
        """What to publish next, with the revision that changed it; nothing once all is taken."""
        if any(self._waiting.values()):
            self._take_urgent()
        for waiting in self._waiting.values():
            if waiting:
                return [(key, waiting.pop(key)) for key in list(waiting)[:most]]
        return []

    def rest(self) -> list[tuple[Key, int]]:
        """What waits, in order."""
        return [entry for waiting in self._waiting.values() for entry in waiting.items()]

    def _take_urgent(self) -> None:
        """Take over what changed in the meantime where something that waits builds on it."""
        dirty = self._picture.dirty
        for key in list(dirty):
            turn = self._turn(key)
            if turn is Turn.ANY:
                continue
            for waiting in self._waiting.values():
                waiting.pop(key, None)
            self._waiting[turn][key] = dirty.pop(key)

    def _turn(self, key: Key) -> Turn:
        last = self._outbox.last(key)
        if key.kind == SliceObserved.NAME:
            observed, _ = self._picture.cards.slices.get(key.identity, (None, 0))
            if observed is not None and self._picture.cards.possible_holder(observed):
                return Turn.WITHHOLDS
            if isinstance(last, SliceObserved) and is_withheld(last.slice):
                return Turn.RELEASES
        if key.kind == ClaimObserved.NAME:
            seen = self._picture.claims.get(key.identity)
            was_vague = isinstance(last, ClaimObserved) and is_vague(last.claim)
            if was_vague or (seen is not None and is_vague(seen.claim)):
                return Turn.IS_VAGUE
        return Turn.ANY
