"""What is learned of the pods seen, when, and that the log says all of it."""

from itertools import pairwise

import msgspec
import pytest
from tests.unit.allocator.groups.support import member, see_group

from dray.api.claims import ClaimSpec
from dray.api.pods import PodNeeds
from dray.messages.decisions import Decided
from dray_allocator.core.handle import handle, recompute
from dray_allocator.cycle import records
from dray_allocator.scoring.fragmentation.workload_model import HALF_LIFE, PRIOR, WorkloadModel
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen
from dray_allocator.values.options import AllocatorOptions

MODE = "FragmentationAware"


def domain_of(world):
    return world.state.domains["pool"]


def learn(world, model):
    table = world.state.tables.of("pool")
    nodes = world.state.facts.nodes
    return model.learn(table, world.state.selectors, lambda name: nodes[name].node.cpu_milli)


def decided(world):
    return [record for record in world.logs["pool"] if isinstance(record, Decided)]


def filled(make_world, pods=40, mode=MODE):
    """A pool in which pods of three shapes came one after the other."""
    world = make_world().open(mode)
    for number in range(6):
        world.nodes(world.a_node(f"n{number}"), cards=4, model=("A100", "T4")[number % 2])
    for number in range(pods):
        world.submit(world.a_pod(f"p{number}"), world.ask(("31", "100", "312")[number % 3], "1Gi"))
    return world


def test_before_anything_is_seen_whole_cards_of_every_class_are_typical(make_world):
    world = make_world().open(MODE)
    world.nodes(world.a_node("a", cpu_milli=8000), cards=1, model="A100")
    world.nodes(world.a_node("b", cpu_milli=60_000), cards=3, model="T4")

    found = learn(world, WorkloadModel(None))

    assert [(pod.cpu_milli, pod.cards, pod.milli) for pod in found.pods] == [
        (8000, 1, (1000, 0)),  # as much cpu as there is per A100
        (17_000, 1, (0, 1000)),  # there is more per T4, but not in the mean of the fleet
    ]
    assert [pod.count for pod in found.pods] == [PRIOR * 1000 / 4, PRIOR * 1000 * 3 / 4]


def test_worths_are_those_of_the_formula(make_world):
    world = make_world().open(MODE)
    world.nodes(world.a_node("a", cpu_milli=8000), cards=1, model="A100")
    world.nodes(world.a_node("b", cpu_milli=60_000), cards=3, model="T4")

    first, second = learn(world, WorkloadModel(None)).pods

    # cpu asked per card (8000/4 + 17000·3/4 = 14750) by cpu there per card (68000/4 = 17000).
    alpha = 0.25 * (14_750 / 17_000) ** 2
    # Of 4000 idle milli the first can use the A100's 1000, the second all of the T4s' 3000.
    assert first.gain == round(1e6 * alpha * 0.25 * (1000 / 4000) ** -1.5)
    assert second.gain == round(1e6 * alpha * 0.75 * (3000 / 4000) ** -1.5)
    assert (first.waste, second.waste) == (
        round(1e6 * (1 - alpha) * 0.25),
        round(1e6 * (1 - alpha) * 0.75),
    )


def test_pods_seen_long_ago_count_for_less(make_world):
    world = make_world().open(MODE).nodes(make_world.a_node("n"), cards=4)
    model = WorkloadModel(None)
    model.observe(b"old", 1000, ())
    for _ in range(HALF_LIFE):
        model.observe(b"new", 2000, ())

    counts = {pod.cpu_milli: pod.count for pod in learn(world, model).pods}

    assert counts[1000] == 500
    assert counts[2000] == pytest.approx(1000 * HALF_LIFE / 2 / 0.6931, rel=0.001)
    assert counts[16_000] == pytest.approx(PRIOR * 500, abs=10)


def test_counts_stay_the_same_however_long_it_goes_on(make_world):
    world = make_world().open(MODE).nodes(make_world.a_node("n"), cards=4)
    model = WorkloadModel(None)
    for _ in range(50 * HALF_LIFE):
        model.observe(b"new", 2000, ())

    (pod,) = [one for one in learn(world, model).pods if one.cpu_milli == 2000]

    assert pod.count == pytest.approx(1000 * HALF_LIFE / 0.6931, rel=0.001)


def test_weights_are_computed_after_twice_as_many_pods_and_later_periodically():
    model, due = WorkloadModel(None), []
    for number in range(2000):
        model.observe(b"x", 0, ())
        if model.is_due(cards=8):
            due.append(number + 1)
            model.pods = 0

    assert due[:7] == [1, 2, 3, 5, 9, 17, 33]
    assert {later - earlier for earlier, later in pairwise(due[10:])} == {256}


def test_of_many_signatures_the_rare_ones_are_forgotten():
    model = WorkloadModel(None)
    for number in range(5000):
        model.observe(b"often", 0, ())
        model.observe(str(number).encode(), 0, ())

    assert b"often" in model._seen
    assert len(model._seen) <= 2048


def test_what_hardly_differs_is_not_learned(make_world):
    world = make_world().open(MODE).nodes(make_world.a_node("n"), cards=4)
    model = WorkloadModel(None)
    assert learn(world, model).version == 1
    assert learn(world, model) is None
    for _ in range(100):
        model.observe(b"new", 2000, ())
    assert learn(world, model).version == 2


def test_a_pool_without_cards_learns_nothing(make_world):
    world = make_world().open(MODE)
    world.submit(world.a_pod("p"))

    assert domain_of(world).learned is None
    assert world.waits("p")


def test_decisions_say_by_what_they_were_taken_and_what_is_new_of_it(make_world):
    world = filled(make_world)

    version = 0
    for record in decided(world):
        if record.learned is not None:
            assert record.learned.version == version + 1
            version += 1
        assert record.learned_version == version
    assert version > 3
    assert domain_of(world).learned.version == version


def test_other_policies_learn_nothing(make_world):
    world = filled(make_world, mode="CompactFirst")

    assert domain_of(world).learned is None
    assert {record.learned_version for record in decided(world)} == {0}


def test_pods_that_wait_are_counted_once(make_world):
    world = make_world().open(MODE).nodes(make_world.a_node("n"), cards=1)
    world.submit(world.a_pod("a"), world.ask("300", "1Gi"))
    world.submit(world.a_pod("b"), world.ask("300", "1Gi"))
    total = domain_of(world).workload_model.total
    for number in range(5):
        world.node(world.a_node("n", labels={"x": str(number)}))
        world.tick(60)

    assert domain_of(world).workload_model.total == total == 2


def state_from(world, log, facts):
    """A state that folded facts and a log, and never decided."""
    state = AllocatorState(AllocatorOptions(writer="one"))
    for sequence, fact in enumerate(world.facts[:facts], 1):
        handle(state, FactSeen(sequence, fact, more=True))
    for sequence, record in log:
        handle(state, RecordSeen("pool", 1, sequence, record, more=True))
    return state


def test_every_decision_is_taken_again_from_the_log_alone(make_world):
    world = filled(make_world)
    log = list(enumerate(world.logs["pool"], 1))

    compared = 0
    for at, (_, record) in enumerate(log):
        if isinstance(record, Decided):
            state = state_from(world, log[:at], record.facts_sequence)
            assert recompute(state, record) == record
            assert state.domains["pool"].unwritten is None
            compared += 1
    assert compared == 40


def test_a_log_that_begins_with_a_checkpoint_says_it_as_well(make_world):
    world = filled(make_world)
    before = domain_of(world).learned
    (summed_up,) = records.checkpoint(world.state, domain_of(world))
    world.append(summed_up)
    begins = len(world.logs["pool"])
    for number in range(6):
        world.submit(world.a_pod(f"q{number}"), world.ask("31", "1Gi"))
    log = list(enumerate(world.logs["pool"], 1))[begins - 1 :]
    assert isinstance(log[1][1], Decided)

    for at, (_, record) in enumerate(log):
        if isinstance(record, Decided):
            state = state_from(world, log[:at], record.facts_sequence)
            assert state.domains["pool"].learned == (log[1][1].learned or before)
            assert recompute(state, record) == record
            break
    else:
        pytest.fail("nothing was decided after the checkpoint")


def test_a_new_replica_continues_from_the_log(make_world):
    world = filled(make_world)
    learned = domain_of(world).learned
    world.serve()
    assert domain_of(world).workload_model is None

    world.submit(world.a_pod("next"), world.ask("31", "1Gi"))

    counts = {pod.milli: pod.count for pod in learned.pods}
    model = domain_of(world).workload_model
    assert model.total >= sum(counts.values()) // 1000
    assert domain_of(world).learned.version >= learned.version
    assert msgspec.json.encode(domain_of(world).current.learned)


@pytest.mark.parametrize("tasks", [0, 3])
def test_cpu_tasks_of_gangs_are_not_learned_from(make_world, tasks):
    """Small pods go to small cards, however many CPU tasks on other nodes come with them."""
    world = make_world().open(MODE)
    for number in range(8):
        world.nodes(world.a_node(f"large-{number}"), cards=4)
        small = {"model": "T4", "tflops": "65", "vram": "20Gi"}
        world.nodes(world.a_node(f"small-{number}"), cards=4, **small)
        world.nodes(world.a_node(f"none-{number}", cpu_milli=512_000), cards=0)
    for number in range(30):
        for task in range(tasks):
            needs = PodNeeds(cpu_milli=8000)
            world.submit(world.a_pod(f"task-{number}-{task}", needs=needs), ClaimSpec(()))
        needs = PodNeeds(cpu_milli=2000)
        world.submit(world.a_pod(f"pod-{number}", needs=needs), world.ask("31", "4Gi"))

    made = world.decisions()
    assert len(made) == 30 * (1 + tasks)
    chosen = [made[f"pod-{number}"].node for number in range(30)]
    assert {name.partition("-")[0] for name in chosen} == {"small"}
    assert domain_of(world).workload_model.total == 30


def test_pods_of_gangs_are_learned_from_when_they_start(make_world):
    world = make_world().open(MODE)
    for number in range(4):
        world.nodes(world.a_node(f"n{number}"), cards=4)
    for number in range(3):
        key = see_group(world, 3, f"train-{number}").key
        for name in ("a", "b"):
            member(world, f"{name}-{number}", world.ask("31", "4Gi"), group=key)
        needs = PodNeeds(cpu_milli=8000)
        member(world, f"ps-{number}", ClaimSpec(()), group=key, needs=needs)

    assert len(world.decisions()) == 9
    assert domain_of(world).workload_model.total == 6
    assert {pod.milli for pod in domain_of(world).learned.pods} == {(100,), (1000,)}
    world.submit(world.a_pod("single"), world.ask("31", "4Gi"))
    log = list(enumerate(world.logs["pool"], 1))
    versions = []
    for at, (_, record) in enumerate(log):
        if isinstance(record, Decided):
            versions.append(record.learned_version)
            state = state_from(world, log[:at], record.facts_sequence)
            assert recompute(state, record) == record
    assert versions == sorted(versions)
    assert versions[-1] > 0
