"""The size limits of a server, headers included, are checked before anything is sent."""

import pytest

from dray.bus.ports import Bus, MessageTooLargeError, StreamSpec
from dray.messages.base import Outgoing, sent_bytes

LOG = StreamSpec("LOG", ("t.log.*",))
HEADERS = {"a": "x" * 100, "b": "ä"}


def of_bytes(size_bytes: int) -> Outgoing:
    payload = b"x" * (size_bytes - sent_bytes(b"", HEADERS))
    return Outgoing("t.log.1", payload, HEADERS)


@pytest.fixture
async def limit(bus: Bus) -> int:
    await bus.ensure(LOG)
    assert bus.max_payload_bytes is not None
    return bus.max_payload_bytes


async def test_a_server_takes_one_mebibyte_by_default(limit: int) -> None:
    assert limit == 2**20


async def test_the_largest_message_is_stored(bus: Bus, limit: int) -> None:
    assert await bus.publish(of_bytes(limit)) == 1


async def test_a_larger_message_is_refused_with_both_sizes(bus: Bus, limit: int) -> None:
    with pytest.raises(MessageTooLargeError, match=rf"{limit + 1} bytes.* {limit} at most") as seen:
        await bus.publish(of_bytes(limit + 1))
    assert (seen.value.size_bytes, seen.value.limit_bytes) == (limit + 1, limit)
    assert await bus.publish(of_bytes(1_000)) == 1


async def test_a_larger_record_is_refused_and_the_log_goes_on(bus: Bus, limit: int) -> None:
    with pytest.raises(MessageTooLargeError):
        await bus.append(of_bytes(limit + 1), expected_last=0)
    assert await bus.append(of_bytes(1_000), expected_last=0) == 1


async def test_a_larger_question_is_refused(bus: Bus, limit: int) -> None:
    with pytest.raises(MessageTooLargeError):
        await bus.request("t.question", b"x" * (limit + 1), timeout_s=1)
    with pytest.raises(MessageTooLargeError):
        await bus.notify("t.log.1", b"x" * (limit + 1))
