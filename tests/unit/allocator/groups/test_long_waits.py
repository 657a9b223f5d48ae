"""Nodes are held for pods and groups that have waited long."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.allocator.conftest import World, fraction, pod
from tests.unit.allocator.groups.support import member, run, see_group, why

from dray.api.claims import ClaimSpec
from dray.api.groups import VOLCANO
from dray.api.pods import GroupKey, Pod, PodNeeds
from dray.messages.decisions import Checkpoint, NodeHold
from dray.messages.facts import PodObserved
from dray_allocator.core.handle import handle
from dray_allocator.cycle import records
from dray_allocator.gangs import long_waits
from dray_allocator.state import pending_groups
from dray_allocator.state.domain import held_node_uid
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    AppendFailed,
    FactSeen,
    RecordSeen,
    Serve,
    StandBy,
    Subscribe,
)
from dray_allocator.values.options import AllocatorOptions

AFTER_S, HOLD_S = 600.0, 3600.0


def whole() -> ClaimSpec:
    return fraction("312", "40Gi")


def single(world: Any, name: str, **changes: Any) -> Pod:
    """A pod of one GPU that is created now."""
    made = replace(pod(name), created_unix_s=world.now_unix_s, **changes)
    world.claim(replace(world.a_claim(name, whole()), namespace=made.namespace))
    world.see(PodObserved(revision=world.next(), pod=made))
    return made


def gang(world: Any, name: str, size: int, namespace: str = "ns", **changes: Any) -> None:
    """A group of pods of one GPU that is created now."""
    see_group(world, size, name)
    key = GroupKey(VOLCANO, "ns", name)
    for number in range(size):
        created = {"created_unix_s": world.now_unix_s, **changes}
        member(world, f"{name}-{number}", whole(), group=key, **created)


def end(world: Any, name: str) -> None:
    """A pod and its claim are deleted."""
    known = world.state.facts.pods[name]
    claim = next(one for one in world.state.facts.claims.values() if one.pod_uid == name)
    world.see(PodObserved(revision=world.next(), pod=known, deleted=True))
    world.claim(claim, deleted=True)


def held(world: Any) -> NodeHold | None:
    hold: NodeHold | None = world.state.domains["pool"].current.node_hold
    return hold


def wait(world: Any, seconds: float) -> None:
    """Let time pass."""
    for _ in range(int(seconds // 10)):
        world.tick(10)


def fill(world: Any, nodes: int = 2) -> Any:
    """Nodes of one GPU that single pods use."""
    world.nodes(*(world.a_node(f"n{number}") for number in range(nodes)))
    for number in range(nodes):
        single(world, f"old-{number}")
        run(world, f"old-{number}")
    return world


@pytest.fixture
def full(world: Any) -> Any:
    return fill(world)


@pytest.fixture
def waiting(full: Any) -> Any:
    """A gang of two has waited for long on two nodes that are in use."""
    gang(full, "train", 2)
    wait(full, AFTER_S + 10)
    assert held(full) is not None
    return full


def test_later_pods_keep_a_gang_waiting_until_nodes_are_held(full: Any) -> None:
    gang(full, "train", 2)
    end(full, "old-0")
    single(full, "new-0")
    run(full, "new-0")
    assert held(full) is None
    wait(full, AFTER_S + 10)
    end(full, "new-0")
    single(full, "new-1")
    assert "new-1" not in full.decisions()
    end(full, "old-1")
    assert {"train-0", "train-1"} <= set(full.decisions())
    assert held(full) is None
    assert full.oversold() == []


def test_a_gang_keeps_a_single_pod_waiting_until_nodes_are_held() -> None:
    """Small gangs take what is free; the pod needs all of a node."""
    world = World().open()
    world.nodes(world.a_node("n0"), cards=2)
    gang(world, "first", 2)
    run(world, "first-0", "first-1")
    large = replace(pod("large"), created_unix_s=world.now_unix_s)
    world.submit(large, world.ask("312", "40Gi", count=2))
    wait(world, AFTER_S + 10)
    hold = held(world)
    assert hold is not None
    assert (hold.uid, hold.nodes) == ("large", ("n0",))
    end(world, "first-0")
    gang(world, "second", 1)
    assert "second-0" not in world.decisions()
    end(world, "first-1")
    assert "large" in world.decisions()
    assert held(world) is None


def test_a_pod_that_waits_says_for_whom_nodes_are_held_and_until_when(waiting: Any) -> None:
    end(waiting, "old-0")
    single(waiting, "new")
    lines = why(waiting, "new").splitlines()
    assert lines[-1] == (
        "held for PodGroup ns/train: 2 of 2 nodes "
        "(it has waited for long; held until 1970-01-12T14:56:40Z)"
    )
    assert not any("pod slots" in line for line in lines)
    other = single(waiting, "other", namespace="else")
    assert "held for another pod or PodGroup: 2 of 2 nodes" in why(waiting, other.uid)
    assert "train" not in why(waiting, other.uid)


def test_the_gang_itself_says_what_it_lacks(waiting: Any) -> None:
    end(waiting, "old-0")
    assert "PodGroup ns/train lacks room for pods: 1 of 2 members" in why(waiting, "train-0")
    assert "held for" not in why(waiting, "train-0")


def test_pods_of_a_higher_priority_use_held_nodes_and_end_the_hold(waiting: Any) -> None:
    end(waiting, "old-0")
    single(waiting, "urgent", priority=10)
    assert "urgent" in waiting.decisions()
    assert held(waiting) is None


@pytest.mark.parametrize("lost", ["group", "pod", "time"])
def test_a_hold_ends_if_nobody_waits_for_it_or_its_time_is_over(waiting: Any, lost: str) -> None:
    end(waiting, "old-0")
    single(waiting, "new")
    match lost:
        case "group":
            see_group(waiting, 2, deleted=True)
        case "pod":
            end(waiting, "train-0")
        case _:
            wait(waiting, HOLD_S)
    assert held(waiting) is None
    assert "new" in waiting.decisions()


def test_after_a_hold_of_the_whole_pool_three_times_as_long_nothing_is_held(waiting: Any) -> None:
    wait(waiting, HOLD_S)
    assert held(waiting) is None
    wait(waiting, 3 * HOLD_S - 20)
    assert held(waiting) is None
    wait(waiting, 40)
    assert held(waiting) is not None


def test_a_quarter_of_a_pool_is_held_without_a_rest(world: Any) -> None:
    fill(world, 8)
    gang(world, "train", 2)
    wait(world, AFTER_S + 10)
    hold = held(world)
    assert hold is not None
    assert len(hold.nodes) == 2
    wait(world, HOLD_S)
    gang(world, "second", 2)
    wait(world, AFTER_S + 10)
    again = held(world)
    assert again is not None
    assert again.name == "second"


def test_nodes_are_held_in_vain_less_and_less_often(world: Any) -> None:
    """As for a pod that needs more than a node has left when it is empty."""
    fill(world, 8)
    gang(world, "train", 2)
    begun = []
    for _ in range(int(24 * HOLD_S / 60)):
        wait(world, 60)
        hold = held(world)
        if hold is not None and hold.since_unix_s not in begun:
            begun.append(hold.since_unix_s)
    pauses = [round((after - before) / HOLD_S) for before, after in pairwise(begun)]
    assert pauses == [2, 3, 5, 9]


def test_a_namespace_of_impossible_pods_takes_its_turn_like_others(full: Any) -> None:
    for number in range(20 * long_waits._LOOKED_AT_TOGETHER):
        gang(full, f"large-{number}", 3)
    single(full, "other", namespace="else")
    wait(full, AFTER_S + 30)
    hold = held(full)
    assert hold is not None
    assert hold.namespace == "else"


def test_many_that_wait_are_looked_through_in_several_looks(full: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(pending_groups, "_LOOKED_THROUGH", 4)
    for number in range(20):
        gang(full, f"large-{number}", 3)
    single(full, "other", namespace="else")
    wait(full, AFTER_S + 80)
    hold = held(full)
    assert hold is not None
    assert hold.namespace == "else"


def test_a_gang_that_can_never_fit_holds_nothing_and_hides_no_other(full: Any) -> None:
    for number in range(long_waits._LOOKED_AT_TOGETHER + 1):
        gang(full, f"large-{number}", 3)
    gang(full, "train", 2)
    wait(full, AFTER_S + 60)
    hold = held(full)
    assert hold is not None
    assert hold.name == "train"


def test_no_nodes_are_held_for_pods_that_ask_for_no_device(world: Any) -> None:
    """Their devices would be idle meanwhile. Others of the same age have their turn."""
    all_cpu = PodNeeds(cpu_milli=64_000)
    world.nodes(*(world.a_node(f"n{number}", used_cpu_milli=1) for number in range(2)))
    created = {"created_unix_s": world.now_unix_s, "needs": all_cpu}
    world.submit(world.a_pod("task", **created), ClaimSpec(()))
    see_group(world, 2, "tasks")
    for name in ("a", "b"):
        member(world, name, ClaimSpec(()), group=GroupKey(VOLCANO, "ns", "tasks"), **created)
    wait(world, AFTER_S + 60)
    assert "task" not in world.decisions()
    assert held(world) is None
    single(world, "with-device", needs=all_cpu)
    wait(world, AFTER_S + 60)
    hold = held(world)
    assert hold is not None
    assert hold.uid == "with-device"


def test_nodes_are_held_for_the_pods_of_a_gang_that_ask_for_devices(full: Any) -> None:
    gang(full, "train", 1)
    see_group(full, 2, "train")
    key = GroupKey(VOLCANO, "ns", "train")
    needs = PodNeeds(cpu_milli=64_000)
    member(full, "ps", ClaimSpec(()), group=key, created_unix_s=full.now_unix_s, needs=needs)
    wait(full, AFTER_S + 10)
    hold = held(full)
    assert hold is not None
    assert len(hold.nodes) == 1


def test_a_gang_of_more_nodes_than_may_be_held_holds_nothing(full: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(long_waits, "MOST_NODES", 1)
    gang(full, "train", 2)
    wait(full, AFTER_S + 60)
    assert held(full) is None


def test_namespaces_take_turns(world: Any) -> None:
    """A tenant with many groups that wait longer does not keep another one from its turn."""
    fill(world, 8)
    for number in range(4):
        gang(world, f"many-{number}", 2)
    wait(world, 20)
    single(world, "other", namespace="else")
    seen = []
    wait(world, AFTER_S + 20)
    for _ in range(3):
        hold = held(world)
        assert hold is not None
        seen.append(hold.namespace)
        wait(world, HOLD_S + 10)
    assert seen == ["ns", "else", "ns"]


def test_groups_that_are_created_again_wait_again(full: Any) -> None:
    for number in range(3):
        gang(full, f"train-{number}", 2)
        wait(full, AFTER_S - 20)
        for at in (0, 1):
            end(full, f"train-{number}-{at}")
        see_group(full, 2, f"train-{number}", deleted=True)
        assert held(full) is None


def test_a_node_that_leaves_the_pool_ends_the_hold(waiting: Any) -> None:
    node = replace(waiting.state.facts.nodes["n0"].node, pool="", leaving="pool", leaving_since=99)
    waiting.node(node)
    waiting.tick()
    hold = held(waiting)
    assert hold is None or "n0" not in hold.nodes


def test_nothing_is_held_for_nodes_if_that_is_turned_off(make_world: Any) -> None:
    world = fill(make_world(AllocatorOptions(writer="one", node_hold_s=0.0)).open())
    gang(world, "train", 2)
    wait(world, AFTER_S + 60)
    assert held(world) is None


def read_again(world: Any, first: int = 1) -> AllocatorState:
    """The state of a reader of facts and log."""
    state = AllocatorState(world.state.options)
    for sequence, fact in enumerate(world.facts, 1):
        handle(state, FactSeen(sequence, fact))
    for sequence, record in enumerate(world.logs["pool"][first - 1 :], first):
        handle(state, RecordSeen("pool", 1, sequence, record))
    return state


def test_a_replica_that_reads_the_pool_no_longer_counts_no_held_nodes(waiting: Any) -> None:
    hold = held(waiting)
    assert hold is not None
    uid, state = held_node_uid(hold.nodes[0]), read_again(waiting)
    assert state.assumed_pods.has(uid)
    handle(state, Subscribe(("else",)))
    assert not state.assumed_pods.has(uid)


def test_a_checkpoint_has_the_held_nodes(waiting: Any) -> None:
    for part in records.checkpoint(waiting.state, waiting.state.domains["pool"]):
        waiting.append(part)
    log = waiting.logs["pool"]
    first = max(at for at, one in enumerate(log, 1) if isinstance(one, Checkpoint))
    for state in (read_again(waiting), read_again(waiting, first)):
        assert state.domains["pool"].current.node_hold == held(waiting)
        assert state.assumed_pods.sums == waiting.state.assumed_pods.sums


def test_another_replica_goes_on_with_the_hold(waiting: Any) -> None:
    before = held(waiting)
    waiting.do(StandBy("pool"))
    waiting.do(Serve("pool", 1, len(waiting.logs["pool"])))
    waiting.tick()
    assert held(waiting) == before
    waiting.state = read_again(waiting)
    waiting.serve()
    waiting.tick()
    assert held(waiting) == before
    end(waiting, "old-0")
    single(waiting, "new")
    end(waiting, "old-1")
    assert {"train-0", "train-1"} <= set(waiting.decisions())


@pytest.mark.parametrize("is_end", [False, True])
def test_a_hold_that_was_not_written_does_not_count(full: Any, is_end: bool) -> None:
    gang(full, "train", 2)
    wait(full, AFTER_S + (10 if is_end else -10))
    before = held(full)
    assert (before is not None) == is_end
    if is_end:
        known = full.state.facts.pods["train-0"]
        full.facts.append(PodObserved(revision=full.next(), pod=known, deleted=True))
    else:
        full.now_unix_s += 20
        full.ticks += 1
        full.facts.append(
            replace(_last_tick(full), revision=full.ticks, now_unix_s=full.now_unix_s)
        )
    handle(full.state, FactSeen(len(full.facts), full.facts[-1]))
    assert (held(full) is None) == is_end
    handle(full.state, AppendFailed("pool", 1, "refused"))
    assert held(full) == before
    assert set(full.state.domains["pool"].current.held_nodes) == {
        uid for uid in full.state.assumed_pods.pods() if uid.startswith("held-node/")
    }


def _last_tick(world: Any) -> Any:
    return next(one for one in reversed(world.facts) if hasattr(one, "most_step_s"))


_LATER = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 4)), min_size=1, max_size=3)
"""Pods of a gang that comes later (one: like a single pod), and the minutes that they run."""


class Pressure:
    """Gangs of small pods that come all the time, so that some always wait for a free GPU."""

    def __init__(self, world: World, nodes: int, later: list[tuple[int, int]]) -> None:
        self.world = world
        self._gpus = 2 * nodes
        self._later = later
        self._waiting: dict[str, int] = {}
        """Minutes that each pod is going to run."""
        self._runs: dict[str, int] = {}
        """The minute in which each ends."""
        self._made = 0

    def minute(self, now: int) -> None:
        """Pods end, others come, and what is decided is bound."""
        for name in [name for name, until in self._runs.items() if until <= now]:
            end(self.world, name)
            del self._runs[name]
        while len(self._waiting) < self._gpus:
            size, minutes = self._later[self._made % len(self._later)]
            self._made += 1
            gang(self.world, f"m{self._made}", size)
            self._waiting |= {f"m{self._made}-{at}": minutes for at in range(size)}
        self.world.tick(60)
        decided = self.world.decisions()
        for name in [name for name in self._waiting if name in decided]:
            run(self.world, name)
            self._runs[name] = now + self._waiting.pop(name)


@given(
    nodes=st.integers(2, 3),
    later=_LATER,
    is_gang=st.booleans(),
    restart=st.integers(0, 10),
)
@settings(max_examples=15, deadline=None)
def test_nobody_starves_longer_than_the_bound(
    nodes: int, later: Any, is_gang: bool, restart: int
) -> None:
    """While small gangs come all the time, a gang of all GPUs, or a pod of all GPUs of a node,
    starts once it has waited for ``node_hold_after_s`` and the pods that ran then have ended. Each
    older gang that nodes are held for before it adds its hold, and the rest of the pool. A new
    replica knows no ages: the wait begins again, and those that wait then are as old."""
    world = World(AllocatorOptions(writer="one", node_hold_after_s=300.0)).open()
    world.nodes(*(world.a_node(f"n{number}") for number in range(nodes)), cards=2)
    pressure, longest = Pressure(world, nodes, later), max(minutes for _, minutes in later)
    pressure.minute(1)
    if is_gang:
        gang(world, "waits", 2 * nodes)
    else:
        both = replace(pod("waits-0"), created_unix_s=world.now_unix_s)
        world.submit(both, world.ask("312", "40Gi", count=2))
    minute, waits_since, not_younger, before = 1, 1, set[str](), set[str]()
    while True:
        if minute == restart:
            world.state = read_again(world)
            world.serve()
            waits_since = minute
        minute += 1
        pressure.minute(minute)
        if minute in (2, restart + 1):
            groups = {key.name for key in world.state.facts.groups.groups}
            not_younger = groups | set(world.state.facts.pods)
        assert world.oversold() == []
        hold = held(world)
        if "waits-0" in world.decisions():
            break
        if hold is not None and not hold.name.startswith("waits"):
            assert hold.name in not_younger
            before.add(hold.name)
        assert minute <= waits_since + 5 + longest + 2 + len(before) * 2 * longest
    assert hold is None or not hold.name.startswith("waits")


def test_without_held_nodes_they_starve(make_world: Any) -> None:
    """The property can fail."""
    world = make_world(AllocatorOptions(writer="one", node_hold_s=0.0)).open()
    world.nodes(world.a_node("n0"), world.a_node("n1"), cards=2)
    pressure = Pressure(world, 2, [(1, 2), (1, 3)])
    pressure.minute(1)
    gang(world, "waits", 4)
    for minute in range(2, 40):
        pressure.minute(minute)
    assert "waits-0" not in world.decisions()
