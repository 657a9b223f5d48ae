"""Reads a whole stream of the bus."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.messages.base import Delivered

_READ_S = 60.0
"""Time-out of a whole stream; a day's log of a large cluster takes a few seconds."""


async def read_whole(bus: Bus, stream: str) -> AsyncGenerator[Delivered, None]:
    """All messages that are in a stream now.

    Raises:
        StreamMissingError: there is no such stream.
        BusUnavailableError: the stream was not read in time.
    """
    state = await bus.state(stream)
    if state is None:
        raise StreamMissingError(f"the stream {stream} does not exist")
    if state.first_sequence > state.last_sequence:
        return
    try:
        async with (
            asyncio.timeout(_READ_S),
            aclosing(bus.read(stream)) as reader,  # type: ignore[type-var]
        ):
            async for delivered in reader:
                yield delivered
                if delivered.sequence >= state.last_sequence or not delivered.pending:
                    return
    except TimeoutError:
        why = bus.problem or f"{stream} was not read within {_READ_S:g} s"
        raise BusUnavailableError(why) from None
