"""Shared counters of a pool, which the partitions of one GPU consume, for instance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dray.api.devices import DeviceId
from dray.api.quantities import parse_quantity
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.pools import ResourcePool
from dray_allocator.devices.versions import SchedulerVersion

PoolKey = tuple[str, str]
Counter = tuple[str, str]
"""Counter set and counter."""
Amounts = dict[Counter, int]
"""In billionths."""


@dataclass(slots=True, eq=False)
class _Cell:
    """A mutable amount."""

    nano: int
    is_big: bool
    """Whether Go represents it as a big decimal, which is mutated in place, as ``1.5Gi``."""

    def add(self, nano: int, *, is_big: bool) -> None:
        """Go's ``Add``, or ``Sub`` with a negated amount; a sum with a big decimal is a big
        decimal."""
        self.nano += nano
        self.is_big = self.is_big or is_big


class Counters:
    """The counters that are left in each pool, and how much of them the attempt consumes.

    ``is_allocated``: whether a claim holds a device before the attempt. What is left of a pool is
    computed once, when the search tries the first device of the pool.
    """

    def __init__(self, is_allocated: Callable[[DeviceId], bool], version: SchedulerVersion) -> None:
        self._is_allocated = is_allocated
        self._version = version
        self._left: dict[PoolKey, Amounts] = {}
        self._taken: dict[PoolKey, dict[Counter, _Cell]] = {}
        self._uses: dict[Candidate, list[tuple[Counter, _Cell]]] = {}

    def take(self, candidate: Candidate) -> bool:
        """Consume the counters that the device needs; False if a counter of the pool is exceeded.

        All counters of the pool are checked: if one is exceeded, no device of the pool fits.
        """
        key = self._key(candidate.pool)
        if key not in self._left:
            self._left[key] = counters_left(candidate.pool, self._is_allocated)
        self._move(candidate, 1)
        taken = self._taken[key]
        if all(
            (taken[counter].nano if counter in taken else 0) <= left
            for counter, left in self._left[key].items()
        ):
            return True
        self._move(candidate, -1)
        return False

    def give_back(self, candidate: Candidate) -> None:
        """Undo ``take``."""
        self._move(candidate, -1)

    def _key(self, pool: ResourcePool) -> PoolKey:
        return ("" if self._version.counters_by_pool_name else pool.driver, pool.name)

    def _move(self, candidate: Candidate, sign: int) -> None:
        """Add the counters of the device to the consumed ones, or subtract them.

        Up to 1.36 the sum of a counter aliases the amount of the first device, if that is a big
        decimal: adding other devices changes that device's amount, which stays 0 after all devices
        are deallocated.
        """
        taken = self._taken.setdefault(self._key(candidate.pool), {})
        for counter, use in self._uses_of(candidate):
            if counter in taken:
                taken[counter].add(sign * use.nano, is_big=use.is_big)
            elif use.is_big and self._version.big_counters_are_aliased:
                taken[counter] = use
            else:
                taken[counter] = _Cell(sign * use.nano, use.is_big)

    def _uses_of(self, candidate: Candidate) -> list[tuple[Counter, _Cell]]:
        if candidate not in self._uses:
            self._uses[candidate] = list(_uses(candidate))
        return self._uses[candidate]


def counters_left(pool: ResourcePool, is_allocated: Callable[[DeviceId], bool]) -> Amounts:
    """How much of the counters of a pool is left, without what allocated devices consume."""
    left = {
        (one.name, counter): parse_quantity(amount).nano
        for one in pool.counter_sets.values()
        for counter, amount in one.counters.items()
    }
    for part in (*pool.slices, *pool.other_slices):
        for device in part.devices:
            if is_allocated(DeviceId(pool.driver, pool.name, device.name)):
                for use in device.consumes:
                    for counter, amount in use.counters.items():
                        if (use.counter_set, counter) in left:
                            left[use.counter_set, counter] -= parse_quantity(amount).nano
    return left


def _uses(candidate: Candidate) -> Iterator[tuple[Counter, _Cell]]:
    for use in candidate.device.consumes:
        for counter, amount in use.counters.items():
            quantity = parse_quantity(amount)
            yield (use.counter_set, counter), _Cell(quantity.nano, not quantity.is_small)
