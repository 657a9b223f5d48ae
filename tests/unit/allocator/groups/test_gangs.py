"""A group starts as a whole or not at all."""

import copy
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.allocator.groups.support import (
    KEY,
    group_records,
    member,
    rider,
    run,
    see_group,
    together,
    why,
)

from dray.api import names
from dray.api.claims import ClaimSpec, DeviceRequest
from dray.api.devices import DeviceClass
from dray.api.groups import PodGroup, SubGroupPolicy
from dray.api.pods import GroupKey, PodNeeds
from dray.messages.facts import DeviceClassObserved, PodObserved
from dray_allocator.core.handle import handle, reasons, recompute
from dray_allocator.gangs.decision import decide_group
from dray_allocator.gangs.membership import Membership, membership
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen
from dray_allocator.values.options import AllocatorOptions

WHOLE = "312"


@pytest.fixture
def four(world: Any) -> Any:
    """Four nodes with one card each."""
    world.nodes(*(world.a_node(f"n{i}") for i in range(4)))
    return world


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[GroupKey]:
    """The groups on which decisions were made since the test cleared the list."""
    found: list[GroupKey] = []

    def counted(state: AllocatorState, domain: Any, key: GroupKey, **options: Any) -> Any:
        found.append(key)
        return decide_group(state, domain, key, **options)

    monkeypatch.setattr("dray_allocator.gangs.scheduler.decide_group", counted)
    return found


def whole(world: Any, count: int = 1) -> ClaimSpec:
    spec: ClaimSpec = world.ask(WHOLE, "40Gi", count)
    return spec


def test_a_group_is_decided_with_its_last_pod_in_one_record(four: Any) -> None:
    see_group(four, 3)
    for name in ("a", "b"):
        member(four, name)
    assert four.decisions() == {}
    member(four, "c")
    assert together(four) == [{"a", "b", "c"}]
    (record,) = group_records(four)
    joint = {pod.group for pod in record.pods}
    assert [(one.size, one.group, one.timeout_s) for one in joint if one] == [(3, KEY, 300.0)]


def test_a_large_gang_is_looked_at_with_ticks_until_it_has_its_pods(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def counted(state: AllocatorState, group: PodGroup) -> Membership:
        looks.append(group)
        return membership(state, group)

    monkeypatch.setattr("dray_allocator.gangs.scheduler.membership", counted)
    world.nodes(*(world.a_node(f"n{i}") for i in range(100)))
    see_group(world, 100)
    for number in range(99):
        member(world, f"p{number:03}")
    assert len(looks) <= 65
    assert not world.waits("p098")
    world.tick()
    assert why(world, "p098").endswith("99 of 100 pods (minMember)")
    member(world, "p099")
    assert len(world.decisions()) == 100
    looks.clear()
    run(world, *world.decisions())
    assert len(looks) <= 1
    member(world, "above")
    assert "above" not in world.decisions()
    world.tick()
    assert "above" in world.decisions()


@pytest.mark.parametrize(
    ("pods", "spec"),
    [(2, {}), (3, {"min_resources": {"cpu": "1000"}}), (3, {"min_resources": {"a.b/c": "1"}})],
    ids=["too few pods", "less cpu", "a resource that no node has"],
)
def test_capacity_that_helps_no_group_costs_no_decision_on_it(
    four: Any, decided: list[GroupKey], pods: int, spec: dict[str, Any]
) -> None:
    """Else many groups, which any user may create, would delay all others with each change."""
    four.submit(four.a_pod("single"))
    see_group(four, 3, **spec)
    for number in range(pods):
        member(four, f"p{number}")
    decided.clear()
    before = four.state.domains["pool"].queue.capacity_version
    single = four.decisions()["single"]
    four.commit(single)
    four.clear(single.claims[0].uid)
    four.node(four.a_node("more"))
    assert four.state.domains["pool"].queue.capacity_version > before
    assert decided == []
    assert all(four.waits(f"p{number}") for number in range(pods))


def test_too_few_pods_wait_with_a_sentence(four: Any) -> None:
    see_group(four, 3)
    member(four, "a")
    assert why(four, "a") == "PodGroup ns/train has not enough pods: 1 of 3 pods (minMember)"


@pytest.mark.parametrize("is_decided", [False, True], ids=["incomplete", "starting"])
def test_nothing_is_kept_of_a_group_whose_pods_are_gone(four: Any, is_decided: bool) -> None:
    """Else memory grew with each job that any user creates and deletes."""
    see_group(four, 2)
    pods = [member(four, name) for name in ("ab" if is_decided else "a")]
    if is_decided:
        four.commit(four.decisions()["a"])
    groups = four.state.domains["pool"].groups
    assert groups.starting if is_decided else groups.incomplete
    for pod in pods:
        four.see(PodObserved(revision=four.next(), pod=pod, deleted=True))
    assert (groups.starting, groups.incomplete, groups.pending) == ({}, {}, {})


def test_a_group_that_lacks_a_device_holds_none(four: Any) -> None:
    see_group(four, 5)
    for name in "abcde":
        member(four, name, whole(four))
    assert four.decisions() == {}
    assert "can never fit: even without other pods, the pool has room for 4 of 5 pods" in why(
        four, "a"
    )
    four.submit(four.a_pod("single"), whole(four))
    assert "single" in four.decisions()


def different(world: Any, name: str, tflops: str = "200", task: str = "") -> None:
    """A pod of a kind of its own."""
    needs = PodNeeds(cpu_milli=len(world.facts))
    member(world, name, world.ask(tflops, "8Gi"), task=task, needs=needs)


def test_pods_of_several_kinds_that_can_never_fit_hear_what_is_missing(
    four: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a search, which would end after so many trials that it could not say so."""
    monkeypatch.setattr("dray_allocator.gangs.decision.JointSearch", None)
    see_group(four, 7)
    for number in range(7):
        different(four, f"p{number}")
    assert why(four, "p0") == (
        "PodGroup ns/train can never fit: its pods ask for virtual_tflops 1400 at least, and all "
        "devices of the pool have 1248"
    )
    see_group(four, 2, task_minimums={"a": 3, "b": 4})
    for number in range(7):
        different(four, f"t{number}", task="a" if number < 3 else "b")
    assert "virtual_tflops 1400 at least" in why(four, "t0")


def test_pods_of_several_kinds_start_once_enough_is_free(
    four: Any, decided: list[GroupKey]
) -> None:
    def release(name: str) -> None:
        claim = four.state.facts.claims[f"claim-{name}"]
        four.see(PodObserved(revision=four.next(), pod=four.a_pod(name), deleted=True))
        four.claim(claim, deleted=True)

    four.submit(four.a_pod("large"), four.ask("300", "20Gi"))
    four.submit(four.a_pod("small"), four.ask("10", "1Gi"))
    see_group(four, 4)
    for number in range(4):
        different(four, f"p{number}", "300")
    assert why(four, "p0") == (
        "PodGroup ns/train lacks room: its pods ask for virtual_tflops 1200 at least: the devices "
        "of the pool have 938 free"
    )
    decided.clear()
    release("small")
    assert decided == [], "too little was freed"
    release("large")
    assert together(four) == [{f"p{number}" for number in range(4)}]


def test_of_two_groups_one_runs_and_the_other_holds_nothing(four: Any) -> None:
    """Two jobs of four GPUs each, on four GPUs."""
    for name in ("one", "two"):
        see_group(four, 4, name)
    for number in range(4):
        for name in ("one", "two"):
            member(four, f"{name}-{number}", whole(four), group=GroupKey(KEY.api, "ns", name))
    assert together(four) == [{f"one-{number}" for number in range(4)}]
    assert "lacks room for pods: 4 of 4 members" in why(four, "two-0")


def test_a_group_starts_when_enough_is_freed(four: Any) -> None:
    see_group(four, 4)
    four.submit(four.a_pod("single"), whole(four))
    for name in "abcd":
        member(four, name, whole(four))
    assert "lacks room for pods: 1 of 4 members" in why(four, "a")
    gone = four.state.facts.claims["claim-single"]
    four.see(PodObserved(revision=four.next(), pod=four.a_pod("single"), deleted=True))
    four.claim(gone, deleted=True)
    four.tick()
    assert together(four) == [set("abcd")]


def test_pods_above_the_minimum_come_one_by_one(four: Any) -> None:
    see_group(four, 2)
    for name in "abc":
        member(four, name, whole(four))
    assert together(four) == [{"a", "b"}]
    assert "c" not in four.decisions(), "the first ones do not run yet"
    run(four, "a", "b")
    assert four.decisions()["c"].group is None


def test_a_group_without_minimum_is_decided_pod_by_pod(four: Any) -> None:
    see_group(four, 0)
    member(four, "a")
    assert four.decisions()["a"].group is None
    assert group_records(four) == []


def test_a_missing_group_is_named(four: Any) -> None:
    member(four, "a")
    assert why(four, "a") == "there is no PodGroup ns/train, which the pod names"
    see_group(four, 1)
    assert "a" in four.decisions()


def test_a_blocked_group_waits_with_its_reason(four: Any) -> None:
    see_group(four, 1, blocked="Queue research is Closed")
    member(four, "a")
    assert why(four, "a") == "Queue research is Closed"
    see_group(four, 1)
    assert "a" in four.decisions()


def test_the_minimum_of_each_task_counts(four: Any) -> None:
    see_group(four, 2, task_minimums={"ps": 1, "worker": 2})
    member(four, "ps", task="ps")
    member(four, "w1", task="worker")
    assert "not enough pods" in why(four, "ps")
    member(four, "w2", task="worker")
    assert together(four) == [{"ps", "w1", "w2"}]


def test_any_subgroups_that_fit_start(world: Any) -> None:
    """Three of four replicas must start; one of them is too large for every node."""
    world.nodes(*(world.a_node(f"n{i}") for i in range(4)), cards=2)
    policy = SubGroupPolicy("replica", label_keys=("replica",), size=2, minimum=3)
    see_group(world, 0, sub_groups=(policy,))
    for replica in range(4):
        for number in range(2):
            count = 3 if replica == 1 else 1
            labels = {"replica": str(replica)}
            member(world, f"r{replica}-{number}", whole(world, count), labels=labels)
    found = together(world)
    assert found == [{f"r{r}-{n}" for r in (0, 2, 3) for n in range(2)}]


def test_pods_without_devices_count_and_need_no_decision(four: Any) -> None:
    see_group(four, 3)
    rider(four, "ps", task="ps")
    member(four, "w1", task="worker")
    assert "not enough pods" in why(four, "w1")
    member(four, "w2", task="worker")
    assert together(four) == [{"w1", "w2"}]


def test_a_pod_with_another_gate_keeps_the_group_waiting(four: Any) -> None:
    see_group(four, 2)
    member(four, "a", other_gates=True)
    member(four, "b")
    (reason,) = four.waits("b")[-1].reasons
    assert reason.detail == "1 of 2 pods (minMember); 1 more are gated by another controller"
    pod = four.state.facts.pods["a"]
    four.see(PodObserved(revision=four.next(), pod=replace(pod, other_gates=False)))
    assert together(four) == [{"a", "b"}]


def test_nothing_more_is_decided_while_members_are_on_their_way(four: Any) -> None:
    see_group(four, 2)
    for name in "ab":
        member(four, name)
    member(four, "c")
    four.see(PodObserved(revision=four.next(), pod=four.state.facts.pods["a"], deleted=True))
    assert together(four) == [{"a", "b"}]
    assert "c" not in four.decisions()


def test_a_lost_member_is_replaced_together_with_what_the_minimum_lacks(four: Any) -> None:
    see_group(four, 3)
    for name in "abc":
        member(four, name, whole(four))
    run(four, "a", "b", "c")
    for name in ("b", "c"):
        pod, claim = four.state.facts.pods[name], four.state.facts.claims[f"claim-{name}"]
        four.see(PodObserved(revision=four.next(), pod=pod, deleted=True))
        four.claim(claim, deleted=True)
    four.tick()
    member(four, "d", whole(four))
    assert "not enough pods" in why(four, "d")
    member(four, "e", whole(four))
    assert together(four) == [{"a", "b", "c"}, {"d", "e"}]


def test_a_raised_minimum_counts_for_the_pods_that_wait(four: Any) -> None:
    see_group(four, 4)
    for name in "abc":
        member(four, name)
    assert four.decisions() == {}
    see_group(four, 3)
    assert together(four) == [{"a", "b", "c"}]


def test_what_is_missing_is_named_before_the_search(four: Any) -> None:
    see_group(four, 2, min_resources={"cpu": "300", "memory": "1Gi"})
    for name in "ab":
        member(four, name)
    (reason,) = four.waits("a")[-1].reasons
    assert reason.what == "PodGroup ns/train asks for cpu 300 (minResources)"
    assert reason.detail == "the nodes of the pool have 256 free"


def test_amounts_as_volcano_writes_them_are_understood(four: Any) -> None:
    quotas = {"count/pods": "9", "requests.cpu": "999", "limits.nvidia.com/gpu": "9"}
    see_group(four, 2, min_resources={"nvidia.com/gpu": "5", "pods": "2", **quotas})
    for name in "ab":
        member(four, name, whole(four))
    (reason,) = four.waits("a")[-1].reasons
    assert reason.what == "PodGroup ns/train asks for nvidia.com/gpu 5 (minResources)"
    assert reason.detail == "the nodes of the pool have 4 free"
    see_group(four, 2, min_resources={"nvidia.com/gpu": "4", **quotas})
    assert together(four) == [{"a", "b"}]


def test_a_group_of_too_many_pods_is_refused_with_the_number(make_world: Any) -> None:
    world = make_world(AllocatorOptions(writer="one", group_pods=3)).open()
    world.nodes(world.a_node("n"))
    see_group(world, 2)
    for name in "abcd":
        member(world, name, priority=1)
    assert together(world) == [{"a", "b"}]
    run(world, "a", "b")
    assert why(world, "d") == (
        "PodGroup ns/train has 4 pods: dray decides groups of 3 pods at most"
    )


def halves() -> ClaimSpec:
    """A whole card, or else half of one."""

    def alternative(name: str, tflops: str, vram: str) -> DeviceRequest:
        capacity = {"virtual_tflops": tflops, "virtual_vram": vram}
        return DeviceRequest(name, names.DEVICE_CLASS, capacity=capacity)

    options = (alternative("whole", WHOLE, "40Gi"), alternative("half", "156", "20Gi"))
    return ClaimSpec((DeviceRequest("gpu", "", first_available=options),))


def test_a_later_pod_changes_the_choice_of_an_earlier_one(world: Any) -> None:
    """kubernetes#138765: two pods ask for a whole device or half of one; one device is free."""
    world.nodes(world.a_node("n"))
    see_group(world, 2)
    for name in "ab":
        member(world, name, halves())
    assert together(world) == [{"a", "b"}]
    taken = [
        device.request
        for pod in world.decisions().values()
        for claim in pod.claims
        for device in claim.allocation.devices
    ]
    assert taken == ["gpu/half", "gpu/half"]


def test_a_pod_makes_room_for_one_that_fits_nowhere_else(world: Any) -> None:
    """The small pod fits both nodes, the large one only the first, which is preferred by both."""
    world.nodes(world.a_node("big", memory_bytes=2**39))
    world.nodes(world.a_node("small"), vram="20Gi", tflops="156")
    see_group(world, 2, task_order=("any",))
    member(world, "any", world.ask("156", "20Gi"), task="any")
    member(world, "big-only", whole(world), task="big")
    assert together(world) == [{"any", "big-only"}]
    found = world.decisions()
    assert (found["any"].node, found["big-only"].node) == ("small", "big")


def test_a_group_fills_one_node_before_the_next(world: Any) -> None:
    world.nodes(*(world.a_node(f"n{i}") for i in range(3)), cards=2)
    see_group(world, 4)
    for name in "abcd":
        member(world, name, whole(world))
    nodes = [one.node for one in world.decisions().values()]
    assert sorted(nodes.count(node) for node in set(nodes)) == [2, 2]


def test_tasks_that_avoid_each_other_use_different_nodes(world: Any) -> None:
    world.nodes(*(world.a_node(f"n{i}") for i in range(3)), cards=4)
    see_group(world, 3, anti_affinity=(("ps",),))
    for name in "abc":
        member(world, name, task="ps")
    assert len({one.node for one in world.decisions().values()}) == 3


def test_tasks_that_like_each_other_share_nodes(world: Any) -> None:
    world.nodes(*(world.a_node(f"n{i}") for i in range(4)), cards=2)
    see_group(world, 4, affinity=(("ps", "worker"),), anti_affinity=(("ps",), ("worker",)))
    for number in range(2):
        member(world, f"ps{number}", whole(world), task="ps")
        member(world, f"worker{number}", whole(world), task="worker")
    tasks: dict[str, list[str]] = {}
    for name, one in world.decisions().items():
        tasks.setdefault(one.node, []).append(name[:-1])
    assert sorted(sorted(there) for there in tasks.values()) == [["ps", "worker"]] * 2


def test_the_group_with_the_higher_priority_comes_first(four: Any) -> None:
    four.submit(four.a_pod("single"), whole(four, 1))
    low, high = GroupKey(KEY.api, "ns", "low"), GroupKey(KEY.api, "ns", "high")
    see_group(four, 4, "low")
    see_group(four, 4, "high", priority=10)
    for number in range(4):
        member(four, f"low{number}", whole(four), group=low)
        member(four, f"high{number}", whole(four), group=high)
    assert group_records(four) == []
    gone = four.state.facts.claims["claim-single"]
    four.see(PodObserved(revision=four.next(), pod=four.a_pod("single"), deleted=True))
    four.claim(gone, deleted=True)
    four.tick()
    assert together(four) == [{f"high{number}" for number in range(4)}]


def test_a_decision_is_computed_again_as_it_was_written(four: Any) -> None:
    see_group(four, 3)
    for name in "ab":
        member(four, name)
    before = four.state
    state = copy.deepcopy(before)
    member(four, "c")
    (record,) = group_records(four)
    for sequence, fact in enumerate(four.facts, start=1):
        if sequence <= record.facts_sequence and sequence > state.facts.position:
            state.domains["pool"].serving_since = None
            handle(state, FactSeen(sequence, fact))
    assert recompute(state, record) == record


def test_the_reasons_of_a_member_are_those_of_its_group(four: Any) -> None:
    see_group(four, 5)
    for name in "abcde":
        member(four, name, whole(four))
    assert reasons(four.state, "c") == four.waits("c")[-1].reasons


def test_a_large_decision_is_written_in_parts_that_count_together(make_world: Any) -> None:
    world = make_world(AllocatorOptions(writer="one", decided_bytes=2_500)).open()
    world.nodes(*(world.a_node(f"n{i}") for i in range(8)))
    see_group(world, 8)
    for number in range(8):
        member(world, f"p{number}", whole(world))
    records = group_records(world)
    assert [(one.part, one.parts) for one in records] == [
        (number, len(records)) for number in range(1, len(records) + 1)
    ]
    assert len(records) > 1
    assert len(world.state.domains["pool"].current.pods) == 8


def test_parts_without_their_last_one_count_for_nothing(make_world: Any) -> None:
    world = make_world(AllocatorOptions(writer="one", decided_bytes=2_500)).open()
    world.nodes(*(world.a_node(f"n{i}") for i in range(8)))
    see_group(world, 8)
    for number in range(8):
        member(world, f"p{number}", whole(world))
    records = group_records(world)
    other = make_world().open()
    other.nodes(*(other.a_node(f"n{i}") for i in range(8)))
    other.append(replace(records[0], writer="two", facts_sequence=0))
    assert other.state.domains["pool"].current.pods == {}
    other.submit(other.a_pod("single"), whole(other))
    other.append(replace(records[1], writer="two", facts_sequence=0))
    assert set(other.state.domains["pool"].current.pods) == {"single"}


def test_a_decision_that_is_too_large_is_refused_with_its_size(make_world: Any) -> None:
    world = make_world(AllocatorOptions(writer="one", decided_bytes=2_000, group_parts=2)).open()
    world.nodes(*(world.a_node(f"n{i}") for i in range(8)))
    see_group(world, 8)
    for number in range(8):
        member(world, f"p{number}", whole(world))
    assert group_records(world) == []
    assert "4000 at most: lower its minimum" in why(world, "p0")


def mixed(world: Any) -> None:
    """A gang of pods with three and two GPUs that lacks room on nodes of four."""
    world.nodes(*(world.a_node(f"n{i}") for i in range(12)), cards=4)
    see_group(world, 18)
    for number in range(10):
        member(world, f"large{number}", whole(world, 3))
    for number in range(8):
        member(world, f"small{number}", whole(world, 2))


def test_a_long_search_is_not_repeated_at_once(world: Any) -> None:
    """Each tick of a second may search once, then backoffs grow: others are not kept waiting."""
    mixed(world)
    assert "does not fit as a whole" in why(world, "large0")
    groups = world.state.domains["pool"].groups
    for number in range(3):
        world.submit(world.a_pod(f"single{number}"))
        assert KEY in groups.unschedulable
    assert [backoff_s for backoff_s, _ in groups.backoffs.values()] == [1.0]
    for _ in range(6):
        world.tick()
    assert [backoff_s for backoff_s, _ in groups.backoffs.values()] == [4.0]


@pytest.mark.parametrize(("trials", "is_named"), [(1, True), (100, False)])
def test_a_search_that_reached_its_bound_says_so(
    make_world: Any, trials: int, is_named: bool
) -> None:
    world = make_world(AllocatorOptions(writer="one", group_trials=trials)).open()
    world.nodes(world.a_node("n0"), world.a_node("n1"), cards=4)
    see_group(world, 3)
    for name, count in (("a", 3), ("b", 3), ("c", 2)):
        member(world, name, whole(world, count))
    assert "does not fit as a whole: 2 of 3 pods (minMember) find room together" in why(world, "a")
    assert (f"the search ended after {trials} trials" in why(world, "a")) == is_named


def test_after_its_backoff_a_gang_starts_as_soon_as_it_fits(world: Any) -> None:
    mixed(world)
    world.nodes(*(world.a_node(f"more{i}") for i in range(2)), cards=4)
    assert group_records(world) == []
    world.tick()
    assert [len(found) for found in together(world)] == [18]


def test_a_group_of_refused_pods_is_decided_again_once_they_may_be_decided(
    four: Any, decided: list[GroupKey]
) -> None:
    """Whatever is freed does not help them; their class does."""
    later = ClaimSpec((DeviceRequest("gpu", "later", (), capacity={"virtual_tflops": WHOLE}),))
    see_group(four, 2)
    member(four, "a", whole(four))
    member(four, "b", later)
    assert "later" in why(four, "a")
    decided.clear()
    for number in range(20):
        four.submit(four.a_pod(f"single-{number}"), whole(four))
        run(four, f"single-{number}")
        claim = next(
            one for one in four.state.facts.claims.values() if one.pod_uid == f"single-{number}"
        )
        four.claim(claim, deleted=True)
        four.tick()
    assert decided == []
    four.see(DeviceClassObserved(revision=2, device_class=DeviceClass("later")))
    assert decided
    assert together(four) == [{"a", "b"}]
