"""The scores of nodes for a pod, and what they are made of."""

from typing import Any

from msgspec.structs import replace

from dray.api.claims import ClaimSpec
from dray.messages.decisions import Decided
from dray.messages.rpc import PodScores
from dray_allocator.core.handle import handle, scores_before
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.placement.scores import BEST, scores_of
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen


def before_last(world: Any) -> AllocatorState:
    """The state in which the log's last record was decided."""
    state = AllocatorState(world.state.options)
    for sequence, fact in enumerate(world.facts, 1):
        handle(state, FactSeen(sequence, fact, more=True))
    for sequence, record in enumerate(world.logs["pool"][:-1], 1):
        handle(state, RecordSeen("pool", 1, sequence, record, more=True))
    return state


def decided(world: Any, uid: str) -> PodScores | None:
    """The scores when the pod was decided, in the log's last record."""
    record = world.logs["pool"][-1]
    assert isinstance(record, Decided)
    return scores_before(before_last(world), record, uid)


def three_nodes(make_world: Any, mode: str = "CompactFirst", **placement: Any) -> Any:
    """Three nodes of two cards; on one a pod with a quarter of their TFLOPS."""
    world = make_world().open(mode, **placement)
    world.nodes(*(world.a_node(f"n{i}") for i in range(3)), cards=2)
    world.submit(world.a_pod("first"), world.ask("156", "4Gi"))
    return world


def test_the_chosen_node_comes_first_with_the_parts_of_its_score(make_world: Any) -> None:
    world = three_nodes(make_world)
    world.submit(world.a_pod("second"), world.ask())

    scores = decided(world, "second")

    assert scores is not None
    assert scores.nodes[0].node == world.decisions()["second"].node
    assert [one.parts for one in scores.nodes] == [{"load": 0.25}, {"load": 0.0}, {"load": 0.0}]
    assert scores.nodes[0].score < scores.nodes[1].score == scores.nodes[2].score
    assert (scores.policy, scores.of_nodes, scores.first) == ("the highest load first", 3, "")


def test_the_lowest_load_comes_first_where_the_policy_spreads(make_world: Any) -> None:
    world = three_nodes(make_world, "LowLoadFirst")
    world.submit(world.a_pod("second"), world.ask())

    scores = decided(world, "second")

    assert scores is not None
    assert scores.policy == "the lowest load first"
    assert scores.nodes[-1].node == world.decisions()["first"].node


def test_weighted_resources_are_parts_of_their_own(make_world: Any) -> None:
    world = three_nodes(make_world, placement_weights={"tflops": 3, "vram": 1})
    world.submit(world.a_pod("second"), world.ask("312", "8Gi"))

    scores = decided(world, "second")

    assert scores is not None
    assert scores.nodes[0].parts == {"load": 0.25, "virtual_tflops": 0.75, "virtual_vram": 0.15}


def test_what_comes_before_the_score_is_named(make_world: Any) -> None:
    world = three_nodes(make_world)
    world.submit(world.a_pod("second"), world.ask("10", "1Gi", count=2))

    scores = decided(world, "second")

    assert scores is not None
    assert scores.first == "connected GPUs"


def test_a_pod_without_devices_goes_by_the_load_whatever_the_policy(make_world: Any) -> None:
    world = three_nodes(make_world, "LowLoadFirst")
    world.submit(world.a_pod("second"), ClaimSpec(()))

    scores = decided(world, "second")

    assert scores is not None
    assert scores.policy == "nodes without GPUs first, then the highest load"
    assert [one.parts for one in scores.nodes] == [{"load": 0.25}, {"load": 0.0}, {"load": 0.0}]


def test_an_aware_policy_shows_the_loss(make_world: Any) -> None:
    world = three_nodes(make_world, "FragmentationAware")
    world.submit(world.a_pod("second"), world.ask())

    scores = decided(world, "second")

    assert scores is not None
    assert [one.parts["loss"] for one in scores.nodes] == [one.score for one in scores.nodes]
    assert scores.nodes[0].node == world.decisions()["second"].node


def test_nodes_that_do_not_fit_are_not_among_them_and_few_are_shown(world: Any) -> None:
    world.nodes(world.a_node("bare", cpu_milli=0), *(world.a_node(f"n{i}") for i in range(9)))
    pod = world.a_pod("p")
    world.submit(replace(pod, needs=replace(pod.needs, cpu_milli=1)), world.ask())

    scores = decided(world, "p")

    assert scores is not None
    assert len(scores.nodes) == BEST
    assert "bare" not in {one.node for one in scores.nodes}
    assert scores.of_nodes == 10


def test_earlier_pods_of_the_record_count(make_world: Any) -> None:
    world = make_world().open()
    for name in ("a", "b"):
        world.submit(world.a_pod(name), world.ask("156", "4Gi"))
    world.nodes(world.a_node("n0"))
    record = next(one for one in world.logs["pool"] if isinstance(one, Decided))
    assert [pod.pod_uid for pod in record.pods] == ["a", "b"]

    first, second = decided(world, "a"), decided(world, "b")

    assert first is not None
    assert second is not None
    assert first.nodes[0].parts["load"] == 0.0
    assert second.nodes[0].parts["load"] == 0.5


def test_asking_changes_nothing(make_world: Any) -> None:
    world = three_nodes(make_world)
    record, state = world.logs["pool"][-1], before_last(world)

    first = scores_before(state, record, "first")

    assert first is not None
    assert scores_before(state, record, "first") == first
    assert scores_before(state, record, "unknown") is None


def test_a_pod_whose_node_is_given_has_no_scores(world: Any) -> None:
    world.submit(world.a_pod("p"), world.ask())
    want = wanted(world.state, "pool", world.state.facts.pods["p"])
    domain = world.state.domains["pool"]

    assert isinstance(want, PodRequest)
    assert scores_of(world.state, domain, want) is not None
    assert scores_of(world.state, domain, replace(want, fixed_node="n0")) is None
