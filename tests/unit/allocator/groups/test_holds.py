"""Devices of lost pods are held for their group."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.allocator.groups.support import KEY, member, run, see_group, why

from dray.api.claims import ClaimSpec
from dray.messages.decisions import Checkpoint, GroupHold
from dray.messages.facts import PodObserved
from dray_allocator.core.dump import holdings_of
from dray_allocator.core.handle import handle
from dray_allocator.cycle import records
from dray_allocator.gangs import lost_members
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import AppendFailed, FactSeen, RecordSeen, Serve, StandBy
from dray_allocator.values.options import AllocatorOptions


def whole(world: Any) -> ClaimSpec:
    spec: ClaimSpec = world.ask("312", "40Gi")
    return spec


def lose(world: Any, name: str) -> None:
    """A pod and its claim are deleted."""
    pod = world.state.facts.pods[name]
    claim = next(one for one in world.state.facts.claims.values() if one.pod_uid == name)
    world.see(PodObserved(revision=world.next(), pod=pod, deleted=True))
    world.claim(claim, deleted=True)


def holds(world: Any) -> list[GroupHold]:
    return list(world.state.domains["pool"].current.group_holds.values())


def start(world: Any) -> Any:
    """A group of two runs on two nodes of one card."""
    world.nodes(world.a_node("n1"), world.a_node("n2"))
    see_group(world, 2)
    for name in ("a", "b"):
        member(world, name, whole(world))
    run(world, "a", "b")
    return world


@pytest.fixture
def two(world: Any) -> Any:
    return start(world)


def test_the_device_of_a_lost_pod_goes_to_its_successor(two: Any) -> None:
    lose(two, "b")
    two.submit(two.a_pod("single"), whole(two))
    assert "single" not in two.decisions()
    member(two, "c", whole(two))
    assert two.decisions()["c"].node == two.decisions()["b"].node
    assert holds(two) == []
    assert two.oversold() == []


def test_nothing_is_held_for_a_lost_pod_without_devices(two: Any) -> None:
    see_group(two, 3)
    member(two, "ps", ClaimSpec(()))
    run(two, "ps")
    lose(two, "ps")
    assert holds(two) == []
    assert "held" not in "".join(map(str, two.waits("ps")))


def test_a_pod_that_waits_says_for_whom_devices_are_held_and_until_when(two: Any) -> None:
    lose(two, "b")
    two.submit(two.a_pod("single"), whole(two))
    last = why(two, "single").splitlines()[-1]
    assert last == (
        "held for PodGroup ns/train: 1 of 2 devices "
        "(it has lost pods; held until 1970-01-12T13:47:40Z)"
    )


def test_a_group_of_another_namespace_is_not_named(two: Any) -> None:
    lose(two, "b")
    two.submit(two.a_pod("single"), whole(two))
    pod = replace(two.a_pod("other"), namespace="else")
    two.claim(replace(two.a_claim("other", whole(two)), namespace="else"))
    two.see(PodObserved(revision=two.next(), pod=pod))
    text = why(two, "other")
    assert "held for another PodGroup: 1 of 2 devices" in text
    assert "train" not in text
    assert "held for PodGroup ns/train: 1 of 2 devices" in why(two, "single")


def test_a_checkpoint_has_what_is_held(two: Any) -> None:
    lose(two, "b")
    (held,) = holds(two)
    for part in records.checkpoint(two.state, two.state.domains["pool"]):
        two.append(part)
    log = two.logs["pool"]
    first = max(at for at, one in enumerate(log, 1) if isinstance(one, Checkpoint))
    state = AllocatorState(two.state.options)
    for sequence, fact in enumerate(two.facts, 1):
        handle(state, FactSeen(sequence, fact))
    for sequence, record in enumerate(log[first - 1 :], first):
        handle(state, RecordSeen("pool", 1, sequence, record))
    assert list(state.domains["pool"].current.group_holds.values()) == [held]
    claim = held.claims[0]
    assert state.device_usage.of_claim(claim.uid) == claim.allocation.devices


def test_a_hold_that_was_not_written_holds_nothing(two: Any) -> None:
    domain = two.state.domains["pool"]
    pod = two.state.facts.pods["b"]
    claim = next(one for one in two.state.facts.claims.values() if one.pod_uid == "b")
    two.facts.append(PodObserved(revision=two.next(), pod=pod, deleted=True))
    handle(two.state, FactSeen(len(two.facts), two.facts[-1]))
    assert holds(two)
    handle(two.state, AppendFailed("pool", 1, "refused"))
    two.claim(claim, deleted=True)
    assert holds(two) == []
    assert not two.state.device_usage.has(claim.uid)
    assert domain.serving_since is None


def test_a_replica_that_serves_again_holds_nothing_for_losses_meanwhile(two: Any) -> None:
    two.do(StandBy("pool"))
    lose(two, "b")
    two.do(Serve("pool", 1, len(two.logs["pool"])))
    assert holds(two) == []
    two.submit(two.a_pod("single"), whole(two))
    assert "single" in two.decisions()


def test_an_end_that_was_not_written_keeps_the_hold(two: Any) -> None:
    lose(two, "b")
    before = holds(two)
    claim = before[0].claims[0]
    two.facts.append(replace(_group_fact(two), deleted=True, revision=two.next()))
    handle(two.state, FactSeen(len(two.facts), two.facts[-1]))
    assert holds(two) == []
    handle(two.state, AppendFailed("pool", 1, "refused"))
    assert holds(two) == before
    assert two.state.device_usage.has(claim.uid)


def _group_fact(world: Any) -> Any:
    return next(one for one in reversed(world.facts) if getattr(one, "group", None) is not None)


def test_nothing_is_held_without_a_grace_period(make_world: Any) -> None:
    world = start(make_world(AllocatorOptions(writer="one", group_hold_s=0.0)).open())
    lose(world, "b")
    assert holds(world) == []


def test_a_raised_minimum_holds_nothing(two: Any) -> None:
    see_group(two, 3)
    assert holds(two) == []


def test_part_of_a_record_is_held_if_the_lost_devices_exceed_one(make_world: Any) -> None:
    options = AllocatorOptions(writer="one", decided_bytes=900)
    world = make_world(options).open()
    world.nodes(*(world.a_node(f"n{number}") for number in range(5)))
    see_group(world, 5)
    names = ("a", "b", "c", "d", "e")
    for name in names:
        member(world, name, whole(world))
    run(world, *names)
    for name in names[1:]:
        lose(world, name)
    (held,) = holds(world)
    assert 0 < len(held.claims) < 4
    assert held.group == KEY


def test_a_reader_of_facts_and_log_finds_the_same_use_of_held_devices(two: Any) -> None:
    """As ``dray doctor --deep``, which compares it with the replica's."""
    lose(two, "b")
    state = AllocatorState(two.state.options)
    for sequence, fact in enumerate(two.facts, 1):
        handle(state, FactSeen(sequence, fact))
    for sequence, record in enumerate(two.logs["pool"], 1):
        handle(state, RecordSeen("pool", 1, sequence, record))
    known = holdings_of(two.state, two.state.domains["pool"])
    assert holdings_of(state, state.domains["pool"]) == known
    assert any(one.used and two.state.facts.claims.get(uid) is None for uid, one in known.items())


@pytest.mark.parametrize(("ran_s", "is_held"), [(1, False), (60, True)])
def test_a_namespace_holds_no_devices_of_many_groups_that_ran_for_a_moment(
    world: Any, ran_s: float, is_held: bool
) -> None:
    world.nodes(*(world.a_node(f"n{number}") for number in range(4)))
    for name in ("first", "second"):
        key = see_group(world, 2, name).key
        for pod in ("a", "b"):
            member(world, f"{name}-{pod}", whole(world), group=key)
        run(world, f"{name}-a", f"{name}-b")
    world.tick(ran_s)
    for name in ("first-b", "second-b"):
        lose(world, name)
    assert len(holds(world)) == 1 + is_held
    world.submit(world.a_pod("other"), whole(world))
    assert ("other" in world.decisions()) != is_held


def test_a_pool_holds_a_bounded_number_of_claims(two: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(lost_members, "_MOST_CLAIMS", 0)
    lose(two, "b")
    assert holds(two) == []
