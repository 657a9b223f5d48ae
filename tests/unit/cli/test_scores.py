"""``dray explain --scores``: from the facts on the bus, as if the pod held nothing."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.unit.allocator.conftest import World, fraction, node, pod

from dray.bus.memory import MemoryBus
from dray.bus.ports import Request
from dray.bus.topology import STREAMS
from dray.messages.base import encode
from dray.messages.rpc import SCORES_SUBJECT, PodScores, ScoredNode, ScoresReply
from dray_cli.scores import FoundScores, read_scores


@pytest.fixture
async def bus() -> MemoryBus:
    """With the facts of two nodes, of which one runs a pod that was committed."""
    world = World().open().nodes(node("n0"), node("n1"), cards=2)
    world.submit(pod("first"), fraction("156", "4Gi"))
    world.submit(pod("second"), fraction())
    for uid in ("first", "second"):
        world.commit(world.decisions()[uid])
    found = MemoryBus()
    for spec in STREAMS:
        await found.ensure(spec)
    for fact in world.facts:
        await found.publish(encode(fact, source="test"))
    return found


async def test_the_pods_own_devices_do_not_count(bus: MemoryBus) -> None:
    found = await read_scores(bus, "second", "n0")

    assert found.scores is not None
    assert sorted(one.parts["load"] for one in found.scores.nodes) == [0.0, 0.25]


async def test_without_facts_it_says_so() -> None:
    found = await read_scores(MemoryBus(), "p", "")

    assert found.scores is None
    assert "the facts can't be read" in found.lines()[0]
    assert found.as_json().keys() == {"missing"}


async def test_a_pod_without_facts_is_sent_to_recordings(bus: MemoryBus) -> None:
    found = await read_scores(bus, "unknown", "")

    assert "dray replay FILE --scores pod/NAME" in found.lines()[0]


def test_lines_have_the_parts_and_name_the_pods_node() -> None:
    nodes = (
        ScoredNode("n0", 5, {"load": 0.5, "virtual_vram": 0.25}),
        ScoredNode("n1", 7, {"load": 0.25, "virtual_vram": 0.125}),
    )
    scores = PodScores("the highest load first", nodes, 4, "connected GPUs")

    assert FoundScores(scores, "n1", "now").lines() == [
        "Scores now: the highest load first.",
        "  Compared before the score: connected GPUs.",
        "  NODE  SCORE  LOAD   VRAM",
        "  n0    5      50.0%  25.0%",
        "  n1    7      25.0%  12.5%  the pod's",
        "  2 more of the pool score worse, or the pod does not fit there.",
    ]


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ((), "  The pod fits on none of 2 nodes."),
        (
            (ScoredNode("n0", 5, {"loss": 5.0}),),
            "  n9, the pod's node, is not among these.",
        ),
    ],
)
def test_what_is_missing_is_named(nodes: Any, line: str) -> None:
    assert FoundScores(PodScores("p", nodes, 2), "n9").lines()[-1] == line


async def replying(bus: MemoryBus, reply: ScoresReply) -> None:
    """Answer as a replica that kept the scores."""

    async def answer(request: Request) -> bytes | None:
        return msgspec.json.encode(reply)

    task = asyncio.create_task(bus.serve(SCORES_SUBJECT, answer, queue="replica"))
    await asyncio.sleep(0)
    assert not task.done()


KEPT = ScoresReply(
    instance="allocator-1",
    node="n0",
    decided_unix_s=60.0,
    scores=PodScores("the highest load first", (ScoredNode("n0", 5, {"load": 0.75}),), 2),
)


async def test_the_scores_of_the_decision_come_from_the_replica_that_decided(
    bus: MemoryBus,
) -> None:
    await replying(bus, KEPT)

    found = await read_scores(bus, "second", "n0")

    assert found.lines()[0] == (
        "Scores when it was decided (1970-01-01T00:01:00Z, kept by allocator allocator-1): "
        "the highest load first."
    )
    assert "note" not in found.as_json()
    assert list(found.as_json()["nodes"]) == [{"node": "n0", "score": 5, "parts": {"load": 0.75}}]


@pytest.mark.parametrize("is_of_another_decision", [True, False])
async def test_if_none_are_left_it_says_so_and_shows_those_of_now(
    bus: MemoryBus, is_of_another_decision: bool
) -> None:
    if is_of_another_decision:
        await replying(bus, msgspec.structs.replace(KEPT, node="n1"))

    lines = (await read_scores(bus, "second", "n0")).lines()

    assert lines[0].startswith("No running allocator has the scores of the decision")
    assert lines[1].startswith("Scores as the pool is now, without this pod")
