"""Pods without GPUs that dray places: the claims that account for them ask for no device."""

from typing import Any

import pytest
from tests.unit.allocator.groups.support import member, run, see_group, together, why

from dray.api.claims import ClaimSpec
from dray.api.pods import Pod, PodNeeds
from dray_allocator.core.dump import double_allocations

NOTHING = ClaimSpec(())
CPU_MILLI = 4000


@pytest.fixture
def two(world: Any) -> Any:
    """Two nodes with one card and four CPUs each."""
    for name in ("n0", "n1"):
        world.nodes(world.a_node(name, cpu_milli=CPU_MILLI))
    return world


def cpu_task(world: Any, name: str, cpu_milli: int, **changes: Any) -> Pod:
    return member(world, name, NOTHING, needs=PodNeeds(cpu_milli=cpu_milli), **changes)


def test_they_are_in_the_groups_one_decision_and_count_their_cpu(two: Any) -> None:
    see_group(two, 3)
    cpu_task(two, "ps", 3000, task="ps")
    member(two, "w0")
    assert two.decisions() == {}
    member(two, "w1")
    assert together(two) == [{"ps", "w0", "w1"}]
    made = two.decisions()["ps"]
    (claim,) = made.claims
    assert (claim.allocation.devices, claim.allocation.node) == ((), made.node)
    assert two.state.assumed_pods.on(made.node).cpu_milli == 3000


def test_without_room_for_their_cpu_the_group_holds_nothing(two: Any) -> None:
    see_group(two, 4)
    for name in ("a", "b", "c"):
        cpu_task(two, name, 3000)
    member(two, "w")
    assert two.decisions() == {}
    assert "can never fit: even without other pods, the pool has room for 2 of 3 pods" in why(
        two, "a"
    )
    assert not any(two.state.assumed_pods.on(name).pods for name in ("n0", "n1"))


def test_a_worker_goes_where_the_cpu_task_leaves_it_room(world: Any) -> None:
    """Each alone fits n0, and both only together with n1, which has no card."""
    world.nodes(world.a_node("n0", cpu_milli=CPU_MILLI))
    world.nodes(world.a_node("n1", cpu_milli=CPU_MILLI), cards=0)
    see_group(world, 2)
    cpu_task(world, "ps", 3000)
    member(world, "w", needs=PodNeeds(cpu_milli=3000))
    placed = {uid: one.node for uid, one in world.decisions().items()}
    assert placed == {"w": "n0", "ps": "n1"}


def test_one_that_does_not_fit_with_those_that_run_says_what_it_lacks(two: Any) -> None:
    see_group(two, 2)
    cpu_task(two, "a", 3000)
    cpu_task(two, "b", 3000)
    run(two, "a", "b")
    cpu_task(two, "c", 3000)
    assert "cpu" in why(two, "c")


def test_a_rolled_back_one_frees_its_cpu_and_is_decided_again(two: Any) -> None:
    see_group(two, 2)
    cpu_task(two, "a", 3000)
    member(two, "w")
    first = two.decisions()["a"]
    two.commit(first)
    two.clear("claim-a", decision=first.claims[0].attempt, void=first.claims[0].attempt)
    two.commit(two.decisions()["w"])
    made = two.decisions()["w"].claims[0].attempt
    two.clear("claim-w", decision=made, void=made)
    again = two.decisions()["a"]
    assert again.claims[0].attempt > first.claims[0].attempt
    assert sum(two.state.assumed_pods.on(name).cpu_milli for name in ("n0", "n1")) == 3000
    assert not list(double_allocations(two.state))


@pytest.mark.parametrize("mode", ["CompactFirst", "LowLoadFirst", "KubernetesCompatible"])
def test_a_single_one_is_placed_without_a_group(make_world: Any, mode: str) -> None:
    two = make_world().open(mode)
    for name in ("n0", "n1"):
        two.nodes(two.a_node(name, cpu_milli=CPU_MILLI))
    two.submit(two.a_pod("alone", needs=PodNeeds(cpu_milli=CPU_MILLI)), NOTHING)
    two.submit(two.a_pod("other", needs=PodNeeds(cpu_milli=CPU_MILLI)), NOTHING)
    assert {one.node for one in two.decisions().values()} == {"n0", "n1"}
    two.submit(two.a_pod("third", needs=PodNeeds(cpu_milli=1)), NOTHING)
    assert "third" not in two.decisions()


MODES = ("CompactFirst", "LowLoadFirst", "KubernetesCompatible")


@pytest.mark.parametrize("mode", [*MODES, "FragmentationAware"])
def test_they_leave_idle_gpus_the_cpu_that_their_pods_need(make_world: Any, mode: str) -> None:
    """As many as have room where all GPUs are in use."""
    world = make_world().open(mode)
    for number in range(4):
        world.nodes(world.a_node(f"n{number}", cpu_milli=CPU_MILLI), cards=2)
    whole, needs = world.ask("312", "40Gi", count=2), PodNeeds(cpu_milli=CPU_MILLI)
    busy = set()
    for name in ("first", "second"):
        world.submit(world.a_pod(name), whole)
        busy.add(world.decisions()[name].node)
    for number in range(8):
        world.submit(world.a_pod(f"task-{number}", needs=PodNeeds(cpu_milli=1000)), NOTHING)
    assert {world.decisions()[f"task-{number}"].node for number in range(8)} == busy
    for name in ("third", "fourth"):
        world.submit(world.a_pod(name, needs=needs), whole)
        assert world.decisions()[name].node not in busy


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("of_group", [False, True])
def test_nodes_without_cards_come_first(make_world: Any, mode: str, of_group: bool) -> None:
    world = make_world().open(mode)
    world.nodes(world.a_node("full"), world.a_node("idle"))
    world.nodes(world.a_node("none"), cards=0)
    whole, needs = world.ask("312", "40Gi"), PodNeeds(cpu_milli=1000)
    if of_group:
        see_group(world, 2)
        member(world, "w", whole)
        cpu_task(world, "ps", 1000)
    else:
        world.submit(world.a_pod("w"), whole)
        world.submit(world.a_pod("ps", needs=needs), NOTHING)
    assert world.decisions()["ps"].node == "none"


def test_a_task_without_room_for_its_cpu_lacks_room_not_devices(two: Any) -> None:
    for name in ("x", "y"):
        two.submit(two.a_pod(name, needs=PodNeeds(cpu_milli=3000)), NOTHING)
    see_group(two, 2)
    cpu_task(two, "ps", 3000, task="ps")
    member(two, "w")
    assert "PodGroup ns/train lacks room for pods of task ps: 1 of 1 member" in why(two, "ps")
