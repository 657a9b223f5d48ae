"""Which node and card FragmentationAware chooses, and that it reads nothing else."""

import random

import numpy as np
import pytest

from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray.api.pods import NodeExpression, PodNeeds
from dray.messages.decisions import Learned, TypicalPod
from dray.messages.facts import PodObserved
from dray_allocator.devices.usage import FULL
from dray_allocator.nodes.index import NONE, NodeIndex
from dray_allocator.nodes.plan import filter_plan
from dray_allocator.nodes.tie_break import TIE_BITS
from dray_allocator.placement.fast_path.table_choice import choose, index_of
from dray_allocator.placement.pod_request import wanted
from dray_allocator.scoring.fragmentation.cost import UNIT
from dray_allocator.scoring.fragmentation.shapes import CARD, class_of, consumed_milli

MODE = "FragmentationAware"


def fixed(world, *pods, version=1):
    """Let the pool decide by these pods: cpu, cards, milli, gain and waste."""
    table = world.state.tables.of("pool")
    classes = tuple(sorted({class_of(card) for card in cards_of(world)}))
    made = [
        TypicalPod(cpu_milli=a, cards=b, milli=(c,) * len(classes), count=1, gain=d, waste=e)
        for a, b, c, d, e in pods
    ]
    world.state.domains["pool"].unwritten = Learned(
        version=version, classes=classes, pods=tuple(made)
    )
    return table


def cards_of(world):
    return [
        card for name in world.state.facts.nodes for card in world.state.published.of(name).cards
    ]


def look(world, uid, tflops, needs=None, **about):
    """The choice for a pod, which nobody decides about."""
    domain = world.state.domains["pool"]
    domain.serving_since = None
    world.claim(world.a_claim(uid, world.ask(tflops, "1Gi", **about)))
    pod = world.a_pod(uid) if needs is None else world.a_pod(uid, needs=needs)
    world.see(PodObserved(revision=world.next(), pod=pod))
    want = wanted(world.state, "pool", world.state.facts.pods[uid])
    return choose(world.state, domain, want), want


def used(world, uid, node, card, tflops):
    """A claim that holds a part of a card."""
    amounts = {"virtual_tflops": tflops, "virtual_vram": "1Gi"}
    device = DeviceId(names.DRIVER, node, card)
    allocation = Allocation((AllocatedDevice(names.GPU_REQUEST, device, None, amounts),), node)
    world.claim(world.a_claim(uid, world.ask(tflops, "1Gi"), allocation=allocation))


def test_the_rest_of_a_card_that_typical_pods_cannot_use_is_taken_first(make_world):
    world = make_world().open(MODE).nodes(*(make_world.a_node(f"n{i}") for i in range(4)), cards=2)
    fixed(world, (0, 1, 500, 0, 1_000_000))
    # 30 % are left of one card: too little for the typical pod, which needs half of one.
    used(world, "a", "n2", "n2-gpu1", "218")

    choice, _ = look(world, "p", "62")

    assert choice.node == "n2"
    assert choice.shares[0].card.id.device == "n2-gpu1"


def test_a_whole_card_is_kept_for_pods_that_need_one(make_world):
    world = make_world().open(MODE).nodes(*(make_world.a_node(f"n{i}") for i in range(3)), cards=2)
    fixed(world, (0, 2, 1000, 1_000_000, 0))
    used(world, "a", "n1", "n1-gpu0", "31")

    # n1 has lost its pair of whole cards: what goes there costs nobody anything more.
    choice, _ = look(world, "p", "100")

    assert choice.node == "n1"


def test_cpu_counts_where_it_is_what_is_scarce(make_world):
    scarce = make_world.a_node("scarce", cpu_milli=8000)
    plenty = make_world.a_node("plenty", cpu_milli=64_000)
    world = make_world().open(MODE).nodes(scarce, plenty, cards=4)
    fixed(world, (4000, 1, 1000, 1_000_000, 0))

    # Two typical pods' cpu goes with four cards on the one, cpu for all of them on the other: a
    # pod without cpu takes a card that nobody could use.
    choice, _ = look(world, "p", "312")

    assert choice.node == "scarce"


def test_one_by_one_is_as_many_together_and_as_from_nothing(make_world):
    world = make_world().open(MODE)
    chance = random.Random(5)
    for number in range(24):
        cpu_milli = chance.choice((2000, 16_000, 64_000))
        model = chance.choice(("A100", "T4"))
        node = world.a_node(f"n{number}", cpu_milli=cpu_milli)
        world.nodes(node, cards=chance.choice((1, 2, 8)), model=model)
    for number in range(60):
        world.submit(world.a_pod(f"p{number}"), world.ask(str(chance.choice((20, 80, 150, 312)))))
    domain, state = world.state.domains["pool"], world.state
    assert domain.learned is not None
    assert len(domain.learned.classes) == 2
    for uid, tflops, count in (("a", "40", 1), ("b", "312", 1), ("c", "100", 2)):
        _, want = look(world, uid, tflops, count=count)
        index = index_of(state, domain, want)
        plan = filter_plan(
            index.table,
            state.selectors,
            want.pattern.asks,
            want.pod.needs,
            alone=want.pattern.alone,
        )
        fresh = NodeIndex(index.table, plan, domain.node_worths.scoring.make(index.table, plan))
        fresh.catch_up(state.selectors)
        assert np.array_equal(fresh.keys(), index.keys())
        for row in index.table.rows.values():
            fitting = [
                need.fitting(index.table, index.table.card_slice(row)) for need in plan.cards
            ]
            if fresh.key(row) != 2**63 - 1:
                score = fresh.score.of(index.table, row, fitting)
                assert score == fresh.key(row) >> 40


TYPICAL = {
    "one card, no cpu": ((0, 1, 300, 40, 9), (0, 1, 1000, 20, 30)),
    "one card, scarce cpu": ((9000, 1, 300, 40, 9), (500, 1, 100, 7, 2), (30_000, 1, 1000, 5, 9)),
    "several cards, no cpu": ((0, 1, 500, 40, 9), (0, 2, 1000, 50, 3), (0, 4, 250, 3, 30)),
    "several cards, scarce cpu": (
        (9000, 1, 300, 40, 9),
        (50_000, 4, 1000, 8, 40),
        (8000, 2, 600, 9, 9),
    ),
}


@pytest.mark.parametrize("typical", TYPICAL.values(), ids=TYPICAL)
@pytest.mark.parametrize("seed", [1, 2])
def test_scores_are_what_nodes_lose_by_the_formula(make_world, by_hand, typical, seed):
    world, chance = make_world().open(MODE), random.Random(seed)
    for number in range(12):
        node = world.a_node(f"n{number}", cpu_milli=chance.choice((2000, 16_000, 64_000)))
        world.nodes(node, cards=chance.choice((1, 2, 8)))
        for card in range(2 if number % 3 else 0):
            left = chance.choice(("31", "100", "218", "312"))
            used(world, f"u{number}-{card}", f"n{number}", f"n{number}-gpu{card}", left)
    fixed(world, *((a, b, c, d * 1000, e * 1000) for a, b, c, d, e in typical))
    pods = world.state.domains["pool"].learned.pods
    for uid, cpu_milli in (("a", 0), ("b", 1500)):
        _, want = look(world, uid, "90", needs=PodNeeds(cpu_milli=cpu_milli))
        index = index_of(world.state, world.state.domains["pool"], want)
        score, table = index.score, index.table
        fitting = [row for row in table.rows.values() if index.key(row) != NONE]
        assert len(fitting) > 5
        for row in fitting:
            cpu, cards = seen(world, row)
            after = [
                by_hand((cpu - cpu_milli, (*cards[:at], code - 289, *cards[at + 1 :])), pods)
                for at, code in enumerate(cards)
                if code >= 289  # 90 of 312
            ]
            expected = (by_hand((cpu, cards), pods) - max(after)) // UNIT
            fitting = [index.plan.cards[0].fitting(table, table.card_slice(row))]
            assert score.of(table, row, fitting) == expected
            assert index.key(row) >> TIE_BITS == expected


def seen(world, row):
    """A node as the score sees it: free cpu, and the codes of its cards."""
    table = world.state.tables.of("pool")
    left = [(FULL - load) * CARD // FULL for load in table.load[table.card_slice(row)].tolist()]
    return table.cpu_milli.item(row), tuple(left)


def test_scores_are_void_when_something_else_was_learned(make_world):
    world = make_world().open(MODE).nodes(*(make_world.a_node(f"n{i}") for i in range(3)), cards=2)
    used(world, "a", "n1", "n1-gpu0", "31")
    fixed(world, (0, 2, 1000, 1_000_000, 0))
    assert look(world, "p", "100")[0].node == "n1"
    fixed(world, (0, 1, 312, 0, 1_000_000), (0, 1, 700, 0, 1_000_000), version=2)
    first = look(world, "q", "300")[0].node
    fixed(world, (0, 2, 1000, 1_000_000, 0), version=3)

    assert first != "n1"
    assert look(world, "r", "100")[0].node == "n1"


def test_a_pod_may_name_nodes_that_have_no_card_for_it(make_world):
    world = make_world().open(MODE).nodes(make_world.a_node("n0"), cards=0)
    world.nodes(world.a_node("n1"), cards=2)
    named = NodeExpression("metadata.name", "In", ("n0", "n1"), is_field=True)
    fixed(world, (0, 1, 500, 0, 1_000_000))

    needs = PodNeeds(node_terms=((named,),))
    world.submit(world.a_pod("p", needs=needs), world.ask("62", "1Gi"))

    assert world.decisions()["p"].node == "n1"


@pytest.mark.parametrize("seed", [1, 2])
def test_names_do_not_matter(make_world, seed):
    """Nodes, cards and pods with other names, and the same uids: the same choices."""
    chosen = []
    for prefix in ("a", "z"):
        chance = random.Random(seed)
        world = make_world().open(MODE)
        order = list(range(12))
        for number in order:
            name = f"{prefix}{(number * 7) % 12 if prefix == 'z' else number}"
            node = world.a_node(name, uid=f"uid-{number}", cpu_milli=chance.choice((8000, 64_000)))
            world.nodes(node, cards=chance.choice((1, 4)))
        for number in range(50):
            ask = world.ask(str(chance.choice((30, 78, 156, 312))), "1Gi")
            world.submit(world.a_pod(f"p{number}"), ask)
        uids = {name: fact.node.uid for name, fact in world.state.facts.nodes.items()}
        chosen.append([uids[one.node] for one in world.decisions().values()])

    assert len(chosen[0]) > 25
    assert chosen[0] == chosen[1]


def test_what_is_taken_of_a_card_is_rounded_up_and_by_what_it_takes_most_of(make_world):
    world = make_world().open(MODE).nodes(make_world.a_node("n"), cards=1)
    _, want = look(world, "p", "1")
    (card,) = cards_of(world)

    # 1 of 312 TFLOPS is 3.2 thousandths, 1 of 40 GiB is 25.
    assert consumed_milli(want.pattern.asks[0], card) == 25
    _, want = look(world, "q", "100")
    assert consumed_milli(want.pattern.asks[0], card) == 321
