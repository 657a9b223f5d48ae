"""Messages with a fence on a stream that several servers keep, where they may not overlap."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from dray.api.errors import DrayError
from dray.bus.jetstream_api import FenceInUseError
from dray.bus.jetstream_fences import FencedPublication
from dray.bus.ports import BusUnavailableError, StaleSequenceError
from dray.messages.base import Outgoing


class Servers:
    """Three servers that refuse what overlaps, as nats-server does."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.on_their_way = 0
        self.most_at_once = 0
        self.failures: dict[str, DrayError] = {}
        """By the subject of the message that ends so."""
        self.asked: list[str] = []

    async def store(self, message: Outgoing) -> int:
        self.asked.append(message.subject)
        if failure := self.failures.get(message.subject):
            raise failure
        if self.on_their_way:
            raise FenceInUseError(message.subject)
        self.on_their_way += 1
        self.most_at_once = max(self.most_at_once, self.on_their_way)
        await asyncio.sleep(0)
        self.on_their_way -= 1
        self.stored.append(message.subject)
        return len(self.stored)

    async def store_all(self, batches: Iterable[Sequence[Outgoing]]) -> list[int | DrayError]:
        outcomes: list[int | DrayError] = []
        for batch in batches:
            some = await asyncio.gather(*map(self.store, batch), return_exceptions=True)
            for one in some:
                assert isinstance(one, int | DrayError)
                outcomes.append(one)
            if any(isinstance(one, DrayError) for one in some):
                break
        return outcomes


def messages(*names: str) -> list[Outgoing]:
    return [Outgoing(name, b"") for name in names]


async def test_what_was_refused_for_another_one_is_stored_in_order() -> None:
    servers = Servers()
    publication = FencedPublication(servers.store, servers.store_all)

    assert await publication.publish_all([messages(*"abcd")]) == [1, 2, 3, 4]
    assert servers.stored == list("abcd")


async def test_after_the_first_refusal_none_overlaps() -> None:
    servers = Servers()
    publication = FencedPublication(servers.store, servers.store_all)
    await publication.publish_all([messages("a", "b")])
    servers.asked.clear()

    assert await publication.publish_all([messages("c", "d"), messages("e")]) == [3, 4, 5]
    assert servers.asked == ["c", "d", "e"]


async def test_single_messages_wait_for_each_other() -> None:
    servers = Servers()
    publication = FencedPublication(servers.store, servers.store_all)

    await asyncio.gather(*map(publication.publish, messages(*"abc")))

    assert servers.stored == list("abc")
    assert servers.most_at_once == 1


@pytest.mark.parametrize("end", [BusUnavailableError("away"), StaleSequenceError("another leads")])
async def test_what_ends_a_batch_ends_the_rest_unsent(end: DrayError) -> None:
    servers = Servers()
    publication = FencedPublication(servers.store, servers.store_all)
    await publication.publish_all([messages("a", "b")])
    servers.asked.clear()
    servers.failures["d"] = end

    outcomes = await publication.publish_all([messages("c", "d", "e"), messages("f")])

    assert outcomes == [3, end, end]
    assert servers.asked == ["c", "d"]


async def test_one_that_is_on_its_way_for_ever_is_an_unreachable_bus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dray.bus.jetstream_fences.TIMEOUT_S", 0.0)
    servers = Servers()
    servers.failures["a"] = FenceInUseError("a")

    with pytest.raises(BusUnavailableError, match="a was not stored within 0 s"):
        await FencedPublication(servers.store, servers.store_all).publish(*messages("a"))
