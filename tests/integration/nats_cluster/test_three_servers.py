"""Three nats-servers keep the streams: one goes, leads no more, or loses its disk, under load.

What was acknowledged stays, in order; fresh readers read what old ones have read; and three servers
keep every stream again in the end.
"""

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.integration.nats_cluster.servers import (
    BOUND_S,
    NatsCluster,
    connect_as,
    make_streams,
    until,
)

from benchmarks.reading_server import serving_readings
from dray.bus.jetstream import JetStreamBus, connect
from dray.bus.jetstream_api import FenceInUseError
from dray.bus.ports import BusUnavailableError, Fence, NoRoomError, StaleSequenceError
from dray.bus.topology import (
    ALLOCATOR,
    CLAIM_CONTROLLER,
    EVENTS_STREAM,
    FACTS_STREAM,
    HOUR_S,
    STREAMS,
    log_spec,
)
from dray.messages.base import Outgoing, encode
from dray.messages.commands import VoidClaim
from dray.messages.decisions import log_stream, log_subject
from dray.messages.facts import Tick
from dray_sandbox.nats_server import ADMIN

pytestmark = pytest.mark.timeout(300)

LOG = log_stream("p", 1)
SUBJECT = log_subject("p", 1)
AT_ONCE = 8


def void(number: int) -> VoidClaim:
    return VoidClaim(
        domain="p", claim_uid=f"u{number}", namespace="n", name="c", attempt=1, reason=""
    )


@dataclass
class Load:
    """An allocator that appends, a controller that publishes and carries out, and readers."""

    cluster: NatsCluster
    owner: JetStreamBus
    allocator: JetStreamBus
    appended: dict[int, bytes] = field(default_factory=dict)
    """Payload by sequence of what was acknowledged."""
    ticks: list[int] = field(default_factory=list)
    """Sequences of facts that were acknowledged."""
    asked: dict[bytes, None] = field(default_factory=dict)
    """Commands that were acknowledged."""
    carried_out: dict[bytes, None] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)
    """What the old reader has read."""

    async def append(self) -> None:
        """Records, some on their way at a time; after a failure where the log really ends."""
        number, last = 0, await self._end()
        while True:
            batch = [b"record %d" % (number + one) for one in range(AT_ONCE)]
            number += AT_ONCE
            outcomes = await asyncio.gather(
                *(
                    self.allocator.append(
                        Outgoing(SUBJECT, payload),
                        expected_last=last + place,
                        identity=str(payload),
                    )
                    for place, payload in enumerate(batch)
                ),
                return_exceptions=True,
            )
            for payload, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, int):
                    assert outcome not in self.appended, "a sequence was given twice"
                    self.appended[outcome] = payload
                elif not isinstance(outcome, BusUnavailableError | StaleSequenceError):
                    raise outcome
            failed = any(isinstance(one, BaseException) for one in outcomes)
            last = await self._end() if failed else last + AT_ONCE
            await asyncio.sleep(0)

    async def _end(self) -> int:
        while True:
            try:
                state = await self.allocator.state(LOG)
            except BusUnavailableError:
                await asyncio.sleep(0.05)
                continue
            assert state is not None, "the log is gone"
            return state.last_sequence

    async def publish(self) -> None:
        """Facts, and commands to be carried out."""
        number = 0
        while True:
            number += 1
            try:
                tick = encode(Tick(revision=number, now_unix_s=float(number)), source="test")
                self.ticks.append(await self.owner.publish(tick))
                void = VoidClaim(
                    domain="p",
                    claim_uid=f"u{number}",
                    namespace="n",
                    name="c",
                    attempt=1,
                    reason="",
                )
                message = encode(void, source="test")
                await self.allocator.publish(message)
                self.asked[message.payload] = None
            except BusUnavailableError:
                pass
            await asyncio.sleep(0.01)

    async def carry_out(self) -> None:
        async with aclosing(
            self.owner.consume("DRAY_COMMANDS", durable="claim-controller")
        ) as commands:
            async for delivery in commands:
                self.carried_out[delivery.message.payload] = None
                try:
                    await delivery.ack()
                except BusUnavailableError:
                    continue  # It is delivered again.

    async def follow(self) -> None:
        """The old reader: it reads through everything."""
        async with aclosing(self.allocator.read(LOG)) as log:
            async for record in log:
                assert record.sequence == len(self.read) + 1, "a record is missing, or came twice"
                self.read[record.sequence] = record.payload

    async def more(self, count: int = 200) -> None:
        """Wait until so many more records were appended, and read."""
        wanted = len(self.appended) + count

        async def enough() -> bool:
            return len(self.appended) >= wanted and len(self.read) >= wanted

        await until(enough)

    async def admin(self, subject: str) -> dict[str, Any]:
        reply = await self.owner._connection.session().request(
            f"$JS.API.{subject}", b"", timeout_s=10
        )
        return dict(json.loads(reply))

    async def leader_of(self, stream: str) -> str:
        """The server that leads a stream, once there is one."""
        found = ""

        async def known() -> bool:
            nonlocal found
            try:
                info = await self.admin(f"STREAM.INFO.{stream}")
            except BusUnavailableError:
                return False
            found = (info.get("cluster") or {}).get("leader") or ""
            return bool(found)

        await until(known)
        return found

    async def kept_by_three(self) -> bool:
        """Whether three servers keep every stream, and none of them is behind."""
        try:
            states = [await self.owner.state(one.name) for one in (*STREAMS, log_spec("p", 1))]
        except BusUnavailableError:
            return False
        return all(one and one.replicas == 3 and not one.lagging for one in states)

    async def from_the_start(self, stream: str) -> dict[int, bytes]:
        """What a fresh reader reads."""
        found: dict[int, bytes] = {}
        reader = await connect_as(self.cluster, ALLOCATOR)
        try:
            async with asyncio.timeout(BOUND_S), aclosing(reader.read(stream)) as messages:
                async for one in messages:
                    found[one.sequence] = one.payload
                    if not one.pending:
                        return found
        finally:
            await reader.close()
        return found


async def test_nothing_acknowledged_is_lost_whatever_befalls_one_of_three(servers) -> None:
    runner, cluster = servers
    owner, allocator = await connect_as(cluster, ADMIN), await connect_as(cluster, ALLOCATOR)
    await make_streams(owner)
    load = Load(cluster, owner, allocator)
    async with serving_readings(owner):
        loops = [
            asyncio.create_task(loop)
            for loop in (load.append(), load.publish(), load.carry_out(), load.follow())
        ]
        await load.more()

        # Another leads: the leader of the log steps down, and then that of the facts.
        for stream in (LOG, FACTS_STREAM):
            await load.admin(f"STREAM.LEADER.STEPDOWN.{stream}")
            await load.more()

        # The one that leads the log is killed, and back after a while.
        gone = await load.leader_of(LOG)
        await runner.kill(gone)
        await load.more()
        await runner.restart(gone)
        await until(load.kept_by_three)

        # Another one loses its disk.
        gone = await load.leader_of(LOG)
        await runner.kill(gone)
        await cluster.wipe(gone)
        await load.more()
        await runner.restart(gone)
        await until(load.kept_by_three)
        await load.more()

        for loop in loops[:2]:
            loop.cancel()
        await asyncio.gather(*loops[:2], return_exceptions=True)
        end = await load._end()

        async def all_read() -> bool:
            return len(load.read) >= end and load.asked.keys() <= load.carried_out.keys()

        await until(all_read)
        failures = [loop.exception() for loop in loops if loop.done() and not loop.cancelled()]
        assert failures == []
        fresh = await load.from_the_start(LOG)

        async def is_read_as_far() -> bool:
            return load.read.keys() >= fresh.keys()

        # An append that was not acknowledged may be stored late.
        await until(is_read_as_far)
        assert {number: load.read[number] for number in fresh} == fresh
        assert {number: fresh[number] for number in load.appended} == load.appended
        assert len(fresh) >= end
        assert list(fresh) == list(range(1, len(fresh) + 1))
        facts = await load.from_the_start(FACTS_STREAM)
        assert max(facts) >= max(load.ticks)
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
    for bus in (owner, allocator):
        await bus.close()


async def test_replicas_are_raised_and_never_lowered(servers) -> None:
    runner, cluster = servers
    owner = await connect_as(cluster, ADMIN)
    await make_streams(owner)

    async def replicas(name: str) -> int:
        state = await owner.state(name)
        assert state is not None
        return state.replicas

    # An administrator's number stays, whichever it is, when the next term begins.
    for number in (1, 3):
        await configure(owner, FACTS_STREAM, number)
        for spec in STREAMS:
            await owner.ensure(spec)
            await owner.raise_replicas(spec.name)
        assert await replicas(FACTS_STREAM) == number

    # It stays, too, when another setting of the stream changes.
    events = next(spec for spec in STREAMS if spec.name == EVENTS_STREAM)
    await owner.ensure(replace(events, max_age_s=HOUR_S))
    assert await replicas(EVENTS_STREAM) == 3

    # With the setting it is raised, and where more are kept, not lowered.
    await configure(owner, FACTS_STREAM, 1)
    for wanted, expected in ((3, 3), (1, 3)):
        asking = await connect(
            cluster.access.url,
            name="controller",
            user=CLAIM_CONTROLLER,
            password=cluster.access.passwords[CLAIM_CONTROLLER],
            replicas=wanted,
        )
        await asking.raise_replicas(FACTS_STREAM)
        assert await replicas(FACTS_STREAM) == expected
        await asking.close()

    # A stream that is made while a server is away gets three once it is back.
    away = cluster.names[-1]
    await runner.kill(away)
    late = log_spec("late", 1)

    async def made() -> bool:
        try:
            await owner.ensure(late)
        except BusUnavailableError:
            return False
        return True

    async def raised() -> bool:
        try:
            await owner.raise_replicas(late.name)
            state = await owner.state(late.name)
        except BusUnavailableError:
            return False
        return state is not None and state.replicas == 3 and not state.lagging

    await until(made)
    await runner.restart(away)
    await until(raised)
    state = await owner.state(late.name)
    assert state is not None
    assert (state.cluster, state.wanted) == ("dray", 0)

    # What no server may set aside is refused as on one server, for new streams and known ones.
    for name in ("vast", "late"):
        with pytest.raises(NoRoomError):
            await owner.ensure(replace(log_spec(name, 1), max_bytes=2**50))
    await owner.close()


async def configure(owner: JetStreamBus, stream: str, replicas: int) -> None:
    """As an administrator does with NATS' own tools."""

    async def done() -> bool:
        session = owner._connection.session()
        info = json.loads(await session.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=10))
        body = json.dumps({**info["config"], "num_replicas": replicas}).encode()
        subject = f"$JS.API.STREAM.UPDATE.{stream}"
        answer = json.loads(await session.request(subject, body, timeout_s=10))
        return "error" not in answer and answer["config"]["num_replicas"] == replicas

    await until(done)


async def test_facts_of_a_term_are_stored_though_they_share_a_fence(servers) -> None:
    _, cluster = servers
    owner, other = await connect_as(cluster, ADMIN), await connect_as(cluster, ADMIN)
    await make_streams(owner)
    tick = encode(Tick(revision=1, now_unix_s=1.0), source="test")
    fence = Fence(tick.subject, await owner.publish(tick))
    batches = [[fact(f"{batch}-{one}") for one in range(64)] for batch in range(4)]

    stored: list[Any] = []
    left = iter(batches)
    while some := await owner.publish_all(left, fence=fence):
        stored += some
    overlapping = [owner.publish(fact(f"single-{number}"), fence=fence) for number in range(8)]
    stored += await asyncio.gather(*overlapping)

    assert all(isinstance(one, int) for one in stored), stored
    assert len(stored) == len(set(stored)) == 4 * 64 + 8
    again = await owner.publish_all(batches, fence=fence)
    assert again == sorted(again)

    await other.publish(encode(Tick(revision=2, now_unix_s=2.0), source="test"))
    with pytest.raises(StaleSequenceError):
        await owner.publish(fact("late"), fence=fence)
    refused = await owner.publish_all(batches, fence=fence)
    assert len(refused) == 64
    assert all(isinstance(one, StaleSequenceError) for one in refused)
    assert not any(isinstance(one, FenceInUseError) for one in refused)
    await owner.close()
    await other.close()


def fact(name: str) -> Outgoing:
    return Outgoing(f"dray.state.pod.v1.n.{name}", b"{}")
