"""Answers requests for consumers if a benchmark or test runs without a claim-controller."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.bus.ports import Bus
from dray.bus.readings import ReadingServer


@asynccontextmanager
async def serving_readings(bus: Bus) -> AsyncIterator[None]:
    """Answer until the block ends."""
    task = asyncio.create_task(ReadingServer(bus).run(), name="readings")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
