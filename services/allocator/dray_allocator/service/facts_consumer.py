"""Hand the facts of the pools that this replica subscribes to, in order, to the core.

One consumer at a time follows the stream, with or without a filter. When the subscriptions change,
it ends after a fact, and another one goes on from there with another filter. Earlier facts of newly
subscribed pools are read at the same time. See docs/adr/0026.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterable, Sequence
from contextlib import aclosing
from typing import Final, cast

import structlog

from dray.bus.gap_tracker import GapTracker
from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.messages.base import (
    Delivered,
    UndecodableMessageError,
    decode,
    subject_prefix,
    token,
)
from dray.messages.facts import FACTS, ClaimObserved, Fact, PodObserved, Synced
from dray.runtime.backoff import Backoff
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Continue,
    EarlierFact,
    EarlierFactsRead,
    Event,
    FactSeen,
    FactsLost,
    Subscribe,
)
from dray_allocator.values.undecodable import UndecodableFact, undecodable

_MOST_FOLDED: Final = 256
"""The maximum number of facts folded before the next decisions, while more facts are buffered."""
_OF_POOLS: Final = (ClaimObserved, PodObserved)
"""Facts whose subjects name a pool; all others are read by every replica."""
_AT_ONCE: Final = 64
"""Facts folded in one step of the event loop."""
_FACT_TYPES: Final = {tuple(subject_prefix(fact).split(".")): fact for fact in FACTS}
Pools = tuple[str, ...] | None
"""None: all pools."""


class FactsReader:
    """The facts of one replica.

    ``dispatch`` gives the core an event and the id of its message; ``fold`` gives it an event that
    is followed by more. ``undecodable`` gets each fact that this release can't decode, after the
    core.
    """

    def __init__(
        self,
        bus: Bus,
        state: AllocatorState,
        fold: Callable[[Event], None],
        dispatch: Callable[[Event, str], Awaitable[None]],
        undecodable: Callable[[UndecodableFact], None],
    ) -> None:
        self._bus = bus
        self._state = state
        self._drivers = state.options.drivers
        self._fold = fold
        self._dispatch = dispatch
        self._undecodable = undecodable
        self._log = structlog.get_logger()
        self._pools: Pools = ()
        self._asked = asyncio.Event()
        """Whether the pools to read are known."""
        self._is_stale = False
        """Whether the pools to read differ from those that are read now."""
        self._is_waiting = True
        """Whether the reading may be cancelled: no event is being handled."""
        self._reading: asyncio.Task[None] | None = None
        self._gaps = GapTracker()
        self._folded = 0
        """How many facts were read so far."""
        self._created = ""
        """When the stream that was read was created."""
        self._earlier: dict[asyncio.Task[None], Pools] = {}
        self._error: BaseException | None = None
        """The error that ended a reading of earlier facts."""

    def subscribe(self, pools: Pools) -> None:
        """Read the facts of these pools from now on."""
        if self._asked.is_set() and pools == self._pools:
            return
        self._pools = pools
        self._asked.set()
        self._is_stale = True
        if self._reading is not None and self._is_waiting:
            self._reading.cancel()

    async def run(self) -> None:
        """Read until cancelled."""
        await self._asked.wait()
        try:
            while True:
                self._reading = asyncio.create_task(self._read(), name="facts of pools")
                await asyncio.wait([self._reading])
                if self._error is not None:
                    raise self._error
                if not self._reading.cancelled():
                    self._reading.result()
        finally:
            ending = [*self._earlier, *([self._reading] if self._reading is not None else [])]
            for task in ending:
                task.cancel()
            if ending:
                await asyncio.wait(ending)

    async def _read(self) -> None:
        backoff, waits = Backoff(0.05, 2.0), False
        while True:
            try:
                pools = await self._switch()
                if not self._is_stale:
                    await self._follow(pools, backoff)
                continue
            except StreamMissingError as error:
                if self._state.facts.position:
                    self._log.warning(
                        "the facts stream is lost; reading it from the start", why=str(error)
                    )
                elif not waits:
                    self._log.info("waiting for a claim-controller to publish the first facts")
                waits = True
                await self._lose()
            except BusUnavailableError as error:
                self._log.warning("facts can't be read", why=str(error))
            await backoff.pause()

    async def _lose(self) -> None:
        self._gaps, self._created = GapTracker(), ""
        for task in self._earlier:
            task.cancel()
        await self._handle(FactsLost())

    async def _switch(self) -> Pools:
        """Subscribe to the wanted pools and return them; reading goes on after the last fact.

        Raises:
            StreamMissingError: the stream is not the one that was read.
        """
        self._is_stale = False
        pools = self._pools
        # First: a partial reading would otherwise count as complete.
        self._stop_reading(pools)
        await self._handle(Subscribe(pools))
        await self._check_life()
        self._read_earlier()
        return pools

    def _stop_reading(self, wanted: Pools) -> None:
        """Cancel the readings of earlier facts of pools that are not wanted."""
        for task, pools in self._earlier.items():
            if wanted is not None and (pools is None or not set(pools) <= set(wanted)):
                task.cancel()

    async def _check_life(self) -> None:
        state = await self._bus.state(FACTS_STREAM)
        if state is None:
            raise StreamMissingError(f"there is no stream {FACTS_STREAM}")
        self._created = self._created or state.created
        if state.created != self._created or state.last_sequence < self._gaps.position:
            raise StreamMissingError(
                f"the stream {FACTS_STREAM} was created again, or its end was lost; fact "
                f"{self._gaps.position} was read from the stream created at {self._created}"
            )

    async def _follow(self, pools: Pools, backoff: Backoff) -> None:
        """Hand over every fact until the subscriptions change."""
        checked = False
        async with aclosing(self._batches(_subjects(pools))) as batches:
            async for batch in batches:
                backoff.reset()
                if not checked:
                    await self._check_life()
                    checked = True
                await self._take(batch)
                if self._is_stale:
                    return

    async def _take(self, batch: Sequence[Delivered]) -> None:
        """Fold a batch; decide after its last buffered fact, and every ``_MOST_FOLDED`` facts."""
        gaps = self._gaps
        for number, delivered in enumerate(batch, start=1):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._is_stale:
                return
            gaps.read(delivered.sequence, delivered.pending)
            self._folded += 1
            more = delivered.pending > 0 and self._folded % _MOST_FOLDED != 0
            fact = fact_of(delivered, self._drivers)
            if fact is None:
                await self._handle(Continue())  # It may be the last buffered one.
                continue
            seen = FactSeen(delivered.sequence, fact, more, gaps.whole)
            if more:
                self._fold(seen)
            else:
                await self._handle(seen, delivered.id)
            if isinstance(fact, UndecodableFact):
                self._undecodable(fact)

    def _read_earlier(self) -> None:
        """Begin to read the earlier facts of newly subscribed pools."""
        subscriptions = self._state.subscriptions
        if subscriptions.everything:
            wanted: Pools = None if subscriptions.whole_from is None else ()
        else:
            begun = {
                pool
                for task, pools in self._earlier.items()
                if not task.cancelling()
                for pool in pools or ()
            }
            wanted = tuple(pool for pool in subscriptions.unread() if pool not in begun)
        if wanted == ():
            return
        task = asyncio.create_task(self._catch_up(wanted), name="earlier facts of pools")
        self._earlier[task] = wanted
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._earlier.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error
            if self._reading is not None:
                self._reading.cancel()

    async def _catch_up(self, pools: Pools) -> None:
        backoff = Backoff(0.05, 2.0)
        while True:
            try:
                last = await self._hand_earlier(pools)
            except (BusUnavailableError, StreamMissingError):
                await backoff.pause()  # The reader of new facts sees it too, and cancels this.
                continue
            await self._dispatch(EarlierFactsRead(pools, last), "")
            return

    async def _hand_earlier(self, pools: Pools) -> int:
        """Hand over the earlier facts of pools; return the sequence of the last.

        ``Synced`` is read, too, so that the end is seen even if a pool has no facts.
        """
        last = 0
        subjects = [*_subjects_of(pools), subject_prefix(Synced)]
        async with aclosing(self._batches(subjects, start=1)) as batches:
            async for batch in batches:
                for number, delivered in enumerate(batch, start=1):
                    if number % _AT_ONCE == 0:
                        await asyncio.sleep(0)
                    last = delivered.sequence
                    fact = fact_of(delivered, self._drivers)
                    if isinstance(fact, (*_OF_POOLS, UndecodableFact)):
                        self._fold(EarlierFact(last, fact))
                    if isinstance(fact, UndecodableFact):
                        self._undecodable(fact)
                if batch[-1].pending == 0:
                    break
        await self._check_life()
        return last

    def _batches(
        self, subjects: Iterable[str], start: int = 0
    ) -> AsyncGenerator[Sequence[Delivered], None]:
        begin = start or self._gaps.position + 1
        reading = self._bus.read_batches(FACTS_STREAM, subjects=tuple(subjects), start=begin)
        return cast("AsyncGenerator[Sequence[Delivered], None]", reading)

    async def _handle(self, event: Event, cause: str = "") -> None:
        self._is_waiting = False
        try:
            await self._dispatch(event, cause)
        finally:
            self._is_waiting = True


def _subjects(pools: Pools) -> tuple[str, ...]:
    """Subjects for a replica that subscribes to these pools."""
    if pools is None:
        return ()
    every = tuple(subject for kind in FACTS if kind not in _OF_POOLS for subject in _all_of(kind))
    return (*every, *_subjects_of(("", *pools)))


def _all_of(kind: type[Fact]) -> tuple[str, ...]:
    return subject_prefix(kind), f"{subject_prefix(kind)}.>"


def _subjects_of(pools: Pools) -> tuple[str, ...]:
    """Subjects of the claims and pods of these pools."""
    names = (">",) if pools is None else tuple(f"{token(pool)}.>" for pool in pools)
    return tuple(f"{subject_prefix(kind)}.{name}" for kind in _OF_POOLS for name in names)


def fact_of(delivered: Delivered, drivers: Container[str]) -> Fact | UndecodableFact | None:
    """The fact; its subject and pools if this release can't decode it; None for an unknown type.

    ``drivers``: those whose devices dray allocates.
    """
    kind = _FACT_TYPES.get(tuple(delivered.subject.split(".", 4)[:4]))
    if kind is None:
        return None
    try:
        return decode(delivered, kind)
    except UndecodableMessageError as error:
        return undecodable(kind, delivered.subject, delivered.payload, str(error), drivers)


def decoded_fact(delivered: Delivered, drivers: Container[str]) -> Fact | None:
    """As ``fact_of``, for readers that need every fact; None if no decision depends on it.

    Raises:
        UndecodableMessageError: a decision may depend on a fact that can't be decoded.
    """
    fact = fact_of(delivered, drivers)
    if not isinstance(fact, UndecodableFact):
        return fact
    if fact.stops:
        raise UndecodableMessageError(fact.why)
    return None
