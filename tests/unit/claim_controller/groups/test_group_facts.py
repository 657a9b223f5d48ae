"""The facts of PodGroups: what they ask for, and why they must not be decided."""

import pytest
from tests.unit.claim_controller.groups.cluster import KEY, NATIVE, Cluster

from dray.api.names import GPUPOOL, REQUEST_ID, SHAPE
from dray.api.pods import GroupKey
from dray.kube.ports import (
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    Deleted,
)
from dray.messages.facts import PriorityClassObserved, QueueObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.group_members import fact_key, key_from
from dray_claim_controller.facts.build import NodeHistory, fact_of


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.queue()
    made.group()
    return made


def test_a_group_in_an_open_queue_is_not_blocked(cluster: Cluster) -> None:
    cluster.pod("p1")
    assert cluster.blocked() == ""
    assert cluster.fact().group.minimum == 2


def test_too_many_policies_block_the_group(cluster: Cluster) -> None:
    cluster.group(subGroupPolicy=[{}] * 65)
    assert "more than 64 entries in subGroupPolicy" in cluster.blocked()


def test_a_missing_queue_blocks_the_group(cluster: Cluster) -> None:
    cluster.group(queue="research")
    assert cluster.blocked().startswith(
        "there is no Queue research, which PodGroup team/train names"
    )


@pytest.mark.parametrize("state", ["Closed", "Closing", "Unknown"])
def test_a_queue_that_is_not_open_blocks_the_group(cluster: Cluster, state: str) -> None:
    cluster.queue(state=state)
    assert cluster.blocked() == (
        f"Queue default is {state}: it takes no groups until it is open again"
    )


def test_pods_of_two_pools_block_the_group(cluster: Cluster) -> None:
    cluster.pod("p1", pool="a")
    cluster.pod("p2", pool="b")
    assert "name several GPUPools (a, b)" in cluster.blocked()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_block_nothing(cluster: Cluster, phase: str) -> None:
    cluster.pod("p1", pool="a")
    cluster.pod("p2", pool="b", phase=phase)
    assert cluster.blocked() == ""


def test_a_pod_without_gpus_names_no_pool(cluster: Cluster) -> None:
    cluster.pod("p1", pool="a")
    cluster.pod("ps", without=(GPUPOOL, SHAPE))
    assert cluster.blocked() == ""
    assert len(cluster.cache.members_of(KEY)) == 2


def test_pods_of_another_scheduler_block_the_group(cluster: Cluster) -> None:
    cluster.pod("p1")
    cluster.pod("p2", schedulerName="volcano", without=(REQUEST_ID, SHAPE))
    assert "have schedulerName volcano, which dray does not serve" in cluster.blocked()


def test_a_group_of_another_scheduler_alone_is_not_drays(cluster: Cluster) -> None:
    cluster.pod("p2", schedulerName="volcano", without=(REQUEST_ID, SHAPE))
    assert cluster.blocked() == ""
    assert cluster.cache.members_of(KEY) == []


def test_pods_of_several_priorities_block_a_native_group(cluster: Cluster) -> None:
    cluster.put(
        NATIVE_POD_GROUPS, "train", "team", spec={"schedulingPolicy": {"gang": {"minCount": 2}}}
    )
    native = {"schedulingGroup": {"podGroupName": "train"}}
    cluster.pod("p1", priority=5, **native)
    cluster.pod("p2", priority=7, **native)
    assert "have different priorities (5, 7)" in cluster.blocked(NATIVE)


def test_native_groups_have_one_scheduler(cluster: Cluster) -> None:
    cluster.native()
    native = {"schedulingGroup": {"podGroupName": "train"}}
    cluster.pod("p1", **native)
    cluster.pod("ps", gated=True, without=(GPUPOOL, SHAPE), **native)
    assert "have different schedulers (default-scheduler, tensor-fusion-scheduler)" in (
        cluster.blocked(NATIVE)
    )


def test_the_class_decides_the_priority_then_the_pods(cluster: Cluster) -> None:
    cluster.pod("p1", priority=5)
    cluster.pod("p2", priority=7)
    assert cluster.fact().group.priority == 7
    cluster.group(priorityClassName="high")
    cluster.put(PRIORITY_CLASSES, "high", value=6)
    assert cluster.fact().group.priority == 6
    cluster.put(PRIORITY_CLASSES, "high", value=1000)
    assert cluster.fact().group.priority == 7, "a class lifts no group above its pods"


def test_what_a_groups_fact_depends_on_marks_it(cluster: Cluster) -> None:
    def marked() -> bool:
        return fact_key(KEY) in dict(cluster.cache.take_dirty())

    assert marked()
    pod = cluster.pod("p1")
    assert marked()
    cluster.pod("p1", nodeName="n1")
    assert not marked(), "a bound pod changes nothing in the group's fact"
    cluster.pod("p1", pool="b", nodeName="n1")
    assert marked()
    cluster.queue(state="Closed")
    assert marked()
    cluster.cache.apply(PODS, Deleted(pod))
    assert marked()


def test_a_pod_annotated_later_with_an_impossible_name_leaves_its_group(cluster: Cluster) -> None:
    cluster.pod("p1")
    for fields in ({}, {"schedulerName": "other", "without": (REQUEST_ID, SHAPE)}):
        cluster.pod("p1", annotations={"scheduling.k8s.io/group-name": "a/b"}, **fields)
        assert cluster.cache.members_of(KEY) == []
        for key in cluster.cache.all_facts():
            fact_of(cluster.cache, key, NodeHistory())


def test_the_key_of_a_fact_names_its_group() -> None:
    odd = GroupKey(KEY.api, "team", "a/b")
    assert [key_from(fact_key(one)) for one in (KEY, NATIVE, odd)] == [KEY, NATIVE, odd]


def test_a_deleted_group_has_no_fact(cluster: Cluster) -> None:
    obj = cluster.group()
    cluster.cache.apply(POD_GROUPS, Deleted(obj))
    assert fact_of(cluster.cache, fact_key(KEY), NodeHistory()) is None


def test_groups_of_both_apis_with_one_name_are_two(cluster: Cluster) -> None:
    cluster.put(NATIVE_POD_GROUPS, "train", "team", spec={"schedulingPolicy": {"basic": {}}})
    assert cluster.fact(NATIVE).group.minimum == 0
    assert cluster.fact().group.minimum == 2
    assert {fact_key(KEY), fact_key(NATIVE)} <= {*cluster.cache.all_facts()}


def test_queues_and_priority_classes_are_facts(cluster: Cluster) -> None:
    cluster.put(PRIORITY_CLASSES, "high", value=1000, preemptionPolicy="Never")
    found = fact_of(cluster.cache, FactKey("priorityclass", "high"), NodeHistory())
    assert isinstance(found, PriorityClassObserved)
    assert (found.value, found.preemption_policy) == (1000, "Never")
    queue = fact_of(cluster.cache, FactKey("queue", "default"), NodeHistory())
    assert isinstance(queue, QueueObserved)
    assert queue.queue.is_open
