"""``dray doctor --deep``: each difference is named, with who says what and who is right."""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS, log_spec
from dray.domain import names
from dray.domain.claims import AllocatedDevice, Allocation, Claim, ClaimSpec
from dray.domain.devices import Capacity, Device, DeviceId, RequestPolicy, ResourceSlice
from dray.domain.pods import Node, Pool
from dray.kube.convert import allocation_to, claim_from
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, Object
from dray.messages.base import Outgoing, encode
from dray.messages.decisions import (
    AnyRecord,
    ClaimDecision,
    Decided,
    Opened,
    PodDecision,
    Release,
    Released,
    encode_record,
    log_subject,
)
from dray.messages.facts import (
    ClaimObserved,
    DomainObserved,
    Fact,
    NodeObserved,
    PoolObserved,
    SliceObserved,
    Synced,
    Tick,
)
from dray.messages.rpc import DUMP_SUBJECT
from dray_allocator.dump import holdings_of
from dray_allocator.events import FactSeen, RecordSeen, Serve
from dray_allocator.handle import handle
from dray_allocator.rules import Rules
from dray_allocator.state import AllocatorState
from dray_allocator.wire import answer_to
from dray_cli.doctor.deep.compare import differences
from dray_cli.doctor.deep.differences import Difference
from dray_cli.doctor.deep.look import look_deep
from dray_cli.doctor.deep.sight import Log, Replica, Sight, Written
from dray_cli.doctor.verb import _bus

POOL, NODE, UID = "fast", "node-1", "claim-1"
START_UNIX_S = 1_000_000.0
CREATED = "1970-01-12T13:50:00Z"
"""600 s after the log was opened."""


def allocation(*cards: str, vram: str = "16Gi") -> Allocation:
    """Shares of cards of the node."""
    return Allocation(
        tuple(
            AllocatedDevice("gpu", DeviceId(names.DRIVER, NODE, card), None, {"vram": vram})
            for card in cards
        ),
        NODE,
    )


def claim(held: Allocation | None, uid: str = UID, **changes: Any) -> Claim:
    """A claim of the pool, as Kubernetes has it and as facts show it."""
    made = Claim(uid, "default", f"of-{uid}", 7, POOL, ClaimSpec(), created_unix_s=START_UNIX_S)
    return replace(made, allocation=held, created_unix_s=START_UNIX_S + 600, **changes)


def decided(held: Allocation, attempt: int = 1, uid: str = UID, name: str = "") -> Decided:
    """A pod's one claim gets devices."""
    made = ClaimDecision(
        uid=uid,
        namespace="default",
        name=name or f"of-{uid}",
        attempt=attempt,
        allocation=held,
    )
    about = {"pod_uid": f"pod-{uid}", "namespace": "default", "name": "p", "node": NODE}
    pod = PodDecision(**about, binder="dray", claims=(made,))
    return Decided(**head(), policy_version=1, pods=(pod,))


def released(why: str, attempt: int = 1) -> Released:
    """The claim's reservation ends."""
    return Released(**head(), releases=(Release(claim_uid=UID, attempt=attempt, why=why),))


def head() -> dict[str, Any]:
    return {
        "domain": POOL,
        "epoch": 1,
        "writer": "one",
        "facts_sequence": 1,
        "now_unix_s": START_UNIX_S + 700,
    }


OPENED = Opened(domain=POOL, epoch=1, writer="c", facts_sequence=0, now_unix_s=START_UNIX_S)
CARD = Device(
    "gpu-0", capacity={"vram": Capacity("40Gi", RequestPolicy())}, allow_multiple_allocations=True
)
SLICE = ResourceSlice(
    "slice-1", "s", names.DRIVER, NODE, 1, 1, NODE, (CARD, replace(CARD, name="gpu-1"))
)


def facts_of(
    claims: Sequence[Claim] = (), *, later_s: float = 0.0, node: dict[str, Any] | None = None
) -> list[Fact]:
    """One node with two cards, the claims, and the time."""
    return [
        PoolObserved(revision=1, pool=Pool(POOL, "u")),
        SliceObserved(revision=1, slice=SLICE),
        NodeObserved(revision=1, node=Node(NODE, "n", POOL), **(node or {})),
        DomainObserved(revision=1, domain=POOL, epoch=1),
        *(ClaimObserved(revision=7, claim=one) for one in claims),
        Synced(revision=7, instance="c"),
        Tick(revision=1, now_unix_s=START_UNIX_S + 700 + later_s),
    ]


def state_of(facts: Sequence[Fact], records: Sequence[AnyRecord]) -> AllocatorState:
    """Folded, and nothing decided."""
    state = AllocatorState(Rules(writer="replica-1"))
    for sequence, fact in enumerate(facts, 1):
        handle(state, FactSeen(sequence, fact, more=True))
    for sequence, record in enumerate(records, 1):
        handle(state, RecordSeen(POOL, 1, sequence, record, more=True))
    return state


def sight_of(
    written: Sequence[Claim],
    records: Sequence[AnyRecord] = (),
    facts: Sequence[Claim] | None = None,
    **about: Any,
) -> Sight:
    """One look; facts say what is written, unless they are given."""
    state = state_of(facts_of(written if facts is None else facts, **about), [OPENED, *records])
    return Sight(
        state,
        logs={POOL: Log(True, START_UNIX_S, {UID: START_UNIX_S + 701})},
        fact_slices={SLICE.name: SLICE},
        claims={one.uid: Written(one, START_UNIX_S + 702) for one in written},
        slices={SLICE.name: SLICE},
    )


def found(sight: Sight, floor: int = 0) -> dict[str, Difference]:
    """By kind; each is about another thing."""
    told = differences(sight, floor=floor)
    assert len({one.kind for one in told}) == len(told)
    return {one.kind: one for one in told}


ONE, OTHER = allocation("gpu-0"), allocation("gpu-1")


@pytest.mark.parametrize(
    ("held", "records"),
    [
        (None, []),
        (None, [decided(ONE)]),
        (ONE, [decided(ONE), released("committed")]),
        (allocation("gpu-0", vram="16384Mi"), [decided(ONE), released("committed")]),
        (None, [decided(ONE), released("voided")]),
        (OTHER, [decided(ONE), released("voided"), decided(OTHER, 2), released("committed", 2)]),
    ],
    ids=["waits", "under way", "committed", "in other words", "voided", "decided again"],
)
def test_what_is_as_it_should_be_is_no_difference(
    held: Allocation | None, records: list[AnyRecord]
) -> None:
    assert found(sight_of([claim(held)], records)) == {}


@pytest.mark.parametrize(
    ("written", "records", "kind"),
    [
        ([claim(OTHER)], [decided(ONE), released("committed")], "another-allocation"),
        ([claim(OTHER)], [decided(ONE)], "another-allocation"),
        ([claim(OTHER)], [decided(ONE), released("voided")], "another-allocation"),
        ([claim(ONE, void=1)], [decided(ONE), released("voided")], "allocated-although-voided"),
        ([claim(ONE)], [decided(ONE)], "commit-not-noted"),
        ([claim(None, void=1)], [decided(ONE)], "void-not-noted"),
        ([claim(None)], [decided(ONE), released("committed")], "allocation-cleared"),
        ([], [decided(ONE)], "claim-is-gone"),
        ([], [decided(ONE), released("committed")], "claim-is-gone"),
        ([claim(ONE)], [], "nobody-decided-it"),
    ],
)
def test_a_log_that_says_otherwise_than_the_status_is_named(
    written: list[Claim], records: list[AnyRecord], kind: str
) -> None:
    (one,) = found(sight_of(written, records)).values()

    assert one.kind == kind
    assert one.about == f"claim default/of-{UID}"
    assert one.right.startswith("Kubernetes")
    assert [side.who for side in one.sides] == ["Kubernetes", f"log of {POOL}"]


def test_both_devices_are_named_with_what_each_side_says_and_since_when() -> None:
    one = found(sight_of([claim(OTHER)], [decided(ONE), released("committed")]))[
        "another-allocation"
    ]

    assert one.devices == ("gpu-0 on node-1", "gpu-1 on node-1")
    kubernetes, log = one.sides
    assert kubernetes.says == "gpu-1 on node-1 vram=16Gi"
    assert log.says == "attempt 1 is committed: gpu-0 on node-1 vram=16Gi"
    assert (kubernetes.since_unix_s, log.since_unix_s) == (START_UNIX_S + 702, START_UNIX_S + 701)
    told = one.finding().line().splitlines()
    assert told[0].endswith("another allocation, gpu-0 on node-1, gpu-1 on node-1")
    assert told[1].endswith("gpu-1 on node-1 vram=16Gi, since 1970-01-12 13:58:22Z")
    assert [line.split()[0] for line in told[1:]] == ["Kubernetes", "log", "right", "do"]


def test_a_decision_is_late_only_after_the_allocators_own_time_out() -> None:
    assert found(sight_of([claim(None)], [decided(ONE)], later_s=40)) == {}
    late = found(sight_of([claim(None)], [decided(ONE)], later_s=60))
    assert list(late) == ["decision-not-carried-out"]


@pytest.mark.parametrize(
    "node", [{"recalled_unix_s": 5.0}, {"node": Node(NODE, "n", POOL, owner="kube-scheduler")}]
)
@pytest.mark.parametrize("records", [[], [decided(ONE), released("voided")]])
def test_what_kube_scheduler_may_have_allocated_is_no_difference(
    node: dict[str, Any], records: list[AnyRecord]
) -> None:
    sight = sight_of([claim(OTHER)], records)
    sight.lent[NODE] = None
    assert found(sight) == {}


def test_a_log_that_was_trimmed_or_opened_later_need_not_know_an_allocation() -> None:
    trimmed = sight_of([claim(ONE)])
    trimmed.logs[POOL] = Log(whole=False)
    later = sight_of([claim(ONE)])
    later.logs[POOL] = Log(whole=True, opened_unix_s=START_UNIX_S + 601)
    assert found(trimmed) == found(later) == {}


def test_a_fact_that_is_old_is_named_by_the_fields_that_differ() -> None:
    records = [decided(ONE), released("committed")]
    one = found(sight_of([claim(ONE, void=3)], records, [claim(ONE)]))["fact-is-old"]

    assert [side.says for side in one.sides] == ["void 3", "void 0"]
    assert "claim-controller" in one.do


@pytest.mark.parametrize(
    ("written", "facts"), [([], [claim(ONE)]), ([claim(ONE)], [])], ids=["gone", "unseen"]
)
def test_a_claim_that_one_side_lacks_is_named_once(
    written: list[Claim], facts: list[Claim]
) -> None:
    records = [decided(ONE), released("committed")]
    one = found(sight_of(written, records, facts))["fact-is-old"]

    says = [side.says for side in one.sides]
    assert sorted(says) == ["gpu-0 on node-1 vram=16Gi", "there is no such claim"]


def test_other_drivers_claims_are_none_of_the_facts() -> None:
    foreign = Claim("f", "default", "nic", 1, "", ClaimSpec())
    assert found(sight_of([foreign], facts=[])) == {}


def test_a_slice_that_the_bus_shows_otherwise_is_named_with_its_devices() -> None:
    sight = sight_of([])
    sight.slices[SLICE.name] = replace(SLICE, generation=2, devices=(CARD,))
    sight.slices["slice-2"] = replace(SLICE, name="slice-2")
    told = differences(sight, floor=0)

    assert [one.about for one in told] == ["slice slice-1", "slice slice-2"]
    assert told[0].devices == ("gpu-1 on node-1",)
    assert told[0].sides[0].says == "generation 2 of pool node-1, 1 devices"
    assert told[1].sides[1].says == "there is no such slice"


def test_a_card_of_which_more_is_in_use_than_it_has_is_told_with_its_users() -> None:
    much = allocation("gpu-0", vram="30Gi")
    both = [claim(much), claim(much, "claim-2")]
    records = [decided(much), decided(much, uid="claim-2"), released("committed")]
    one = found(sight_of(both, records))["sold-twice"]

    assert one.about == "device gpu-0 on node-1"
    assert "60Gi are in use" in one.sides[0].says
    assert [side.who for side in one.sides[1:]] == ["default/of-claim-1", "default/of-claim-2"]


def replica(sight: Sight, **changes: Any) -> Sight:
    """The sight, with the answer of a replica that folded the same, but for the changes."""
    domain = sight.state.domains[POOL]
    position = sight.state.facts.position
    same = Replica(1, "replica-1", position, 3, holdings_of(sight.state, domain))
    sight.replicas[POOL] = dataclasses.replace(same, **changes)
    return sight


def test_a_replica_that_folded_the_same_says_the_same() -> None:
    sight = replica(sight_of([claim(ONE)], [decided(ONE), released("committed")]))
    assert found(sight, floor=sight.state.facts.position) == {}


def test_a_replica_that_remembers_something_else_is_at_fault() -> None:
    sight = sight_of([claim(ONE)], [decided(ONE), released("committed")])
    known = holdings_of(sight.state, sight.state.domains[POOL])[UID]
    wrong = msgspec.structs.replace(known, used=OTHER.devices)
    one = found(replica(sight, holdings={UID: wrong}))["replica-remembers-otherwise"]

    assert one.sides[0].says.endswith("in use: gpu-0 on node-1 vram=16Gi")
    assert one.sides[1].who == "replica-1"
    assert one.sides[1].says.endswith("in use: gpu-1 on node-1 vram=16Gi")
    assert one.right.startswith("facts and log")
    forgot = found(replica(sight, holdings={}))["replica-remembers-otherwise"]
    assert forgot.sides[1].says == "nothing"


@pytest.mark.parametrize("changes", [{"facts_sequence": 2}, {"epoch": 7}])
def test_a_replica_that_lags_is_told_instead_of_what_follows_from_it(changes: Any) -> None:
    sight = replica(sight_of([claim(ONE)], [decided(ONE)]), holdings={}, **changes)
    told = [one for one in differences(sight, floor=5) if one.about == f"pool {POOL}"]
    assert [one.kind for one in told] == ["replica-lags"]


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

        async def answer(question: bytes) -> bytes | None:
            return answer_to(state, question)

        serving = asyncio.create_task(self.bus.serve(DUMP_SUBJECT, answer, queue="replica-1"))
        await asyncio.sleep(0)
        try:
            looked = await look_deep(self.bus, self.kube, pause=self.pause)
        finally:
            serving.cancel()
        return [one.line() for one in looked.findings], looked.differences

    async def pause(self, by_s: float) -> None:
        self.paused.append(by_s)


async def test_a_stack_in_which_all_agree_is_looked_at_once() -> None:
    stack = Stack()
    await stack.begin(ONE)

    lines, told = await stack.look()

    assert told == []
    assert stack.paused == []
    assert lines == [
        "  ok  comparison: no difference that lasts between 1 claim, 0 slices, 1 log and 1 "
        "allocator's answer"
    ]


async def test_a_difference_that_lasts_is_told_after_a_second_look() -> None:
    stack = Stack()
    await stack.begin(OTHER)

    lines, (one,) = await stack.look()

    assert one.kind == "another-allocation"
    assert stack.paused == [5.0]
    assert lines[0].startswith("  NO  claim default/train: another allocation")
    shown = one.as_json()
    assert shown["sides"][0]["who"] == "Kubernetes"
    assert set(shown) == {"kind", "about", "devices", "sides", "right", "do"}


async def test_what_is_under_way_is_not_told() -> None:
    stack = Stack()
    await stack.begin(OTHER)

    async def pause(by_s: float) -> None:
        stack.paused.append(by_s)
        cleared = {**stack.object, "status": {}}
        written = await stack.kube.update(CLAIMS, cleared, subresource="status")
        written["status"] = {"allocation": allocation_to(ONE)}
        await stack.kube.update(CLAIMS, written, subresource="status")

    stack.pause = pause  # type: ignore[method-assign]
    lines, told = await stack.look()

    assert (stack.paused, told) == ([5.0], [])
    assert lines[0].startswith("  ok  comparison: no difference that lasts")


async def test_a_pool_whose_replica_is_silent_is_told_beside_the_rest() -> None:
    stack = Stack()
    await stack.begin(ONE)

    looked = await look_deep(stack.bus, stack.kube, pause=stack.pause)

    assert looked.differences == []
    assert [one.grade for one in looked.findings] == ["broken", "ok"]
    assert looked.findings[0].subject == f"allocator of pool {POOL}"


@pytest.mark.parametrize("deep", [True, False])
async def test_without_a_bus_it_does_not_look_as_if_all_agreed(deep: bool) -> None:
    findings, looked = await _bus(MemoryKube(), None, None, None, deep=deep)
    assert (looked is not None) is deep
    assert [one.grade for one in findings] == ["unseen"] * (1 + deep)
    assert (findings[-1].subject == "comparison") is deep


async def test_without_facts_nothing_was_compared() -> None:
    looked = await look_deep(MemoryBus(), MemoryKube())
    (finding,) = looked.findings
    assert (finding.grade, looked.differences) == ("unseen", [])
    assert "DRAY_FACTS" in finding.text
