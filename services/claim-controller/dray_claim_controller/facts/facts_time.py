"""The time of the facts: counted by ticks, and not read from the wall clock.

The leader continues from the last tick on the bus and adds the time that passed on its own
monotonic clock, so a wrong wall clock changes no age. Time in which nobody leads does not count.
"""

from typing import Final

from dray.bus.ports import StoreUse
from dray.messages.facts import Tick
from dray.runtime.clock import Clock

_MOST_PERIODS: Final = 5
"""How many tick periods one tick may add: a process that was stopped adds no more."""

_UNMEASURED: Final = StoreUse(0, None)


class FactsTime:
    """One term's count, in seconds. The first tick of a stream is the wall clock's time."""

    def __init__(self, clock: Clock, *, tick_s: float) -> None:
        self._clock = clock
        self._most_step_s = _MOST_PERIODS * tick_s
        self._last: Tick | None = None
        self._last_s = 0.0
        """When ``_last`` was made or read, monotonic."""

    @property
    def has_begun(self) -> bool:
        """Whether there is a tick to count from."""
        return self._last is not None

    def now_unix_s(self) -> float:
        """The time of the last tick, plus the time that passed since."""
        if self._last is None:
            return self._clock.now_unix_s()
        passed_s = self._clock.monotonic_s() - self._last_s
        return self._last.now_unix_s + min(passed_s, self._most_step_s)

    def continue_from(self, tick: Tick) -> None:
        """Continue from a tick that the bus has."""
        self._last, self._last_s = tick, self._clock.monotonic_s()

    def tick(self, store: StoreUse = _UNMEASURED) -> Tick:
        """The next tick. ``store``: how full the NATS store is."""
        revision = self._last.revision if self._last is not None else 0
        made = Tick(
            revision=revision + 1,
            now_unix_s=self.now_unix_s(),
            most_step_s=self._most_step_s,
            store_bytes=store.bytes,
            store_limit_bytes=store.limit_bytes or 0,
        )
        self.continue_from(made)
        return made
