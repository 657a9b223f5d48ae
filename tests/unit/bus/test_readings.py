"""Requests for consumers: who may read what, and what the owner of the streams answers."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.bus.memory import MemoryBus
from dray.bus.memory_store import matches
from dray.bus.ports import Request
from dray.bus.readings import PER_NODE, PER_ROLE, PERIOD_S, ReadingServer, is_within
from dray.bus.topology import STREAMS, log_spec, reading_subject
from dray.messages.rpc import Reading, ReadingReply
from dray.runtime.clock import ManualClock

NODE_SUBJECTS = ("dray.state.node.v1.n1", "dray.state.inventory.v1.n1", "dray.state.cluster.v1")
TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(
    lambda parts, end: ".".join([*parts, *end]),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)
SUBJECTS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=5).map(".".join)


@given(PATTERNS, PATTERNS, SUBJECTS)
def test_what_is_within_a_pattern_selects_nothing_else(inner: str, outer: str, one: str) -> None:
    if is_within(inner, outer) and matches(one, inner):
        assert matches(one, outer)


@given(PATTERNS, SUBJECTS)
def test_a_subject_is_within_the_patterns_that_match_it(pattern: str, subject: str) -> None:
    assert is_within(subject, pattern) is matches(subject, pattern)


class Owner:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = ReadingServer(MemoryBus(), self.clock)

    async def ask(self, subject: str, reading: Reading | bytes, user: str = "") -> ReadingReply:
        payload = reading if isinstance(reading, bytes) else msgspec.json.encode(reading)
        answer = await self.server.answer(Request(subject, payload, user))
        return msgspec.json.decode(answer, type=ReadingReply)


@pytest.fixture
async def owner() -> Owner:
    made = Owner()
    for spec in (*STREAMS, log_spec("p", 1)):
        await made.server._bus.ensure(spec)
    return made


@pytest.mark.parametrize(
    ("role", "stream", "subjects"),
    [
        ("allocator", "DRAY_FACTS", ()),
        ("allocator", "DRAY_FACTS", ("dray.state.claim.v1.p.>",)),
        ("allocator", "DRAY_DECISIONS_p_1", ()),
        ("webhook", "DRAY_FACTS", ("dray.state.pool.v1", "dray.state.pool.v1.>")),
        ("reader", "DRAY_EVENTS", ()),
        ("recorder", "DRAY_INPUTS", ()),
    ],
)
async def test_a_role_gets_a_consumer_of_what_it_may_read(
    owner: Owner, role: str, stream: str, subjects: tuple[str, ...]
) -> None:
    reply = await owner.ask(reading_subject(role), Reading(stream=stream, subjects=subjects))
    assert reply.consumer
    assert not reply.error


@pytest.mark.parametrize(
    ("role", "stream", "subjects"),
    [
        ("webhook", "DRAY_FACTS", ()),
        ("webhook", "DRAY_FACTS", ("dray.state.pool.v1.>", "dray.state.pod.v1.>")),
        ("webhook", "DRAY_FACTS", ("dray.state.*.v1.>",)),
        ("webhook", "DRAY_DECISIONS_p_1", ()),
        ("allocator", "DRAY_INPUTS", ()),
        ("allocator", "DRAY_COMMANDS", ()),
        ("allocator", "DRAY_EVENTS", ()),
        ("allocator", "DRAY_LEASES", ()),
        ("reader", "DRAY_INPUTS", ()),
        ("reader", "DRAY_COMMANDS", ()),
        ("recorder", "DRAY_LEASES", ()),
        ("claim-controller", "DRAY_FACTS", ()),
        ("nobody", "DRAY_FACTS", ()),
    ],
)
async def test_a_role_is_refused_what_it_may_not_read(
    owner: Owner, role: str, stream: str, subjects: tuple[str, ...]
) -> None:
    reply = await owner.ask(reading_subject(role), Reading(stream=stream, subjects=subjects))
    assert reply.error
    assert not reply.consumer


@pytest.mark.parametrize("name", ["", "*", ">", "p_1.x", "p 1", "p\r\nPUB x 0", "p" * 100_000])
async def test_a_role_is_refused_a_log_whose_name_no_log_can_have(owner: Owner, name: str) -> None:
    reading = Reading(stream=f"DRAY_DECISIONS_{name}")
    reply = await owner.ask(reading_subject("reader"), reading)
    assert "may not read" in reply.error


async def test_a_node_reads_facts_about_itself(owner: Owner) -> None:
    wanted = Reading(stream="DRAY_FACTS", subjects=NODE_SUBJECTS)
    reply = await owner.ask(reading_subject("node-agent", "n1"), wanted, "n1")
    assert reply.consumer


@pytest.mark.parametrize(
    ("asked_as", "user", "subjects"),
    [
        ("n2", "n1", NODE_SUBJECTS),  # under another's name, such as by an answer sent there
        ("n1", "", NODE_SUBJECTS),  # the server says nothing of who asks
        ("n1", "n1", ("dray.state.node.v1.n2",)),
        ("n1", "n1", ("dray.state.node.v1.*",)),
        ("n1", "n1", ()),
        ("n1", "n1", ("dray.state.pod.v1.>",)),
        ("", "n1", NODE_SUBJECTS),
    ],
)
async def test_a_node_is_refused_another_node(
    owner: Owner, asked_as: str, user: str, subjects: tuple[str, ...]
) -> None:
    subject = reading_subject("node-agent", asked_as) if asked_as else reading_subject("node-agent")
    reply = await owner.ask(subject, Reading(stream="DRAY_FACTS", subjects=subjects), user)
    assert reply.error


async def test_a_node_that_asks_without_end_is_refused_for_a_while(owner: Owner) -> None:
    wanted = Reading(stream="DRAY_FACTS", subjects=NODE_SUBJECTS)

    async def ask(node: str) -> ReadingReply:
        return await owner.ask(reading_subject("node-agent", node), wanted, node)

    own = msgspec.structs.replace(wanted, subjects=("dray.state.node.v1.n2",))
    replies = [await ask("n1") for _ in range(PER_NODE + 1)]
    assert [bool(one.consumer) for one in replies] == [True] * PER_NODE + [False]
    assert "try again later" in replies[-1].error
    assert (await owner.ask(reading_subject("node-agent", "n2"), own, "n2")).consumer
    await owner.clock.advance(PERIOD_S)
    assert (await ask("n1")).consumer


async def test_another_role_that_asks_without_end_is_refused_for_a_while(owner: Owner) -> None:
    async def ask(role: str) -> ReadingReply:
        return await owner.ask(reading_subject(role), Reading(stream="DRAY_FACTS"))

    replies = [await ask("reader") for _ in range(PER_ROLE + 1)]
    assert [bool(one.consumer) for one in replies] == [True] * PER_ROLE + [False]
    assert "role reader asked for more than" in replies[-1].error
    assert (await ask("allocator")).consumer
    await owner.clock.advance(PERIOD_S)
    assert (await ask("reader")).consumer


async def test_a_stream_that_does_not_exist_is_reported_as_missing(owner: Owner) -> None:
    reply = await owner.ask(reading_subject("allocator"), Reading(stream="DRAY_DECISIONS_q_7"))
    assert reply.is_missing
    assert not reply.error


@pytest.mark.parametrize("payload", [b"", b"{}", b"[]", b'{"stream": 1}', b"\xff"])
async def test_a_request_that_can_not_be_read_is_answered(owner: Owner, payload: bytes) -> None:
    reply = await owner.ask(reading_subject("allocator"), payload)
    assert "can't be read" in reply.error
