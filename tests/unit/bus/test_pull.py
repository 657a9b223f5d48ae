"""A pull consumer's flow over a session of our own: what is requested, and what is reported as
behind a message."""

import asyncio
from contextlib import aclosing
from types import SimpleNamespace

import msgspec
import pytest

from dray.bus.jetstream_pull import Arrivals, FlowEndedError, pull


class Session:
    """A session of which the test is the server."""

    api = "$JS.API."

    def __init__(self):
        self.closed = asyncio.Event()
        self.client = SimpleNamespace(new_inbox=lambda: "inbox")
        self.asked = []
        self.has_asked = asyncio.Event()
        self.answers = []
        self._take = None

    async def take(self, subject, take):
        self._take = take

        async def unsubscribe():
            return None

        return SimpleNamespace(unsubscribe=unsubscribe)

    async def send(self, subject, payload, *, reply=""):
        if subject.startswith("$JS.API."):
            self.asked.append(msgspec.json.decode(payload)["batch"])
            self.has_asked.set()
        else:
            self.answers.append((subject, payload))

    def deliver(self, *words):
        for one in words:
            self._take(*one)


def message(sequence, pending=0):
    reply = f"$JS.ACK.S.c.1.{sequence}.{sequence}.0.{pending}"
    return b"s", reply.encode(), b"NATS/1.0\r\nce-id: a\r\n\r\n", b"payload"


def word(code, text="", left=None):
    more = "" if left is None else f"Nats-Pending-Messages: {left}\r\n"
    return b"inbox", b"", f"NATS/1.0 {code} {text}\r\n{more}\r\n".encode(), b""


HEARTBEAT = word(100, "Idle Heartbeat")


async def one_by_one(batches):
    """Each as it is taken of those that came at once."""
    async with aclosing(batches):
        async for batch in batches:
            for one in batch:
                yield one


async def taken(session, count, *arrived, batch=16, **more):
    """So many messages, of which what is given arrived before the first was taken."""
    flow = one_by_one(pull(session, "S", "c", batch=batch, **more))
    async with asyncio.timeout(30), aclosing(flow):
        first = asyncio.ensure_future(anext(flow))
        await session.has_asked.wait()
        session.deliver(*arrived)
        return [await first, *[await anext(flow) for _ in range(count - 1)]]


async def behind(*arrived):
    found = await taken(Session(), sum(bool(one[1]) for one in arrived), *arrived)
    return [one.pending for one, _ in found]


async def test_messages_sent_one_by_one_are_behind_the_first_once_they_are_here():
    assert await behind(message(1, 0), message(2, 0), message(3, 0)) == [2, 1, 0]


async def test_messages_that_the_server_still_has_are_behind_all_that_are_here():
    assert await behind(message(1, 9), message(2, 8)) == [9, 8]


async def test_a_heartbeat_is_not_behind_a_message():
    assert await behind(message(1, 0), HEARTBEAT) == [0]


async def test_a_message_is_given_out_as_it_came():
    [(found, position)] = await taken(Session(), 1, message(7, 0))
    assert (found.subject, found.payload, found.stream, found.sequence) == ("s", b"payload", "S", 7)
    assert dict(found.headers) == {"ce-id": "a"}
    assert (position.consumer_sequence, position.attempts) == (7, 1)


async def test_no_more_are_asked_for_while_any_is_at_hand():
    session = Session()
    await taken(session, 4, *[message(n) for n in range(1, 5)], batch=4)
    assert session.asked == [4]


async def test_more_are_asked_for_while_there_are_still_some_at_hand():
    session = Session()
    await taken(session, 3, *[message(n) for n in range(1, 5)], batch=4, refill=2)
    assert session.asked == [4, 2]


@pytest.mark.parametrize("over", [word(408, "Timeout", 3), word(404, "No Messages")])
async def test_what_a_request_that_is_over_was_still_owed_is_asked_for_again(over):
    session = Session()
    flow = one_by_one(pull(session, "S", "c", batch=4))
    async with asyncio.timeout(30), aclosing(flow):
        waits = asyncio.ensure_future(anext(flow))
        await session.has_asked.wait()
        session.deliver(message(1), over)
        await waits
        session.has_asked.clear()
        waits = asyncio.ensure_future(anext(flow))
        await session.has_asked.wait()
        session.deliver(message(2))
        await waits
    assert session.asked == [4, 4]


async def test_what_came_before_the_end_is_given_out_first():
    session = Session()
    flow = one_by_one(pull(session, "S", "c", batch=4))
    async with asyncio.timeout(30), aclosing(flow):
        first = asyncio.ensure_future(anext(flow))
        await session.has_asked.wait()
        session.deliver(message(1), word(409, "Consumer Deleted"))
        assert (await first)[0].sequence == 1
        with pytest.raises(FlowEndedError, match="409 Consumer Deleted"):
            await anext(flow)


async def test_who_waits_hears_that_the_connection_was_lost():
    session = Session()
    flow = one_by_one(pull(session, "S", "c", batch=4))
    async with asyncio.timeout(30), aclosing(flow):
        first = asyncio.ensure_future(anext(flow))
        await session.has_asked.wait()
        session.closed.set()
        with pytest.raises(FlowEndedError, match="lost"):
            await first


async def test_what_was_not_taken_is_given_back():
    session = Session()
    await taken(session, 1, message(1), message(2), give_back=True)
    assert session.answers == [(message(2)[1].decode(), b"-NAK")]


@pytest.mark.parametrize(
    ("before", "behind"),
    [("S.c", ""), ("domain.account.S.c", ""), ("domain.account.S.c", ".random")],
)
def test_a_reply_subject_tells_where_a_message_stands(before, behind):
    arrivals = Arrivals()
    reply = f"$JS.ACK.{before}.3.17.16.1500000000.4{behind}".encode()
    arrivals.take(b"s", reply, b"NATS/1.0\r\n\r\n", b"payload")
    [(message, position)] = arrivals.first(1, "S")
    assert (message.sequence, message.time_unix_s, message.pending) == (17, 1.5, 4)
    assert (position.attempts, position.consumer_sequence, position.reply) == (3, 16, reply)
