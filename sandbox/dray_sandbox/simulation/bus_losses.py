"""What the bus loses."""

import asyncio
import random

from dray.bus.topology import COMMANDS_STREAM, FACTS_STREAM
from dray_sandbox.simulation.world import SimulatedWorld


class BusLosses:
    """One seed's losses."""

    def __init__(self, world: SimulatedWorld, draw: random.Random) -> None:
        self._world = world
        self._draw = draw

    async def bus_away(self) -> None:
        """Nobody reaches the bus."""
        self._world.bus_away(self._draw.uniform(0.2, 12.0))

    async def bus_lost(self) -> None:
        """An empty store, under everybody's hands."""
        self._world.bus.server.lose_everything()

    async def bus_back_empty(self) -> None:
        """A server that starts again on an empty store."""
        self._world.bus_away(self._draw.uniform(0.5, 6.0))
        await asyncio.sleep(0.2)
        self._world.bus.server.lose_everything()

    async def facts_lost(self) -> None:
        """The stream of facts is gone."""
        self._world.bus.server.delete(FACTS_STREAM)

    async def commands_lost(self) -> None:
        """The stream of commands is gone."""
        self._world.bus.server.delete(COMMANDS_STREAM)

    async def log_lost(self) -> None:
        """One decision log is gone."""
        if (name := self._any_log()) is not None:
            self._world.bus.server.delete(name)

    async def log_shortened(self) -> None:
        """A server that lost power lacks the newest records, which may have been acted upon.

        dray asks for synced writes, and so for this not to happen; that nothing is sold twice is
        up to the second line of defence, and its alarm is right.
        """
        name = self._any_log()
        if name is None:
            return
        self._world.tolerated.update(("double allocation prevented", "a device is allocated twice"))
        self._world.bus_away(self._draw.uniform(0.5, 3.0))
        await asyncio.sleep(0.2)
        stream = self._world.bus.server.streams.get(name)
        if stream is not None:
            stream.lose_tail(self._draw.choice((1, 1, 2, 4)))

    def _any_log(self) -> str | None:
        logs = [name for name in self._world.bus.server.streams if name.startswith("DRAY_DEC")]
        return self._draw.choice(sorted(logs)) if logs else None
