"""Durable consumers, questions and leases."""

import asyncio
from contextlib import aclosing

import pytest
from tests.contract.bus.messages import LEASES

from dray.api.errors import PermanentError
from dray.bus.ports import Bus, BusUnavailableError, Request, StreamSpec
from dray.messages.base import Outgoing

COMMANDS = StreamSpec("COMMANDS", ("dray.cmd.>",))
DEAD = StreamSpec("DEAD", ("dray.dead.>",))


async def reported(bus: Bus, *texts: str) -> None:
    for text in texts:
        await bus.publish(
            Outgoing(f"dray.cmd.{text}", text.encode(), {"Nats-Msg-Id": text, "ce-type": "t"})
        )


async def test_an_acknowledged_message_is_not_delivered_again(bus: Bus) -> None:
    await bus.ensure(COMMANDS)
    await reported(bus, "a", "b")
    async with asyncio.timeout(60), aclosing(bus.consume("COMMANDS", durable="d")) as consumer:
        first = await anext(consumer)
        assert (first.message.payload, first.attempts) == (b"a", 1)
        await first.ack()
    async with asyncio.timeout(60), aclosing(bus.consume("COMMANDS", durable="d")) as consumer:
        while (delivery := await anext(consumer)).message.payload != b"b":
            pytest.fail("an acknowledged message was delivered again")
        await delivery.ack()


async def test_a_message_to_be_retried_comes_again(bus: Bus) -> None:
    await bus.ensure(COMMANDS)
    await reported(bus, "a")
    async with asyncio.timeout(60), aclosing(bus.consume("COMMANDS", durable="d")) as consumer:
        await (await anext(consumer)).retry(0.01)
        again = await anext(consumer)
        assert (again.message.payload, again.attempts) == (b"a", 2)
        await again.ack()


async def test_messages_that_are_to_be_retried_later_keep_no_others(bus: Bus) -> None:
    await bus.ensure(COMMANDS)
    many = [f"m{number}" for number in range(1100)]
    await asyncio.gather(*(reported(bus, text) for text in many))
    await reported(bus, "last")
    got = set()
    async with asyncio.timeout(25), aclosing(bus.consume("COMMANDS", durable="d")) as consumer:
        while b"last" not in got:
            delivery = await anext(consumer)
            got.add(delivery.message.payload)
            await delivery.retry(300.0)
    assert len(got) == len(many) + 1


async def test_consumers_with_one_name_share_the_messages(world) -> None:
    first, second = await world.bus(), await world.bus()
    await first.ensure(COMMANDS)
    got: list[bytes] = []

    async def take(bus: Bus) -> None:
        async with aclosing(bus.consume("COMMANDS", durable="d")) as consumer:
            async for delivery in consumer:
                got.append(delivery.message.payload)
                await delivery.ack()

    tasks = [asyncio.create_task(take(bus)) for bus in (first, second)]
    texts = [f"m{number}" for number in range(60)]
    await reported(first, *texts)
    async with asyncio.timeout(60):
        while len(got) < len(texts):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    assert sorted(got) == sorted(text.encode() for text in texts)


async def test_a_consumer_takes_the_subjects_it_asked_for(bus: Bus) -> None:
    await bus.ensure(COMMANDS)
    await reported(bus, "a", "b", "c")
    flow = bus.consume("COMMANDS", durable="d", subjects=["dray.cmd.b", "dray.cmd.c"])
    async with asyncio.timeout(60), aclosing(flow) as consumer:
        got = [(await anext(consumer)).message.payload for _ in range(2)]
    assert got == [b"b", b"c"]


async def test_a_rejected_message_is_stored_as_a_dead_letter_with_its_reason(bus: Bus) -> None:
    await bus.ensure(COMMANDS)
    await bus.ensure(DEAD)
    await reported(bus, "bad", "good")
    async with asyncio.timeout(60), aclosing(bus.consume("COMMANDS", durable="d")) as consumer:
        await (await anext(consumer)).reject("can't be\nread")
        delivery = await anext(consumer)
        assert delivery.message.payload == b"good"
        await delivery.ack()
    async with asyncio.timeout(60), aclosing(bus.read("DEAD")) as reader:
        dead = await anext(reader)
    assert dead.subject == "dray.dead.cmd.bad"
    assert dead.payload == b"bad"
    assert dead.headers["dray-dead-reason"] == "can't be read"
    assert dead.headers["dray-dead-stream"] == "COMMANDS"
    assert dead.headers["dray-dead-sequence"] == "1"
    assert dead.headers["ce-type"] == "t"


async def answering(bus: Bus, eventually, **names: str) -> list[asyncio.Task[None]]:
    """Tasks that answer ``t.q``, one per name, in use."""

    def handler(name: str):
        async def answer(request: Request) -> bytes:
            return name.encode() + b":" + request.payload

        return answer

    tasks = [
        asyncio.create_task(bus.serve("t.q", handler(name), queue=queue))
        for name, queue in names.items()
    ]

    async def answered() -> bool:
        try:
            await bus.request("t.q", b"?", timeout_s=1)
        except BusUnavailableError:
            return False
        return True

    await eventually(answered)
    return tasks


async def test_a_question_is_answered_by_one_of_the_queue(world, eventually) -> None:
    bus = await world.bus()
    tasks = await answering(bus, eventually, a="q", b="q")
    answers = await asyncio.gather(
        *(bus.request("t.q", str(n).encode(), timeout_s=5) for n in range(20))
    )
    assert [answer.split(b":")[1] for answer in answers] == [str(n).encode() for n in range(20)]
    for task in tasks:
        task.cancel()


async def test_a_question_that_some_leave_is_answered_by_another_queue(world, eventually) -> None:
    bus = await world.bus()

    async def leave(_: Request) -> None:
        return None

    leaving = [asyncio.create_task(bus.serve("t.q", leave, queue=f"q{n}")) for n in range(2)]
    tasks = await answering(bus, eventually, a="q2")
    answers = [await bus.request("t.q", str(n).encode(), timeout_s=5) for n in range(10)]
    assert answers == [f"a:{n}".encode() for n in range(10)]
    for task in (*leaving, *tasks):
        task.cancel()


@pytest.mark.parametrize("error", [PermanentError("no"), KeyError("nobody foresaw that")])
async def test_a_question_that_fails_is_unavailable_and_the_next_is_answered(
    bus: Bus, eventually, error: Exception
) -> None:
    async def answer(request: Request) -> bytes:
        if request.payload == b"trap":
            raise error
        return request.payload

    async def answered() -> bool:
        try:
            return await bus.request("t.q", b"?", timeout_s=60) == b"?"
        except BusUnavailableError:
            return False

    task = asyncio.create_task(bus.serve("t.q", answer, queue="q"))
    await eventually(answered)
    with pytest.raises(BusUnavailableError):
        await bus.request("t.q", b"trap", timeout_s=0.1)
    assert await answered()
    task.cancel()


async def test_a_request_without_responders_is_unavailable(bus: Bus) -> None:
    with pytest.raises(BusUnavailableError, match=r"t\.q"):
        await bus.request("t.q", b"", timeout_s=5)


async def test_a_question_not_answered_in_time_is_unavailable(bus: Bus, eventually) -> None:
    asked = asyncio.Event()

    async def never(_: Request) -> bytes:
        asked.set()
        await asyncio.Event().wait()
        return b""

    task = asyncio.create_task(bus.serve("t.q", never, queue="q"))

    async def was_asked() -> bool:
        with pytest.raises(BusUnavailableError):
            await bus.request("t.q", b"", timeout_s=0.05)
        return asked.is_set()

    await eventually(was_asked)
    task.cancel()


async def test_a_lease_is_held_by_one_and_renewed_by_its_holder(world) -> None:
    first, second = await world.bus(), await world.bus()
    await first.ensure(LEASES)
    assert await first.acquire("domain.p", "a", ttl_s=60)
    assert not await second.acquire("domain.p", "b", ttl_s=60)
    assert await first.acquire("domain.p", "a", ttl_s=60)
    assert await second.acquire("domain.other", "b", ttl_s=60)


async def test_many_leases_are_taken_and_renewed_at_once(world) -> None:
    first, second = await world.bus(), await world.bus()
    await first.ensure(LEASES)
    keys = [f"domain.p{number}" for number in range(300)]
    assert await second.acquire(keys[7], "b", ttl_s=60)
    free = [key != keys[7] for key in keys]
    assert await first.acquire_all(keys, "a", ttl_s=60) == free
    assert await first.acquire_all(keys, "a", ttl_s=60) == free
    assert await second.acquire_all(keys, "b", ttl_s=60) == [not one for one in free]
    await first.release(keys[0], "a")
    assert await second.acquire_all(keys[:2], "b", ttl_s=60) == [True, False]
    forgetful = await world.bus()
    assert await forgetful.acquire_all(keys[1:4], "a", ttl_s=60) == [True] * 3
    assert await first.acquire_all(keys[1:4], "a", ttl_s=60) == [True] * 3
    assert await first.acquire_all((), "a", ttl_s=60) == []


async def test_a_holder_that_forgot_its_lease_still_has_it(world) -> None:
    before, after = await world.bus(), await world.bus()
    await before.ensure(LEASES)
    assert await before.acquire("domain.p", "a", ttl_s=60)
    assert await after.acquire("domain.p", "a", ttl_s=60)


async def test_a_lease_is_given_up_by_its_holder_alone(world) -> None:
    first, second = await world.bus(), await world.bus()
    await first.ensure(LEASES)
    await second.release("domain.p", "b")
    assert await first.acquire("domain.p", "a", ttl_s=60)
    await second.release("domain.p", "b")
    assert not await second.acquire("domain.p", "b", ttl_s=60)
    await first.release("domain.p", "a")
    assert await second.acquire("domain.p", "b", ttl_s=60)
    assert not await first.acquire("domain.p", "a", ttl_s=60)


async def test_others_see_who_holds_which_lease(world, eventually) -> None:
    first, second = await world.bus(), await world.bus()
    assert await second.lease_holders("domain.") == {}
    await first.ensure(LEASES)
    assert await second.lease_holders("domain.") == {}
    assert await first.acquire("domain.p", "a", ttl_s=60)
    assert await first.acquire("domain.pool", "b", ttl_s=1)
    assert await first.acquire("replica.a", "a", ttl_s=60)
    assert await second.lease_holders("domain.") == {"domain.p": "a", "domain.pool": "b"}
    await first.release("domain.p", "a")
    assert "domain.p" not in await second.lease_holders("domain.")

    async def lapsed() -> bool:
        return await second.lease_holders("domain.") == {}

    await eventually(lapsed)


async def test_more_leases_than_one_batch_are_read_together(world) -> None:
    bus = await world.bus()
    await bus.ensure(LEASES)
    keys = [f"domain.p{number}" for number in range(600)]
    await asyncio.gather(*(bus.acquire(key, key, ttl_s=60) for key in keys))
    assert await bus.lease_holders("domain.") == {key: key for key in keys}


async def test_a_lease_that_is_not_renewed_lapses(world, eventually) -> None:
    first, second = await world.bus(), await world.bus()
    await first.ensure(LEASES)
    assert await first.acquire("domain.p", "a", ttl_s=1)

    async def taken() -> bool:
        return await second.acquire("domain.p", "b", ttl_s=60)

    assert not await taken()
    await eventually(taken)
    assert not await first.acquire("domain.p", "a", ttl_s=60)


async def test_leases_are_listed_while_they_are_held(world, eventually) -> None:
    first, second = await world.bus(), await world.bus()
    await first.ensure(LEASES)
    assert await second.leases("replica.") == ()
    for key in ("replica.b", "replica.a", "domain.p"):
        assert await first.acquire(key, "a", ttl_s=60)
    assert await second.leases("replica.") == ("replica.a", "replica.b")
    await first.release("replica.a", "a")

    async def gone() -> bool:
        return await second.leases("replica.") == ("replica.b",)

    await eventually(gone)


async def test_one_of_many_gets_a_free_lease(world) -> None:
    buses = [await world.bus() for _ in range(4)]
    await buses[0].ensure(LEASES)
    await buses[0].acquire("domain.other", "x", ttl_s=60)
    taken = await asyncio.gather(
        *(bus.acquire("domain.p", f"h{n}", ttl_s=60) for n, bus in enumerate(buses))
    )
    assert sorted(taken) == [False, False, False, True]
