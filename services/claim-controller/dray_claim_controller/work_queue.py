"""Keyed work: fair between groups, one worker per key, a backoff of its own for each key.

Like client-go's work queue: a key that is added twice before its turn is worked on once, and one
that is added while it is worked on is worked on again. In addition, groups (namespaces) take turns,
and slow work counts only for its own group.
"""

import asyncio
import contextlib
import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.kube.ports import KubeError, RefusedError
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)
_FIRST_S: Final = 0.2
MOST_S: Final = 300.0
"""The first and the longest rest of a key that fails again and again."""
_PATIENCE_S: Final = 1.0


@dataclass(slots=True, eq=False)
class Slot:
    """Held by one piece of work."""

    group: str
    since_s: float
    is_slow: bool = False


_Turns = OrderedDict[str, deque[Callable[[Slot], bool]]]


class FairSlots:
    """Slots that groups get in turn, so that no group waits for more than one piece of work of each
    other group.

    Work that has held its slot for ``patience_s`` is slow: its slot is given to the next, and it
    counts only for its own group. A group never has more slots than there are for all groups.
    """

    def __init__(self, clock: Clock, total: int, *, patience_s: float = _PATIENCE_S) -> None:
        self._clock = clock
        self._total = total
        self._patience_s = patience_s
        self._waiting: tuple[_Turns, _Turns] = (OrderedDict(), OrderedDict())
        """Waiting work by group, in the order of turns. The second is served when nobody waits in
        the first."""
        self._quick: dict[Slot, None] = {}
        """Slots that count for all groups, oldest first."""
        self._held: dict[str, int] = {}
        """The number of slots by group, slow ones included."""
        self._alarm: asyncio.Task[None] | None = None

    def request(self, group: str, start: Callable[[Slot], bool], *, later: bool = False) -> None:
        """Have ``start`` called with a slot when it is the group's turn; if ``later``, when nothing
        else waits. ``leave`` gives the slot back. ``start`` returns False if it needs no slot any
        more."""
        self._waiting[later].setdefault(group, deque()).append(start)
        self._serve()

    def leave(self, slot: Slot) -> None:
        """The work is done."""
        self._quick.pop(slot, None)
        self._held[slot.group] -= 1
        if not self._held[slot.group]:
            del self._held[slot.group]
        self._serve()

    @contextlib.asynccontextmanager
    async def held(self, group: str) -> AsyncIterator[None]:
        """Wait for a slot, and give it back after the block."""
        granted: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()

        def start(slot: Slot) -> bool:
            if granted.done():
                return False
            granted.set_result(slot)
            return True

        self.request(group, start)
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self.leave(granted.result())

    def _serve(self) -> None:
        while len(self._quick) < self._total and (found := self._next()) is not None:
            group, turns = found
            waiting = turns.pop(group)
            start = waiting.popleft()
            if waiting:
                turns[group] = waiting
            slot = Slot(group, self._clock.monotonic_s())
            if start(slot):
                self._quick[slot] = None
                self._held[group] = self._held.get(group, 0) + 1
        if any(self._waiting) and self._quick and self._alarm is None:
            at_s = next(iter(self._quick)).since_s + self._patience_s
            self._alarm = asyncio.create_task(self._find_slow(at_s), name="slow-work")

    def _next(self) -> tuple[str, _Turns] | None:
        for turns in self._waiting:
            for group in turns:
                if self._held.get(group, 0) < self._total:
                    return group, turns
        return None

    async def _find_slow(self, at_s: float) -> None:
        await self._clock.sleep(max(0.0, at_s - self._clock.monotonic_s()))
        self._alarm = None
        now_s = self._clock.monotonic_s()
        for slot in list(self._quick):
            if now_s - slot.since_s < self._patience_s:
                break
            slot.is_slow = True
            del self._quick[slot]
        self._serve()


class FairWorkQueue(Generic[K]):
    """Calls ``handle`` with keys; at most one call works on a key at any time.

    ``handle`` returns when nothing is left to be done. When it raises a TemporaryError or any
    KubeError, the key rests, longer each time, and is handled again: what it is about may be gone
    by then. The same happens after an unforeseen error, which is logged: one object's content must
    not end the work on all others. Any other error of dray ends ``run``.
    """

    def __init__(
        self,
        clock: Clock,
        handle: Callable[[K], Awaitable[None]],
        *,
        name: str,
        group_of: Callable[[K], str],
        workers: int = 4,
        first_s: float = _FIRST_S,
        most_s: float = MOST_S,
        add_ends_rest: bool = False,
    ) -> None:
        """``add_ends_rest``: whether a key that is added while it rests is handled at once, as
        client-go's queue does."""
        self._clock = clock
        self._handle = handle
        self._name = name
        self._group_of = group_of
        self._first_s, self._most_s = first_s, most_s
        self._add_ends_rest = add_ends_rest
        self._slots = FairSlots(clock, workers)
        self._queued: dict[K, bool] = {}
        """Waiting keys, and whether each waits for a later turn."""
        self._busy: dict[K, asyncio.Task[None]] = {}
        self._again: dict[K, None] = {}
        """Added while they are worked on."""
        self._rests: dict[K, float] = {}
        """By key, the end of its backoff (monotonic)."""
        self._ends: list[tuple[float, int, K]] = []
        """A heap of the ends of rests; one that was ended early stays here until its time."""
        self._numbers = itertools.count()
        self._backoffs: dict[K, Backoff] = {}
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_s = 0.0
        self._outcome: asyncio.Future[None] | None = None
        """The outcome of ``run``; None while it does not run."""

    def __len__(self) -> int:
        """Keys that are to be worked on, now or later."""
        return len(self._queued) + len(self._rests) + len(self._busy)

    @property
    def resting(self) -> int:
        """How many of these are in backoff."""
        return len(self._rests)

    def add(self, key: K, *, later: bool = False) -> None:
        """Work on the key when it is its turn; if ``later``, when nothing else waits. A key that
        rests continues to rest, unless ``add_ends_rest``."""
        if self._add_ends_rest:
            self._rests.pop(key, None)
        if key in self._busy:
            self._again[key] = None
        elif key not in self._rests and (key not in self._queued or later < self._queued[key]):
            self._queued[key] = later
            if self._outcome is not None:
                self._request(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Work on the key after ``delay_s`` seconds, unless it is to be worked on already."""
        if key in self._busy:
            self._again[key] = None
        elif key not in self._queued and key not in self._rests:
            self._rest_for(key, delay_s)

    async def run(self) -> None:
        """Work until cancelled."""
        self._outcome = asyncio.get_running_loop().create_future()
        try:
            for key in tuple(self._queued):
                self._request(key)
            self._set_alarm()
            await self._outcome
        finally:
            self._outcome = None
            tasks = [*self._busy.values(), *([self._alarm] if self._alarm is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _request(self, key: K) -> None:
        later = self._queued[key]
        self._slots.request(self._group_of(key), lambda slot: self._start(key, slot), later=later)

    def _start(self, key: K, slot: Slot) -> bool:
        if self._outcome is None or key not in self._queued:
            return False
        del self._queued[key]
        work = self._work(key, slot)
        self._busy[key] = asyncio.create_task(work, name=f"{self._name} {key}")
        return True

    async def _work(self, key: K, slot: Slot) -> None:
        fails, at_least_s = True, 0.0
        try:
            await self._handle(key)
            fails = False
        except (TemporaryError, KubeError) as error:
            at_least_s = getattr(error, "retry_after_s", 0.0)
            self._report(key, error)
        except DrayError as error:
            if self._outcome is not None and not self._outcome.done():
                self._outcome.set_exception(error)
        except Exception as error:  # noqa: BLE001
            structlog.get_logger().error("unforeseen", work=self._name, key=key, exc_info=error)
        finally:
            del self._busy[key]
            is_news = key in self._again
            self._again.pop(key, None)
            self._slots.leave(slot)
        if fails:
            backoff = self._backoffs.setdefault(key, Backoff(self._first_s, self._most_s))
            self._rest_for(key, backoff.next_s(at_least_s))
        else:
            self._backoffs.pop(key, None)
        if is_news and (self._add_ends_rest or not fails):
            self.add(key)

    def _report(self, key: K, error: DrayError) -> None:
        """Log a refusal as an error once; temporary failures are no error."""
        log = structlog.get_logger().bind(work=self._name, key=key, error=str(error))
        if isinstance(error, RefusedError) and key not in self._backoffs:
            log.error("Kubernetes refuses a request; it is tried again")
        else:
            log.debug("a request failed; it is tried again")

    def _rest_for(self, key: K, rest_s: float) -> None:
        until_s = self._clock.monotonic_s() + rest_s
        self._rests[key] = until_s
        heapq.heappush(self._ends, (until_s, next(self._numbers), key))
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Sleep until the first rest ends; one task sleeps for all of them."""
        if self._outcome is None or not self._ends:
            return
        first_s = self._ends[0][0]
        if self._alarm is not None:
            if self._alarm_s <= first_s:
                return
            self._alarm.cancel()
        self._alarm_s = first_s
        self._alarm = asyncio.create_task(self._wake(first_s), name=f"{self._name} rests")

    async def _wake(self, at_s: float) -> None:
        await self._clock.sleep(max(0.0, at_s - self._clock.monotonic_s()))
        self._alarm = None
        now_s = self._clock.monotonic_s()
        while self._ends and self._ends[0][0] <= now_s:
            until_s, _, key = heapq.heappop(self._ends)
            if self._rests.get(key) == until_s:
                del self._rests[key]
                self.add(key)
        self._set_alarm()
