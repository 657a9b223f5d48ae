"""Terms follow each other until somebody says stop."""

import asyncio
from typing import Any, cast

import pytest

from dray.api.errors import TemporaryError
from dray.bus.topology import (
    COMMANDS_STREAM,
    EVENTS_STREAM,
    FACTS_STREAM,
    INPUTS_STREAM,
    MIB,
)
from dray.kube.ports import LEASES
from dray.runtime.clock import SystemClock
from dray_claim_controller.publication.publisher import SupersededError
from dray_claim_controller.settings import Streams
from dray_claim_controller.term import LeaderTerm, run_terms


async def test_streams_are_kept_without_a_limit_where_the_server_has_no_room_for_it(
    world: Any,
) -> None:
    """A small store must not keep anybody from leading."""
    world.bus.server.storage_bytes = 100 * MIB
    await world.ready(await world.start())
    kept = {name: stream.spec.max_bytes for name, stream in world.bus.server.streams.items()}
    assert (kept[EVENTS_STREAM], kept[COMMANDS_STREAM]) == (None, 64 * MIB)


async def test_limits_are_a_setting_and_reach_streams_that_exist(world: Any) -> None:
    await world.ready(await world.start("one"))
    streams = Streams(events=8 * MIB, recordings=9 * MIB)
    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    await world.running[0].stop()
    await world.ready(await world.start("two", streams=streams))
    kept = {name: stream.spec.max_bytes for name, stream in world.bus.server.streams.items()}
    assert (kept[EVENTS_STREAM], kept[INPUTS_STREAM]) == (8 * MIB, 9 * MIB)
    assert kept[FACTS_STREAM] is kept["DRAY_DECISIONS_default-pool_1"] is None


class FailingAtTheEnd:
    """A term one of whose loops fails just as it is cancelled."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop())

    async def _loop(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise TemporaryError("the stream is gone")


async def test_a_term_that_fails_while_it_is_stopped_is_not_followed_by_another() -> None:
    begun: list[Any] = []
    has_begun = asyncio.Event()

    def begin() -> LeaderTerm:
        begun.append(FailingAtTheEnd())
        has_begun.set()
        return cast(LeaderTerm, begun[-1])

    leading = asyncio.create_task(run_terms(begin, SystemClock()))
    await has_begun.wait()
    await asyncio.sleep(0)
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(leading, 5.0)

    assert len(begun) == 1


class Superseded:
    """A term that learns from the bus that another leads."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop())

    async def _loop(self) -> None:
        raise SupersededError("another claim-controller leads now")


async def test_a_replaced_leader_acquires_the_lease_before_its_next_term() -> None:
    """Another term begun at once would end the true leader's."""
    begun: list[Any] = []

    def begin() -> LeaderTerm:
        begun.append(Superseded())
        return cast(LeaderTerm, begun[-1])

    await asyncio.wait_for(run_terms(begin, SystemClock()), 5.0)

    assert len(begun) == 1


async def test_a_leader_paused_beyond_its_lease_ends_no_other_term(world: Any) -> None:
    first = await world.start("one")
    await world.until(lambda: first.controller.term and first.controller.term.ready)
    second = await world.start("two")
    # "one" sleeps: its Lease lapses for "two", which begins to lead.
    lease = (await world.kube.list(LEASES)).objects[0]
    await world.kube.update(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})
    await world.until(lambda: second.controller.term and second.controller.term.ready)
    term = second.controller.term
    await world.until(lambda: not first.controller.election.leading)
    ticks = term.publisher.sequence
    await world.until(lambda: term.publisher.sequence > ticks + 3)
    assert second.controller.term is term
