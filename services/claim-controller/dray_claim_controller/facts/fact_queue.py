"""The order in which dependent facts are published. Pure.

If a claim can't be read, nobody knows which devices it holds, so the slices withhold every device
that it may hold. Readers know at every moment that a device is held: slices withhold it before the
claim's fact stops naming it, and release it after the claim's fact names it again.
"""

from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import Final

from dray.messages.facts import ClaimObserved, SliceObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.devices import is_vague
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import is_withheld
from dray_claim_controller.facts.outbox import Outbox

_AT_ONCE: Final = 1000
"""Keys that are sorted into phases in one step."""
FactEntry = tuple[FactKey, int]
"""The key of a fact, and the revision that changed it."""


class PublishPhase(IntEnum):
    """Phases of a publication, in order."""

    WITHHOLDS = 0
    """A slice with devices that a claim may hold."""
    IS_VAGUE = 1
    """A claim whose devices are, or were, unknown."""
    ANY = 2
    RELEASES = 3
    """A slice with devices that were withheld."""


class FactQueue:
    """Changed facts that are not published yet."""

    def __init__(self, cache: ObjectCache, outbox: Outbox) -> None:
        """``outbox``: what was published."""
        self._cache = cache
        self._outbox = outbox
        self._waiting: dict[PublishPhase, OrderedDict[FactKey, int]] = {
            turn: OrderedDict() for turn in PublishPhase
        }
        """An OrderedDict, because each batch would search a plain dict past all keys that were
        taken."""

    def take_all(self) -> Iterator[None]:
        """Take over what has changed so far, in steps: ``take`` after the last one."""
        left = len(self._cache.dirty)
        while left > 0 and (taken := self._cache.take_dirty(min(left, _AT_ONCE))):
            left -= len(taken)
            for key, revision in taken:
                self._waiting[self._turn(key)][key] = revision
            yield

    def take(self, most: int) -> Iterator[list[FactEntry]]:
        """What to publish next, in batches of at most ``most`` that may be on their way together:
        no key comes twice, and no fact builds on another. Nothing once all is taken."""
        taken: set[FactKey] = set()
        phase = self._next_phase()
        while phase is not None:
            waiting = self._waiting[phase]
            batch = list(islice(waiting.items(), most))
            if any(key in taken for key, _ in batch):
                return
            for key, _ in batch:
                del waiting[key]
                taken.add(key)
            yield batch
            # In other phases, what is on its way decides what is urgent.
            if phase is not PublishPhase.ANY or self._next_phase() is not phase:
                return

    def _next_phase(self) -> PublishPhase | None:
        if any(self._waiting.values()):
            self._take_urgent()
        return next((phase for phase, waiting in self._waiting.items() if waiting), None)

    def rest(self) -> list[FactEntry]:
        """What waits, in order."""
        return [entry for waiting in self._waiting.values() for entry in waiting.items()]

    def _take_urgent(self) -> None:
        """Take over the keys that changed meanwhile and on which something that waits builds."""
        dirty = self._cache.dirty
        for key in self._cache.take_newly_marked():
            turn = self._turn(key)
            if turn is PublishPhase.ANY or key not in dirty:
                continue
            for waiting in self._waiting.values():
                waiting.pop(key, None)
            self._waiting[turn][key] = dirty.pop(key)

    def _turn(self, key: FactKey) -> PublishPhase:
        last = self._outbox.last(key)
        if key.kind == SliceObserved.NAME:
            observed, _ = self._cache.devices.slices.get(key.identity, (None, 0))
            if observed is not None and self._cache.devices.possible_holder(observed):
                return PublishPhase.WITHHOLDS
            if isinstance(last, SliceObserved) and is_withheld(last.slice):
                return PublishPhase.RELEASES
        if key.kind == ClaimObserved.NAME:
            cached = self._cache.claims.get(key.identity)
            was_vague = isinstance(last, ClaimObserved) and is_vague(last.claim)
            if was_vague or (cached is not None and is_vague(cached.claim)):
                return PublishPhase.IS_VAGUE
        return PublishPhase.ANY
