"""Faults of the bus: disconnections and lost data."""

import asyncio
import random

from dray.bus.topology import COMMANDS_STREAM, FACTS_STREAM
from tools.simulation.world import SimulatedWorld


class BusLosses:
    """One seed's faults of the bus."""

    def __init__(self, world: SimulatedWorld, draw: random.Random) -> None:
        self._world = world
        self._draw = draw

    async def bus_away(self) -> None:
        """Disconnect all from the bus."""
        self._world.bus_away(self._draw.uniform(0.2, 12.0))

    async def lose_bus(self) -> None:
        """Empty the store of the running server."""
        self._world.bus.server.lose_everything()

    async def restart_bus_empty(self) -> None:
        """Restart the server with an empty store."""
        self._world.bus_away(self._draw.uniform(0.5, 6.0))
        await asyncio.sleep(0.2)
        self._world.bus.server.lose_everything()

    async def lose_facts(self) -> None:
        """Delete the stream of facts."""
        self._world.bus.server.delete(FACTS_STREAM)

    async def lose_commands(self) -> None:
        """Delete the stream of commands."""
        self._world.bus.server.delete(COMMANDS_STREAM)

    async def lose_log(self) -> None:
        """Delete one decision log."""
        if (name := self._any_log()) is not None:
            self._world.bus.server.delete(name)

    async def truncate_log(self) -> None:
        """Remove the newest records, as a power loss without synced writes does.

        dray requires synced writes. Without them only the double-allocation check prevents double
        allocations, so its alarm is tolerated.
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
