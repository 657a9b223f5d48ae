"""A link that is closed while it connects."""

import asyncio
from contextlib import suppress

from dray.bus.link import Link
from dray.bus.session import Session


class _Client:
    def __init__(self) -> None:
        self.is_closed = False

    def new_inbox(self) -> str:
        return "_INBOX.test"

    async def close(self) -> None:
        self.is_closed = True


async def test_a_link_closes_though_the_connection_comes_up_as_it_is_cancelled(monkeypatch):
    client, connects = _Client(), asyncio.Event()

    async def connect() -> Session:
        connects.set()
        with suppress(asyncio.CancelledError):  # As a wait does that ends at the same time.
            await asyncio.Event().wait()
        return Session(client)

    link = Link("nats://127.0.0.1:1", name="test")
    monkeypatch.setattr(link, "_connect", connect)
    link.start()
    await connects.wait()
    async with asyncio.timeout(30):
        await link.close(1.0)
    assert client.is_closed
