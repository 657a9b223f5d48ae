"""Pods of a group that share a claim."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.allocator.groups.support import see_group, together, why

from dray.api.groups import KUBERNETES, VOLCANO
from dray.api.names import DEFAULT_SCHEDULER, DRAY_SCHEDULER
from dray.api.pods import GroupKey, GroupMember, PodClaim
from dray.messages.facts import PodObserved
from dray_allocator.core.handle import handle
from dray_allocator.gangs import joint_search
from dray_allocator.nodes.predicates import fits
from dray_allocator.state.facts import Facts
from dray_allocator.values.events import FactSeen

SHARED = PodClaim("data", "shared-gpu")


def pods(
    world: Any, *names: str, scheduler: str, api: Any = KUBERNETES, own: bool = False, **needs: Any
) -> None:
    """Pods of the group that refer to one claim, and with ``own`` each to one more."""
    member = GroupMember(GroupKey(api, "ns", "train"))
    for name in names:
        pod = replace(
            world.a_pod(name), member=member, scheduler=scheduler, gated=scheduler != DRAY_SCHEDULER
        )
        claims = (SHARED, *pod.claims) if own else (SHARED,)
        pod = replace(pod, claims=claims, needs=replace(pod.needs, **needs))
        if own:
            world.claim(world.a_claim(name, world.ask("312", "40Gi")))
        fact = PodObserved(revision=world.next(), pod=pod)
        if name == names[-1]:
            world.see(fact)
        else:
            world.facts.append(fact)
            handle(world.state, FactSeen(len(world.facts), fact, more=True))


def shared_claim(world: Any, count: int = 1) -> None:
    made = world.a_claim("shared", world.ask("312", "40Gi", count))
    world.claim(replace(made, pod_uid="", pod_name=""))


def devices(world: Any) -> dict[str, list[list[str]]]:
    return {
        uid: [[str(one.id) for one in claim.allocation.devices] for claim in decision.claims]
        for uid, decision in world.decisions().items()
    }


@pytest.mark.parametrize("scheduler", [DRAY_SCHEDULER, DEFAULT_SCHEDULER])
def test_pods_that_share_a_claim_get_the_same_devices(world: Any, scheduler: str) -> None:
    world.nodes(*(world.a_node(f"n{i}") for i in range(4)), cards=2)
    see_group(world, 3, api=KUBERNETES, claims=(SHARED,))
    shared_claim(world)
    pods(world, "a", "b", "c", scheduler=scheduler)
    assert together(world) == [{"a", "b", "c"}]
    ((first,), *others) = devices(world).values()
    assert others == [[first], [first]]
    assert len({one.node for one in world.decisions().values()}) == 1
    assert len(world.state.device_usage.devices) == 1


def test_each_pod_has_its_own_claim_next_to_the_shared_one(world: Any) -> None:
    world.nodes(*(world.a_node(f"n{i}") for i in range(2)), cards=4)
    see_group(world, 3, api=KUBERNETES, claims=(SHARED,))
    shared_claim(world)
    pods(world, "a", "b", "c", scheduler=DRAY_SCHEDULER, own=True)
    assert together(world) == [{"a", "b", "c"}]
    found = devices(world)
    assert len({tuple(shared) for shared, _ in found.values()}) == 1
    assert len({own[0] for _, own in found.values()} | {found["a"][0][0]}) == 4


def test_a_node_must_have_room_for_all_that_share(world: Any) -> None:
    small = replace(world.a_node("small"), cpu_milli=2_000)
    large = replace(world.a_node("zlarge"), cpu_milli=64_000)
    world.nodes(small, large, cards=2)
    see_group(world, 4, api=KUBERNETES, claims=(SHARED,))
    shared_claim(world)
    pods(world, "a", "b", "c", "d", scheduler=DRAY_SCHEDULER, cpu_milli=1_000)
    assert {one.node for one in world.decisions().values()} == {"zlarge"}


def test_three_hundred_pods_with_one_claim_are_one_reservation(world: Any) -> None:
    node = replace(world.a_node("n0"), pods=400)
    world.nodes(node, cards=2)
    see_group(world, 300, api=KUBERNETES, claims=(SHARED,))
    shared_claim(world)
    names = [f"p{number}" for number in range(300)]
    pods(world, *names, scheduler=DRAY_SCHEDULER)
    assert sorted(world.decisions()) == sorted(names)
    log = world.state.domains["pool"].current
    assert list(log.claims) == ["claim-shared"]
    assert sorted(log.pods) == sorted(names)
    gone = world.state.facts.claims["claim-shared"]
    world.claim(gone, deleted=True)
    world.tick()
    assert (log.claims, log.pods, log.sharers) == ({}, {}, {})


def test_a_claim_that_is_not_the_groups_is_for_one_pod(world: Any) -> None:
    world.nodes(world.a_node("n0"), cards=2)
    see_group(world, 2, api=VOLCANO)
    shared_claim(world)
    pods(world, "a", "b", scheduler=DRAY_SCHEDULER, api=VOLCANO)
    words = "several pods of PodGroup ns/train refer to claim shared-gpu (dray binds one pod per"
    assert why(world, "a").startswith(words)
    assert world.state.device_usage.devices == {}


def crowd(world: Any, number: int) -> None:
    """A group of so many pods with one claim, for which no node has room together."""
    nodes = (replace(world.a_node(f"n{i}"), pods=110, cpu_milli=50_000) for i in range(8))
    world.nodes(*nodes, cards=2)
    see_group(world, number, api=KUBERNETES, claims=(SHARED,))
    shared_claim(world)
    names = [f"p{at}" for at in range(number)]
    pods(world, *names, scheduler=DRAY_SCHEDULER, cpu_milli=1_000)


def test_sharers_without_room_look_once_at_each_node(world: Any, monkeypatch: Any) -> None:
    looks = []

    def counted(*args: Any, **options: Any) -> bool:
        looks.append(args)
        return fits(*args, **options)

    monkeypatch.setattr(joint_search, "fits", counted)
    crowd(world, 60)
    assert world.decisions() == {}
    assert why(world, "p0").startswith("PodGroup ns/train does not fit as a whole")
    assert 0 < len(looks) <= 8 * 60


def test_sharers_start_once_a_node_has_room_for_all(world: Any) -> None:
    crowd(world, 60)
    world.nodes(replace(world.a_node("n9"), pods=110, cpu_milli=64_000), cards=2)
    world.tick()
    assert {one.node for one in world.decisions().values()} == {"n9"}


def test_a_shared_claim_is_looked_at_once(world: Any, monkeypatch: Any) -> None:
    looks = []

    def counted(facts: Facts, claim: tuple[str, str]) -> tuple[str, ...]:
        looks.append(claim)
        return pods_named(facts, claim)

    pods_named = Facts.pods_named
    monkeypatch.setattr(Facts, "pods_named", counted)
    world.nodes(world.a_node("n0"), cards=2)
    see_group(world, 20, api=KUBERNETES, claims=(SHARED,))
    shared_claim(world)
    pods(world, *(f"p{at}" for at in range(20)), scheduler=DRAY_SCHEDULER)
    assert len(world.decisions()) == 20
    assert looks == [("ns", "shared-gpu")]
