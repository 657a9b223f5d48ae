"""Streams that the suites write to, and what is written to and read from them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from dray.bus.ports import StreamSpec
from dray.bus.topology import LEASES_STREAM, STREAMS
from dray.messages.base import Delivered, Outgoing

LOG = StreamSpec("LOG", ("t.log.1",), duplicate_window_s=1.0)
LEASES = next(spec for spec in STREAMS if spec.name == LEASES_STREAM)
LATEST = StreamSpec("LATEST", ("t.latest.>",), last_per_subject=True, message_ttl=True)


def message(subject: str, text: str = "{}", **headers: str) -> Outgoing:
    return Outgoing(
        subject, text.encode(), {name.replace("_", "-"): text for name, text in headers.items()}
    )


async def snapshot(messages: AsyncIterator[Delivered]) -> list[Delivered]:
    """What a reader gets until nothing is behind it."""
    got: list[Delivered] = []
    async with asyncio.timeout(60), aclosing(messages) as flow:
        async for delivered in flow:
            got.append(delivered)
            if delivered.pending == 0:
                return got
    return got
