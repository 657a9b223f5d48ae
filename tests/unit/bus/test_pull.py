"""A pull consumer's flow over a session of our own: what is said to be behind a message."""

import asyncio
from contextlib import aclosing
from types import SimpleNamespace

from nats.aio.msg import Msg

from dray.bus.jetstream_pull import pull


class Session:
    """A session of which the test is the server."""

    def __init__(self):
        self.closed = asyncio.Event()
        self.client = SimpleNamespace(new_inbox=lambda: "inbox")
        self.deliver = None
        self.asked = asyncio.Event()

    async def subscribe(self, subject, on_message):
        self.deliver = on_message

        async def unsubscribe():
            return None

        return SimpleNamespace(unsubscribe=unsubscribe)

    async def send(self, subject, payload, *, reply=""):
        self.asked.set()


def message(sequence, pending):
    reply = f"$JS.ACK.S.c.1.{sequence}.{sequence}.0.{pending}"
    return Msg(None, subject="s", reply=reply, data=b"")


def heartbeat():
    return Msg(None, subject="inbox", headers={"Status": "100"})


async def behind(session, *arrived):
    """What is pending behind each of these, of which all arrived before the first is taken."""
    async with asyncio.timeout(30), aclosing(pull(session, "S", "c", batch=16)) as flow:
        first = asyncio.ensure_future(anext(flow))
        await session.asked.wait()
        for one in arrived:
            await session.deliver(one)
        found = [(await first)[1].pending]
        messages = sum(bool(one.reply) for one in arrived)
        found += [(await anext(flow))[1].pending for _ in range(messages - 1)]
        return found


async def test_messages_sent_one_by_one_are_behind_the_first_once_they_are_here():
    assert await behind(Session(), message(1, 0), message(2, 0), message(3, 0)) == [2, 1, 0]


async def test_messages_that_the_server_still_has_are_behind_all_that_are_here():
    assert await behind(Session(), message(1, 9), message(2, 8)) == [9, 8]


async def test_a_heartbeat_is_not_behind_a_message():
    assert await behind(Session(), message(1, 0), heartbeat()) == [0]
