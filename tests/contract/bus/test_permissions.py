"""The roles of the topology, on a server that holds them to their permissions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from benchmarks.reading_server import serving_readings
from dray.api.errors import PermanentError
from dray.bus.jetstream import connect
from dray.bus.ports import Bus, BusUnavailableError, Request, StreamMissingError
from dray.bus.topology import LEASES_STREAM, STREAMS, log_spec
from dray.messages.base import Outgoing, encode
from dray.messages.commands import VoidClaim
from dray.messages.decisions import Opened, encode_record, log_subject
from dray.messages.facts import Synced, Tick
from dray_sandbox.nats_server import start_nats
from dray_sandbox.processes import Runner

SYNCED = encode(Synced(revision=1, instance="i"), source="test")
TICK = encode(Tick(revision=1, now_unix_s=1.0), source="test")
VOID = encode(
    VoidClaim(domain="p", claim_uid="u", namespace="n", name="c", attempt=1, reason="r"),
    source="test",
)
RECORD = Outgoing(
    log_subject("p", 1),
    encode_record(Opened(domain="p", epoch=1, writer="w", facts_sequence=0, now_unix_s=0.0)),
)

As = Callable[[str], Awaitable[Bus]]


@pytest.fixture
async def as_role(tmp_path: Path) -> AsyncIterator[As]:
    runner = Runner(tmp_path / "logs")
    access = await start_nats(runner, tmp_path, sync_interval="2m")
    buses: list[Bus] = []

    async def make(role: str) -> Bus:
        password = access.passwords[role]
        made = await connect(access.url, name=role, role=role, user=role, password=password)
        buses.append(made)
        return made

    controller = await make("claim-controller")
    for spec in (*STREAMS, log_spec("p", 1)):
        await controller.ensure(spec)
    async with serving_readings(controller):
        yield make
    for bus in buses:
        await bus.close()
    await runner.stop_all()


def stop_readings() -> None:
    """Nobody makes consumers any more."""
    for task in asyncio.all_tasks():
        if task.get_name() == "readings":
            task.cancel()


async def test_the_controller_publishes_what_all_others_read(as_role: As) -> None:
    controller = await as_role("claim-controller")
    await controller.publish(SYNCED)
    subject = SYNCED.subject
    for role in ("webhook", "allocator", "reader", "recorder"):
        bus = await as_role(role)
        flow = bus.read("DRAY_FACTS", subjects=[subject])
        async with asyncio.timeout(60), aclosing(flow) as reader:
            assert (await anext(reader)).subject == subject
        last = await bus.last("DRAY_FACTS", subject)
        assert last is not None
        assert last.payload == SYNCED.payload


async def test_a_subject_without_messages_has_no_last_one(as_role: As) -> None:
    reader = await as_role("reader")
    assert await reader.last("DRAY_FACTS", TICK.subject) is None
    with pytest.raises(StreamMissingError):
        await reader.last(log_spec("p", 7).name, log_subject("p", 7))


async def test_a_reading_waits_until_its_consumer_is_made_and_says_so(
    as_role: As, eventually
) -> None:
    """Meanwhile every claim-controller is away."""
    controller, allocator = await as_role("claim-controller"), await as_role("allocator")
    await controller.publish(TICK)
    stop_readings()
    waiting = asyncio.ensure_future(anext(allocator.read("DRAY_FACTS")))

    async def says_why() -> bool:
        return "no claim-controller answers" in (allocator.problem or "")

    await eventually(says_why)
    assert not waiting.done()
    async with serving_readings(controller), asyncio.timeout(60):
        assert (await waiting).subject == TICK.subject
    assert allocator.problem is None


async def test_readings_continue_while_no_consumers_are_made(as_role: As) -> None:
    controller, allocator = await as_role("claim-controller"), await as_role("allocator")
    async with asyncio.timeout(60), aclosing(allocator.read("DRAY_FACTS")) as reader:
        await controller.publish(TICK)
        assert (await anext(reader)).subject == TICK.subject
        stop_readings()
        await controller.publish(SYNCED)
        assert (await anext(reader)).subject == SYNCED.subject


async def test_a_webhook_may_not_read_pods(as_role: As, eventually) -> None:
    webhook = await as_role("webhook")
    flow = webhook.read("DRAY_FACTS", subjects=["dray.state.pod.v1.>"])
    waiting = asyncio.ensure_future(anext(flow))

    async def says_why() -> bool:
        return "webhook may not read dray.state.pod.v1.>" in (webhook.problem or "")

    await eventually(says_why)
    waiting.cancel()


@pytest.mark.parametrize("role", ["webhook", "allocator", "reader", "recorder"])
async def test_only_the_controller_publishes_its_facts(as_role: As, role: str) -> None:
    bus = await as_role(role)
    with pytest.raises(PermanentError, match=r"may not publish dray\.state\.tick\.v1"):
        await bus.publish(TICK)


async def test_a_refused_subscription_is_logged(as_role: As) -> None:
    """The server says so to the connection, and every question would stay unanswered."""
    bus = await as_role("webhook")

    async def answer(request: Request) -> bytes:
        return request.payload

    with capture_logs() as lines:
        serving = asyncio.create_task(bus.serve("dray.rpc.lookup", answer, queue="q"))
        async with asyncio.timeout(60):
            while not any("NATS refused" in line["event"] for line in lines):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        serving.cancel()
    assert 'subscription to "dray.rpc.lookup"' in str(lines)


async def test_an_allocator_wishes_and_the_controller_hears_it(as_role: As) -> None:
    allocator, controller = await as_role("allocator"), await as_role("claim-controller")
    await allocator.publish(VOID)
    flow = controller.consume("DRAY_COMMANDS", durable="claim-controller")
    async with asyncio.timeout(60), aclosing(flow) as consumer:
        delivery = await anext(consumer)
        assert delivery.message.payload == VOID.payload
        await delivery.reject("a test")


async def test_allocators_append_and_webhooks_do_not(as_role: As) -> None:
    allocator, webhook = await as_role("allocator"), await as_role("webhook")
    assert await allocator.append(RECORD, expected_last=0) == 1
    with pytest.raises(PermanentError, match="may not publish"):
        await webhook.append(RECORD, expected_last=1)


async def test_allocators_lease_domains(as_role: As) -> None:
    first, second = await as_role("allocator"), await as_role("allocator")
    assert await first.acquire("domain.p", "a", ttl_s=60)
    assert not await second.acquire("domain.p", "b", ttl_s=60)
    await first.release("domain.p", "a")
    assert await second.acquire("domain.p", "b", ttl_s=60)


@pytest.mark.parametrize(
    ("subject", "asks", "answers"),
    [("dray.rpc.lookup", "webhook", "claim-controller"), ("dray.rpc.dump", "reader", "allocator")],
)
async def test_a_question_is_asked_and_answered_by_its_roles(
    as_role: As, eventually, subject: str, asks: str, answers: str
) -> None:
    asking, answering = await as_role(asks), await as_role(answers)

    async def answer(request: Request) -> bytes:
        return request.payload[::-1]

    serving = asyncio.create_task(answering.serve(subject, answer, queue="q"))

    async def answered() -> bool:
        try:
            return await asking.request(subject, b"abc", timeout_s=1) == b"cba"
        except BusUnavailableError:
            return False

    await eventually(answered)
    serving.cancel()


async def test_leases_wait_for_the_stream_that_the_controller_makes(as_role: As) -> None:
    controller, allocator = await as_role("claim-controller"), await as_role("allocator")
    await controller.delete_stream(LEASES_STREAM)
    with pytest.raises(BusUnavailableError, match="no stream DRAY_LEASES takes leases"):
        await allocator.acquire("domain.p", "a", ttl_s=60)
    assert await allocator.leases("domain.") == ()


async def test_only_the_controller_makes_streams(as_role: As) -> None:
    allocator = await as_role("allocator")
    with pytest.raises(PermanentError, match="may not publish"):
        await allocator.ensure(log_spec("p", 2))
    assert await (await as_role("claim-controller")).ensure(log_spec("p", 2))
