"""``dray explain --scores``: from the facts on the bus, as if the pod held nothing."""

from typing import Any

import pytest
from tests.unit.allocator.conftest import World, fraction, node, pod

from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS
from dray.messages.base import encode
from dray_allocator.placement.scores import PodScores, ScoredNode
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
        "  Before the score come connected GPUs.",
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
