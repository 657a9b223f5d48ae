"""The scheduler stand-in: as strict and as nasty as kube-scheduler, and it never allocates."""

from datetime import UTC, datetime

import pytest
from tests.unit.sandbox_stack.objects import Object, claim, cluster, node, pod, seen

from dray_sandbox.scheduler.rules import (
    FilterFailure,
    NotQueued,
    ScheduleResult,
    Unschedulable,
    decide,
    is_candidate,
)


def test_a_pod_goes_to_the_emptiest_node_that_fits() -> None:
    made = cluster(node("a"), node("b"))
    seen(made, pod("other", cpu="2", nodeName="a"))
    assert decide(seen(made, pod("mine")), made) == ScheduleResult("b")


def test_assumed_pods_count_until_the_watch_confirms_them() -> None:
    made = cluster(node("a", cpu="1"))
    first, second = seen(made, pod("first")), seen(made, pod("second"))
    made.assume(first, "a")
    assert isinstance(decide(second, made), Unschedulable)
    made.forget_assumed(first.uid)
    assert decide(second, made) == ScheduleResult("a")


@pytest.mark.parametrize(
    ("fields", "spec", "why"),
    [
        ({"unschedulable": True}, {}, "were unschedulable"),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, {}, "untolerated taint"),
        ({}, {"nodeSelector": {"zone": "x"}}, "node affinity/selector"),
        ({"cpu": "500m"}, {}, "Insufficient cpu"),
        ({"pods": "0"}, {}, "Too many pods"),
    ],
)
def test_a_node_is_refused_for_its_reason(fields: Object, spec: Object, why: str) -> None:
    made = cluster(node("a", **fields))
    verdict = decide(seen(made, pod("mine", **spec)), made)
    assert isinstance(verdict, Unschedulable)
    assert why in verdict.message
    assert verdict.message.startswith("0/1 nodes are available: 1 ")


@pytest.mark.parametrize(
    ("container", "other", "why"),
    [
        ({"resources": {"limits": {"example.com/nic": "1"}}}, {}, "Insufficient example.com/nic"),
        (
            {"ports": [{"containerPort": 80, "hostPort": 80}]},
            {"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]},
            "free ports",
        ),
        (
            {"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]},
            {"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.2"}]},
            "",
        ),
    ],
)
def test_other_resources_and_host_ports_are_had_once(
    container: Object, other: Object, why: str
) -> None:
    made = cluster(node("a"))
    made.nodes["a"].resources["example.com/nic"] = 1
    first = seen(made, pod("first", containers=[{"name": "c", **(other or container)}]))
    second = seen(made, pod("second", containers=[{"name": "c", **container}]))
    made.assume(first, "a")
    verdict = decide(second, made)
    assert why in verdict.message if isinstance(verdict, Unschedulable) else not why
    made.forget_assumed(first.uid)
    assert decide(second, made) == ScheduleResult("a")


def test_tolerations_and_affinity_let_a_pod_in() -> None:
    taint = {"key": "tensor-fusion.ai/dedicated", "value": "p", "effect": "NoSchedule"}
    made = cluster(node("a", taints=[taint], labels={"zone": "x"}))
    expressions = [{"key": "zone", "operator": "In", "values": ["x", "y"]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    mine = pod(
        "mine",
        tolerations=[{"key": "tensor-fusion.ai/dedicated", "operator": "Exists"}],
        affinity=affinity,
    )
    assert decide(seen(made, mine), made) == ScheduleResult("a")


@pytest.mark.parametrize(
    "change",
    [
        {"schedulerName": "tensor-fusion-scheduler"},
        {"schedulingGates": [{"name": "tensor-fusion.ai/allocation"}]},
        {"schedulingGates": [{"name": "somebody/else"}]},
        {"nodeName": "a"},
    ],
)
def test_it_leaves_alone_what_is_not_its_own_or_is_gated(change: Object) -> None:
    made = cluster(node("a"))
    assert is_candidate(seen(made, pod("mine")), made, "default-scheduler")
    assert not is_candidate(seen(made, pod("mine", **change)), made, "default-scheduler")


def test_a_pod_whose_claims_do_not_exist_yet_is_not_even_tried() -> None:
    made = cluster(node("a"))
    assert isinstance(decide(seen(made, pod("mine", claims=("gpu",))), made), NotQueued)


def test_an_unallocated_claim_is_never_allocated() -> None:
    made = cluster(node("a"), claims=(claim("mine-gpu", "mine"),))
    verdict = decide(seen(made, pod("mine", claims=("gpu",))), made)
    assert isinstance(verdict, Unschedulable)
    assert "cannot allocate all claims" in verdict.message
    assert verdict.clear is None


def test_an_allocated_claim_takes_its_pod_to_its_node_and_is_reserved() -> None:
    made = cluster(node("a"), node("b"), claims=(claim("mine-gpu", "mine", node="b"),))
    verdict = decide(seen(made, pod("mine", claims=("gpu",))), made)
    assert isinstance(verdict, ScheduleResult)
    assert verdict.node == "b"
    assert [one.name for one in verdict.reserve] == ["mine-gpu"]


def test_a_claim_reserved_already_is_not_reserved_again() -> None:
    reserved = claim("mine-gpu", "mine", node="a", stamped=False, used_by=("mine",))
    made = cluster(node("a"), claims=(reserved,))
    assert decide(seen(made, pod("mine", claims=("gpu",))), made) == ScheduleResult("a")


def test_an_allocation_without_a_timestamp_can_not_be_reserved_so_the_pod_never_runs() -> None:
    made = cluster(node("a"), claims=(claim("mine-gpu", "mine", node="a", stamped=False),))
    verdict = decide(seen(made, pod("mine", claims=("gpu",))), made)
    assert isinstance(verdict, FilterFailure)
    assert "field is immutable" in verdict.message


def test_postfilter_clears_the_allocation_when_another_node_got_as_far_as_the_claims() -> None:
    full = node("b", cpu="500m")
    made = cluster(node("a"), full, claims=(claim("mine-gpu", "mine", node="b"),))
    verdict = decide(seen(made, pod("mine", claims=("gpu",))), made)
    assert isinstance(verdict, Unschedulable)
    assert verdict.clear is not None
    assert verdict.clear.name == "mine-gpu"


def test_it_clears_nothing_while_no_other_node_gets_that_far() -> None:
    made = cluster(
        node("a", unschedulable=True),
        node("b", cpu="500m"),
        claims=(claim("mine-gpu", "mine", node="b"),),
    )
    verdict = decide(seen(made, pod("mine", claims=("gpu",))), made)
    assert isinstance(verdict, Unschedulable)
    assert verdict.clear is None


def test_it_clears_no_allocation_that_another_pod_uses() -> None:
    shared = claim("mine-gpu", "mine", node="b", used_by=("other",))
    made = cluster(node("a"), node("b", cpu="500m"), claims=(shared,))
    verdict = decide(seen(made, pod("mine", claims=("gpu",))), made)
    assert isinstance(verdict, Unschedulable)
    assert verdict.clear is None


def test_devices_that_will_not_get_ready_are_cleared_for_others_to_be_tried() -> None:
    waiting = claim("mine-gpu", "mine", node="a", used_by=("mine",))
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    conditions = {"bindingConditions": ["up"], "bindingFailureConditions": ["broken"]}
    waiting["status"]["allocation"]["devices"]["results"] = [result | conditions]
    made = cluster(node("a"), node("b"), claims=(waiting,))
    mine = seen(made, pod("mine", claims=("gpu",)))
    allocated = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert decide(mine, made, now_unix_s=allocated + 600) == ScheduleResult("a")
    late = decide(mine, made, now_unix_s=allocated + 601)
    assert isinstance(late, Unschedulable)
    assert "2 resourceclaim not available on the node" in late.message
    assert late.clear is not None
    assert late.clear.name == "mine-gpu"


def test_a_claim_of_another_pod_of_the_same_name_is_not_accepted() -> None:
    made = cluster(node("a"), claims=(claim("mine-gpu", "former", node="a"),))
    assert isinstance(decide(seen(made, pod("mine", claims=("gpu",))), made), NotQueued)
