"""``dray doctor --deep`` on a stack in memory: it looks twice before it tells a difference."""

import asyncio
from typing import NoReturn

import msgspec
import pytest
from tests.unit.cli.doctor_deep.snapshots import (
    ONE,
    OPENED,
    OTHER,
    POOL,
    START_UNIX_S,
    decided,
    facts_of,
    released,
    state_of,
)

from dray.api import names
from dray.api.claims import Allocation, Claim
from dray.bus.memory import MemoryBus
from dray.bus.ports import Request
from dray.bus.topology import STREAMS, log_spec
from dray.kube.convert import allocation_to, claim_from
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, Object
from dray.messages.base import Outgoing, encode
from dray.messages.decisions import Release, encode_record, log_subject
from dray.messages.facts import SliceObserved
from dray.messages.rpc import DUMP_SUBJECT
from dray_allocator.core.dump import answer_to
from dray_allocator.core.handle import handle
from dray_allocator.values.events import Serve
from dray_cli.cluster_bus import NoBusAddressError
from dray_cli.doctor.deep.differences import Difference
from dray_cli.doctor.deep.run import run_deep
from dray_cli.doctor.verb import _bus


class Stack:
    """Facts, log, claims and one replica, in memory."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.kube = MemoryKube(now_unix_s=lambda: START_UNIX_S + 600)
        self.paused: list[float] = []
        self.claims: list[Claim] = []

    async def begin(self, held: Allocation) -> None:
        """One claim in Kubernetes; its log has it committed on gpu-0."""
        request = {"name": "gpu", "exactly": {"deviceClassName": names.DEVICE_CLASS}}
        obj: Object = {
            "metadata": {"name": "train", "labels": {names.POOL_LABEL: POOL}},
            "spec": {"devices": {"requests": [request]}},
        }
        made = await self.kube.create(CLAIMS, obj, "default")
        made["status"] = {"allocation": allocation_to(held)}
        self.object = await self.kube.update(CLAIMS, made, subresource="status")
        for spec in (*STREAMS, log_spec(POOL, 1)):
            await self.bus.ensure(spec)
        known = claim_from(self.object)
        self.records = [
            OPENED,
            decided(ONE, uid=known.uid, name=known.name),
            msgspec.structs.replace(
                released("committed"),
                releases=(Release(claim_uid=known.uid, attempt=1, why="committed"),),
            ),
        ]
        for sequence, record in enumerate(self.records):
            outgoing = Outgoing(log_subject(POOL, 1), encode_record(record))
            await self.bus.append(outgoing, expected_last=sequence)
        self.facts = [fact for fact in facts_of([known]) if not isinstance(fact, SliceObserved)]
        for fact in self.facts:
            await self.bus.publish(encode(fact, source="/c"))

    async def look(self) -> tuple[list[str], list[Difference]]:
        """The lines of the doctor, and the differences."""
        state = state_of(self.facts, self.records)
        handle(state, Serve(POOL, 1, len(self.records)))

        async def answer(request: Request) -> bytes | None:
            return answer_to(state, request.payload)

        serving = asyncio.create_task(self.bus.serve(DUMP_SUBJECT, answer, queue="replica-1"))
        await asyncio.sleep(0)
        try:
            looked = await run_deep(self.bus, self.kube, pause=self.pause)
        finally:
            serving.cancel()
        return [one.line() for one in looked.findings], looked.differences

    async def pause(self, by_s: float) -> None:
        self.paused.append(by_s)


async def test_a_stack_in_which_all_agree_is_looked_at_once() -> None:
    stack = Stack()
    await stack.begin(ONE)

    lines, reported = await stack.look()

    assert reported == []
    assert stack.paused == []
    assert lines == [
        "  ok  comparison: no lasting difference between 1 claim, 0 slices, 1 log and 1 "
        "allocator's answer"
    ]


async def test_a_difference_that_lasts_is_reported_after_a_second_snapshot() -> None:
    stack = Stack()
    await stack.begin(OTHER)

    lines, (one,) = await stack.look()

    assert one.kind == "another-allocation"
    assert stack.paused == [5.0]
    assert lines[0].startswith("  NO  claim default/train: another allocation")
    shown = one.as_json()
    assert shown["sides"][0]["who"] == "Kubernetes"
    assert set(shown) == {"kind", "about", "devices", "sides", "right", "do"}


async def test_differences_under_way_are_not_reported() -> None:
    stack = Stack()
    await stack.begin(OTHER)

    async def pause(by_s: float) -> None:
        stack.paused.append(by_s)
        cleared = {**stack.object, "status": {}}
        written = await stack.kube.update(CLAIMS, cleared, subresource="status")
        written["status"] = {"allocation": allocation_to(ONE)}
        await stack.kube.update(CLAIMS, written, subresource="status")

    stack.pause = pause  # type: ignore[method-assign]
    lines, reported = await stack.look()

    assert (stack.paused, reported) == ([5.0], [])
    assert lines[0].startswith("  ok  comparison: no lasting difference")


async def test_a_pool_whose_replica_is_silent_is_reported_with_the_rest() -> None:
    stack = Stack()
    await stack.begin(ONE)

    looked = await run_deep(stack.bus, stack.kube, pause=stack.pause)

    assert looked.differences == []
    assert [one.grade for one in looked.findings] == ["broken", "ok"]
    assert looked.findings[0].subject == f"allocator of pool {POOL}"


@pytest.mark.parametrize("deep", [True, False])
async def test_without_a_bus_it_does_not_look_as_if_all_agreed(
    deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*_: object) -> NoReturn:
        raise NoBusAddressError("there is no Secret")

    monkeypatch.setattr("dray_cli.doctor.verb.open_bus", nowhere)
    seen = await _bus(MemoryKube(), None, None, None, deep=deep)
    assert (seen.looked is not None) is deep
    assert [one.grade for one in seen.findings] == ["unseen"] * (1 + deep)
    assert (seen.findings[-1].subject == "comparison") is deep


async def test_without_facts_nothing_was_compared() -> None:
    looked = await run_deep(MemoryBus(), MemoryKube())
    (finding,) = looked.findings
    assert (finding.grade, looked.differences) == ("unseen", [])
    assert "DRAY_FACTS" in finding.text
