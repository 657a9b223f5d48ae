"""Counters that the devices of a pool share: partitions of one card, for instance."""

from collections.abc import Callable, Iterator

from dray.domain.devices import DeviceId
from dray.domain.quantities import parse_quantity
from dray_allocator.structured.candidates import Candidate
from dray_allocator.structured.pools import Pool
from dray_allocator.structured.rules import Rules

PoolKey = tuple[str, str]
Counter = tuple[str, str]
"""Counter set and counter."""
Amounts = dict[Counter, int]
"""In billionths."""


class Counters:
    """What is left of the counters of each pool, and what the attempt took of it.

    ``is_allocated`` says whether a claim holds a device already. What is left of a pool is
    reckoned once, when a device of it is first considered.
    """

    def __init__(self, is_allocated: Callable[[DeviceId], bool], rules: Rules) -> None:
        self._is_allocated = is_allocated
        self._rules = rules
        self._left: dict[PoolKey, Amounts] = {}
        self._taken: dict[PoolKey, Amounts] = {}

    def take(self, candidate: Candidate) -> bool:
        """Take what the device needs, unless some counter of the pool is short then.

        Every counter of the pool is looked at: one that is overdrawn stops the whole pool.
        """
        key = self._key(candidate.pool)
        if key not in self._left:
            self._left[key] = self._reckoned(candidate.pool)
        self._move(candidate, 1)
        taken = self._taken[key]
        if all(taken.get(counter, 0) <= left for counter, left in self._left[key].items()):
            return True
        self._move(candidate, -1)
        return False

    def give_back(self, candidate: Candidate) -> None:
        """Undo ``take``."""
        self._move(candidate, -1)

    def _key(self, pool: Pool) -> PoolKey:
        return ("" if self._rules.counters_by_pool_name else pool.driver, pool.name)

    def _reckoned(self, pool: Pool) -> Amounts:
        left = {
            (one.name, counter): parse_quantity(amount).nano
            for one in pool.counter_sets.values()
            for counter, amount in one.counters.items()
        }
        for part in (*pool.slices, *pool.elsewhere):
            for device in part.devices:
                if self._is_allocated(DeviceId(pool.driver, pool.name, device.name)):
                    for use in device.consumes:
                        for counter, amount in use.counters.items():
                            if (use.counter_set, counter) in left:
                                left[use.counter_set, counter] -= parse_quantity(amount).nano
        return left

    def _move(self, candidate: Candidate, sign: int) -> None:
        taken = self._taken.setdefault(self._key(candidate.pool), {})
        for counter, amount in _uses(candidate):
            taken[counter] = taken.get(counter, 0) + sign * amount


def _uses(candidate: Candidate) -> Iterator[tuple[Counter, int]]:
    for use in candidate.device.consumes:
        for counter, amount in use.counters.items():
            yield (use.counter_set, counter), parse_quantity(amount).nano
