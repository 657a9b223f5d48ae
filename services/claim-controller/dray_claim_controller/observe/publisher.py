"""Publishes facts: only what changed, never backwards, tombstones for what vanished."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dray.bus.ports import Bus, BusUnavailableError
from dray.bus.topology import FACTS_STREAM
from dray.messages.base import UndecodableMessageError, decode, encode, subject_prefix
from dray.messages.facts import (
    FACTS,
    ClaimObserved,
    DomainObserved,
    Fact,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    Synced,
    Tick,
)
from dray.runtime.clock import Clock
from dray_claim_controller.observe.facts import Known, fact_of
from dray_claim_controller.observe.outbox import Outbox
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import Key, SeenPod
from dray_claim_controller.tracing import publishing


@dataclass(frozen=True, slots=True)
class Moves:
    """What the domains say about nodes on their way from one pool to another."""

    left: Callable[[], Mapping[tuple[str, str], int]]
    closing: Callable[[], Iterable[str]]


_UNOBSERVED = ("synced", "tick", "cluster", "domain")
"""Facts that have no Kubernetes object whose disappearance would end them."""


class Publisher:
    """The leader's pen. One instance per term: it starts from what the bus holds."""

    def __init__(
        self, bus: Bus, picture: Picture, clock: Clock, *, instance: str, moves: Moves
    ) -> None:
        self.sequence = 0
        """Sequence of the newest fact known to be stored."""
        self._bus = bus
        self._picture = picture
        self._clock = clock
        self._instance = instance
        self._moves = moves
        self._outbox = Outbox()
        self._lock = asyncio.Lock()
        self._ticks = itertools.count(1)

    async def load(self) -> None:
        """Read what was published before, by whomever."""
        state = await self._bus.state(FACTS_STREAM)
        if state is None or state.last_sequence < max(state.first_sequence, 1):
            return
        known = {subject_prefix(fact): fact for fact in FACTS if fact is not InventoryObserved}
        async for delivered in self._bus.read(FACTS_STREAM):
            kind = known.get(".".join(delivered.subject.split(".")[:4]))
            if kind is not None:
                self._remember(delivered.sequence, delivered.payload, kind)
            if delivered.pending == 0:
                return

    async def publish_everything(self) -> None:
        """The whole picture, tombstones for what vanished, then ``Synced``."""
        self._picture.mark_all()
        async with self._lock:
            for key in self._outbox.living():
                if key.kind not in _UNOBSERVED:
                    self._picture.mark(key, self._picture.revision)
            await self._publish_dirty()
            revision = self._picture.revision
            await self._store(Synced(revision=revision, instance=self._instance))

    async def flush(self) -> None:
        """Publish what changed since the last time. Raises BusUnavailableError: try again."""
        async with self._lock:
            await self._publish_dirty()

    async def say(self, key: Key, fact: Fact | None) -> None:
        """Publish a fact that is not made from the picture; None: its tombstone."""
        revision = 0 if fact is None else fact.revision
        async with self._lock:
            for newer in self._outbox.plan(key, fact, revision):
                await self._store(newer)
                self._outbox.published(newer)

    async def tick(self) -> None:
        """Let time pass for those who fold the facts."""
        now_unix_s = self._clock.now_unix_s()
        await self._store(Tick(revision=next(self._ticks), now_unix_s=now_unix_s))

    def domains(self) -> dict[str, int]:
        """Epoch by domain, as published."""
        facts = (self._outbox.last(key) for key in self._outbox.living() if key.kind == "domain")
        return {fact.domain: fact.epoch for fact in facts if isinstance(fact, DomainObserved)}

    def last(self, key: Key) -> Fact | None:
        """The last fact about ``key`` that is no tombstone."""
        return self._outbox.last(key)

    def _remember(self, sequence: int, payload: bytes, kind: type[Fact]) -> None:
        try:
            fact = decode(payload, kind)
        except UndecodableMessageError:
            # Written by a version that is gone; what still exists is published anew.
            return
        self.sequence = sequence
        if fact.NAME == Tick.NAME:
            self._ticks = itertools.count(fact.revision + 1)
        elif fact.NAME != Synced.NAME:
            self._outbox.published(fact)

    async def _publish_dirty(self) -> None:
        dirty = self._picture.take_dirty()
        for done, (key, revision) in enumerate(dirty):
            try:
                await self._publish_key(key, revision)
            except BusUnavailableError:
                for rest, its_revision in dirty[done:]:
                    self._picture.mark(rest, its_revision)
                raise

    async def _publish_key(self, key: Key, revision: int) -> None:
        last = self._outbox.last(key)
        published = last if isinstance(last, NodeObserved) else None
        known = Known(published, self._moves.left(), tuple(self._moves.closing()))
        fact = fact_of(self._picture, key, known)
        for newer in self._outbox.plan(key, fact, revision):
            with publishing(newer, self._pod_of(newer), first=last is None) as traceparent:
                await self._store(newer, traceparent)
            self._outbox.published(newer)

    def _pod_of(self, fact: Fact) -> SeenPod | None:
        """The pod whose trace a fact belongs to."""
        match fact:
            case PodObserved(pod=pod):
                return self._picture.pods.get(pod.uid)
            case ClaimObserved(claim=claim):
                return self._picture.pods.get(claim.pod_uid)
        return None

    async def _store(self, fact: Fact, traceparent: str = "") -> None:
        outgoing = encode(
            fact,
            source=f"/claim-controller/{self._instance}",
            traceparent=traceparent,
            now_unix_s=self._clock.now_unix_s(),
        )
        self.sequence = max(self.sequence, await self._bus.publish(outgoing))
