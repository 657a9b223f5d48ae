"""The policies on clusters so small that the best node can be found by hand."""

import math

import numpy as np
import pytest

from dray_cli.simulate.cluster import SimulatedCluster
from dray_cli.simulate.fgd import Fgd, Typical, score_of
from dray_cli.simulate.placement_rules import RULES, ByRule
from dray_cli.simulate.protocol import run, workload
from dray_cli.simulate.runs import POLICIES, Job, policy_of
from dray_cli.simulate.trace import ClusterTrace, TraceNode, TracePod

SMALL = TracePod(1000, 10, 1, 400)
BIG = TracePod(4000, 10, 1, 700)
PAIR = TracePod(2000, 10, 2, 1000)
NO_CARD = TracePod(1000, 10, 0, 0)


def node(name: str, cards: int, cpu: int = 64_000, model: str = "T4") -> TraceNode:
    return TraceNode(name, cpu, 100_000, cards, model)


def used(policy: ByRule | Fgd) -> list[list[int]]:
    """Per node, what is taken of its cards."""
    cluster = policy._cluster
    return [
        [1000 - int(left) for left in row[: total // 1000]]
        for row, total in zip(cluster.cards, cluster.total, strict=True)
    ]


def test_fragmentation_is_the_expected_idle_milli_that_a_typical_pod_cannot_use():
    trace = ClusterTrace((node("n", 2),), (SMALL, SMALL, BIG, NO_CARD))
    typical = Typical(SimulatedCluster(trace), trace.pods)

    def found(cpu: int, *cards: int) -> float:
        state = np.array([[*cards, *[0] * (8 - len(cards))]])
        return float(typical.fragmentation(np.array([cpu]), state, np.array([0]))[0])

    # Half of the pods are small, a quarter each is big or has no card, for which all is wasted.
    assert found(64_000, 1000, 1000) == pytest.approx(2000 / 4)
    assert found(64_000, 1000, 600) == pytest.approx((600 + 1600) / 4)
    assert found(64_000, 500, 300) == pytest.approx(300 / 2 + 800 / 4 + 800 / 4)
    # With cpu for a small pod only, no big one runs; with none, nobody does.
    assert found(1000, 1000, 1000) == pytest.approx((2000 + 2000) / 4)
    assert found(0, 1000, 1000) == pytest.approx(2000)


def test_typical_pods_are_the_most_frequent_up_to_95_per_cent():
    pods = (SMALL,) * 60 + (BIG,) * 36 + (PAIR,) * 4
    typical = Typical(SimulatedCluster(ClusterTrace((node("n", 2),), pods)), pods)

    assert typical.milli.tolist() == [400, 700]
    assert typical.share.tolist() == pytest.approx([60 / 96, 36 / 96])


def test_a_model_that_a_typical_pod_may_not_use_is_waste_to_it():
    pods = (TracePod(1000, 10, 1, 400, ("P100",)),)
    trace = ClusterTrace((node("a", 1), node("b", 1, model="P100")), pods)
    cluster = SimulatedCluster(trace)
    found = Typical(cluster, pods).fragmentation(cluster.cpu, cluster.cards, cluster.model)

    assert found.tolist() == [1000.0, 0.0]


def test_scores_are_whole_numbers_around_fifty():
    assert score_of(np.array([0.0, 1000.0, -1000.0])).tolist() == [
        50,
        math.floor(100 / (1 + math.exp(-1))),
        math.floor(100 / (1 + math.exp(1))),
    ]


def test_fgd_fills_the_rest_of_a_card_that_nobody_else_could_use():
    # What a big pod leaves of a card, 300, is too little for every typical pod but the tiny one.
    tiny = TracePod(100, 10, 1, 300)
    trace = ClusterTrace((node("a", 1), node("b", 1)), (BIG,) * 10 + (tiny,))
    policy = Fgd(trace, 42, "name")

    assert policy.place(BIG)
    assert policy.place(tiny)
    assert sorted(used(policy)) == [[0], [1000]]


def test_fgd_scores_nodes_again_that_changed():
    trace = ClusterTrace((node("a", 2),), (SMALL, PAIR))
    policy = Fgd(trace, 42, "random")

    assert policy.place(SMALL)
    assert not policy.place(PAIR)
    assert [policy.place(SMALL) for _ in range(4)] == [True, True, True, False]
    assert used(policy) == [[800, 800]]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("bestfit", [[0, 0], [400]]),  # the least left over
        ("dotprod", [[0, 0], [400]]),  # the least free where it is asked for
        ("gpu-packing", [[0, 0], [400]]),  # of unused nodes the one with fewer idle cards
    ],
)
def test_rules_begin_with_the_small_node(rule, expected):
    policy = ByRule(rule, ClusterTrace((node("a", 2), node("b", 1)), (SMALL,)), 42, "name")

    assert policy.place(SMALL)
    assert used(policy) == expected


def test_packing_takes_cards_in_use_then_idle_ones_on_their_nodes_then_unused_nodes():
    policy = ByRule("gpu-packing", ClusterTrace((node("a", 2), node("b", 2)), (SMALL,)), 42, "name")

    policy.place(SMALL)
    policy.place(SMALL)
    assert sorted(used(policy)) == [[0, 0], [800, 0]]
    policy.place(BIG)
    assert sorted(used(policy)) == [[0, 0], [800, 700]]
    policy.place(SMALL)
    assert sorted(used(policy)) == [[400, 0], [800, 700]]


def test_clustering_keeps_kinds_of_requests_apart():
    policy = ByRule(
        "gpu-clustering", ClusterTrace((node("a", 4), node("b", 4)), (SMALL,)), 42, "name"
    )

    for pod in (SMALL, PAIR, SMALL, SMALL):
        policy.place(pod)
    assert sorted(map(sum, used(policy))) == [1200, 2000]
    policy.place(PAIR)
    assert sorted(map(sum, used(policy))) == [1200, 4000]


def test_a_card_is_the_one_with_the_least_left():
    policy = ByRule("bestfit", ClusterTrace((node("a", 3),), (SMALL,)), 42, "name")

    for pod in (SMALL, BIG, TracePod(1, 1, 1, 300)):
        policy.place(pod)
    assert used(policy) == [[400, 1000, 0]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("ties", ["random", "name"])
def test_every_policy_keeps_to_cpu_memory_models_and_cards(policy, ties, tmp_path):
    nodes = tuple(node(f"n{number}", number % 3, 8000) for number in range(6))
    nodes += tuple(node(f"m{number}", 2, 6000, "P100") for number in range(2))
    pods = (
        SMALL,
        BIG,
        PAIR,
        NO_CARD,
        TracePod(500, 60_000, 1, 100),
        TracePod(1, 1, 1, 1, ("P100",)),
    )
    trace = ClusterTrace(nodes, pods * 4)
    one = policy_of(Job(tmp_path, tmp_path, policy, ties, 3), trace)

    outcome = run(one, workload(trace, 3), trace.gpu_milli)

    again = policy_of(Job(tmp_path, tmp_path, policy, ties, 3), trace)
    assert run(again, workload(trace, 3), trace.gpu_milli) == outcome
    assert outcome.dropped
    assert 50 < outcome.allocated[-1] < 100
    if isinstance(one, ByRule | Fgd):
        left = one._cluster
        assert min(left.cpu.min(), left.memory.min(), left.cards.min()) >= 0


def test_pods_for_a_model_that_is_not_there_are_dropped(tmp_path):
    pod = TracePod(1, 1, 1, 1, ("H100",))
    trace = ClusterTrace((node("a", 2),), (pod, SMALL))

    for policy in POLICIES:
        one = policy_of(Job(tmp_path, tmp_path, policy, "name", 3), trace)
        assert (policy, one.place(pod), one.place(SMALL)) == (policy, False, True)


def test_every_rule_has_its_policy():
    assert set(RULES) < set(POLICIES)
