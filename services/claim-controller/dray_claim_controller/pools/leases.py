"""Which allocator serves each pool, by the leases on the bus."""

from collections.abc import Iterable
from typing import Final

import structlog

from dray.bus.ports import Bus, BusUnavailableError
from dray.messages.decisions import domain_lease
from dray.runtime.clock import Clock

_EVERY_S: Final = 2.0
_PREFIX: Final = "domain."
"""The prefix of the leases of pools."""
_AGAIN_EVERY: Final = 5
"""After this many looks, the holders of the leases are read again."""
_MISSING_FOR: Final = 2
"""After this many looks without a lease, a pool counts as served by nobody: a lease changes hands
faster."""


class ServingReplicas:
    """Knows by name which allocator serves each pool. Looks every two seconds."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._holders: dict[str, str] = {}
        """By pool, the instance that serves it; empty: nobody."""
        self._missing: dict[str, int] = {}
        """How many looks in a row found no lease."""
        self._looks = 0
        self._changed: dict[str, None] = {}

    def served_by(self, pool: str) -> str | None:
        """The instance that serves it; empty: nobody; None: not known yet."""
        return self._holders.get(pool)

    def take_changed(self) -> list[str]:
        """Pools that another replica serves since the last call."""
        taken, self._changed = list(self._changed), {}
        return taken

    async def look(self, pools: Iterable[str]) -> None:
        """Read the leases of these pools; while the bus is away, what was known stays."""
        wanted = tuple(pools)
        for gone in self._holders.keys() - set(wanted):
            del self._holders[gone]
            self._missing.pop(gone, None)
        self._looks += 1
        try:
            holders = await self._read(wanted)
        except BusUnavailableError as error:
            structlog.get_logger().debug("leases were not read", why=str(error))
            return
        for pool in wanted:
            self._note(pool, holders.get(domain_lease(pool), ""))

    async def _read(self, pools: Iterable[str]) -> dict[str, str]:
        """The holders by lease. They are read again if it is time, or if a lease is held whose
        holder is not known; else the known holders are returned."""
        if self._looks % _AGAIN_EVERY:
            held = set(await self._bus.leases(_PREFIX))
            known = {domain_lease(pool): self._holders.get(pool, "") for pool in pools}
            if all(known.get(key, "") for key in held):
                return {key: known[key] for key in held}
        return await self._bus.lease_holders(_PREFIX)

    def _note(self, pool: str, holder: str) -> None:
        known = self._holders.get(pool)
        if not holder:
            self._missing[pool] = self._missing.get(pool, 0) + 1
            if self._missing[pool] < _MISSING_FOR:
                return
        else:
            self._missing.pop(pool, None)
        if holder != known:
            self._holders[pool] = holder
            self._changed[pool] = None

    async def pause(self) -> None:
        """Wait until the next look."""
        await self._clock.sleep(_EVERY_S)
