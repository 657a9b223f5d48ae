"""The status of PodGroups and Queues."""

from typing import Any

import pytest
from tests.unit.claim_controller.groups.cluster import KEY, NATIVE, Cluster

from dray.api.groups import VOLCANO
from dray.api.pods import GroupKey
from dray.kube.ports import POD_GROUPS, PODS, PRIORITY_CLASSES, QUEUES, Deleted
from dray_claim_controller.cache.group_members import fact_key
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.snapshot import restore_snapshot, take_snapshot
from dray_claim_controller.groups.decisions.rules import GroupStatus, QueueStatuses

NOW = 1_700_000_000.0


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.queue()
    made.group()
    return made


def write(cluster: Cluster, waiting: str = "", at: float = NOW) -> Any:
    """The group's status after it was written, if there was news."""
    before = cluster.cache.group(KEY)
    assert before is not None
    status = GroupStatus(group=KEY, waiting=waiting, now_unix_s=at).answer(cluster.cache)
    if status is not None:
        cluster.put(POD_GROUPS, "train", "team", spec=before["spec"], status=status)
    return status


def condition(status: Any, kind: str) -> Any:
    return next((one for one in status["conditions"] if one["type"] == kind), None)


def test_a_group_without_pods_is_in_the_queue(cluster: Cluster) -> None:
    assert write(cluster)["phase"] == "Inqueue"


def test_a_group_in_a_closed_queue_is_pending(cluster: Cluster) -> None:
    cluster.queue(state="Closed")
    cluster.pod("p1")
    status = write(cluster)
    assert status["phase"] == "Pending"
    assert "Queue default is Closed" in condition(status, "Unschedulable")["message"]


def test_too_few_pods_are_counted_and_named(cluster: Cluster) -> None:
    cluster.pod("p1", held=False)
    status = write(cluster)
    assert (status["phase"], status["pending"], status["running"]) == ("Inqueue", 1, 0)
    found = condition(status, "Unschedulable")
    assert (found["reason"], found["status"]) == ("NotEnoughTasks", "True")
    assert found["message"] == "not enough pods: 1 of 2 pods (minMember)"


def test_a_task_without_enough_pods_has_a_reason_of_its_own(cluster: Cluster) -> None:
    cluster.group(minTaskMember={"ps": 1, "worker": 1})
    for name in ("p1", "p2"):
        cluster.pod(name, annotations={"volcano.sh/task-spec": "worker"})
    found = condition(write(cluster), "Unschedulable")
    assert found["reason"] == "NotEnoughPodsOfTask"
    assert "0 of 1 pods of task ps (minTaskMember)" in found["message"]


def test_the_reasons_of_the_log_are_the_message(cluster: Cluster) -> None:
    for name in ("p1", "p2"):
        cluster.pod(name, held=False)
    found = condition(write(cluster, waiting="only 1 of 2 pods fit"), "Unschedulable")
    assert (found["reason"], found["message"]) == ("NotEnoughResources", "only 1 of 2 pods fit")


def test_a_group_goes_through_volcanos_phases(cluster: Cluster) -> None:
    phases = [write(cluster)["phase"]]
    for name in ("p1", "p2"):
        cluster.pod(name, held=True, nodeName="n1", phase="Running")
        phases.append(write(cluster)["phase"])
    cluster.pod("p2", held=True, nodeName="n1", phase="Succeeded")
    phases.append(write(cluster)["phase"])
    cluster.pod("p1", held=True, nodeName="n1", phase="Succeeded")
    phases.append(write(cluster)["phase"])
    assert phases == ["Inqueue", "Unknown", "Running", "Running", "Completed"]


def test_a_lost_member_makes_the_phase_unknown_and_then_pending(cluster: Cluster) -> None:
    for name in ("p1", "p2"):
        cluster.pod(name, held=True, nodeName="n1", phase="Running")
    assert write(cluster)["phase"] == "Running"
    cluster.pod("p2", phase="Failed", nodeName="n1")
    status = write(cluster)
    assert (status["phase"], status["failed"]) == ("Unknown", 1)
    assert condition(status, "Scheduled")["status"] == "True", "it has run"
    cluster.pod("p1", phase="Failed", nodeName="n1")
    assert write(cluster)["phase"] == "Completed", "as Volcano: all have ended"


def test_conditions_keep_their_time_while_nothing_changes(cluster: Cluster) -> None:
    cluster.pod("p1", held=False)
    first = condition(write(cluster), "Unschedulable")
    assert write(cluster, at=NOW + 60) is None
    cluster.pod("p2", held=False)
    later = condition(write(cluster, "full", at=NOW + 60), "Unschedulable")
    assert later["lastTransitionTime"] > first["lastTransitionTime"]
    assert later["transitionID"] != first["transitionID"]


def test_shared_nodes_are_best_effort_and_dedicated_ones_are_not(cluster: Cluster) -> None:
    for name in ("p1", "p2"):
        cluster.pod(name, held=True, nodeName="n1", phase="Running")
    assert condition(write(cluster), "Scheduled")["message"] == ""
    cluster.pod("p1", held=True, nodeName="n1", phase="Running", gated=False)
    assert condition(write(cluster), "Scheduled")["message"].startswith("best effort: ")


@pytest.mark.parametrize(
    ("gated", "words"),
    [
        (False, "best effort: kube-scheduler binds"),
        (None, "if this is still so at the deadline, all are evicted"),
    ],
)
def test_a_group_runs_once_enough_pods_are_bound(
    cluster: Cluster, gated: bool | None, words: str
) -> None:
    cluster.pod("p1", held=True, nodeName="n1", phase="Running", gated=gated)
    cluster.pod("p2", held=True, gated=gated)
    status = write(cluster)
    assert status["phase"] == "Unknown"
    assert condition(status, "Scheduled") is None
    head = "enough pods have their devices, but only 1 of 2 pods (minMember) are bound; "
    assert condition(status, "Unschedulable")["message"].startswith(head + words)
    cluster.pod("p2", held=True, nodeName="n1", gated=gated)
    assert write(cluster)["phase"] == "Running"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"networkTopology": {"mode": "hard"}}, "spec.networkTopology"),
        (
            {"subGroupPolicy": [{"name": "s", "networkTopology": {"mode": "soft"}}]},
            "spec.subGroupPolicy[].networkTopology",
        ),
    ],
)
def test_fields_that_are_stored_only_are_named(cluster: Cluster, spec: Any, field: str) -> None:
    cluster.group(**spec)
    found = condition(write(cluster), "NotHonored")
    assert found["message"] == f"dray stores {field} but does not act on it yet"


def test_a_native_group_has_kubernetes_condition_which_stays_true(cluster: Cluster) -> None:
    cluster.native()
    native = {"schedulingGroup": {"podGroupName": "train"}}

    def status() -> Any:
        return GroupStatus(group=NATIVE, waiting="full", now_unix_s=NOW).answer(cluster.cache)

    assert status() is None, "without pods there is nothing to say"
    for name in ("p1", "p2"):
        cluster.pod(name, held=False, **native)
    (found,) = status()["conditions"]
    assert (found["type"], found["status"]) == ("PodGroupInitiallyScheduled", "False")
    assert (found["reason"], found["message"]) == ("Unschedulable", "full")
    cluster.native(status={"conditions": [found]})
    assert status() is None
    for name in ("p1", "p2"):
        cluster.pod(name, held=True, nodeName="n1", **native)
    (found,) = status()["conditions"]
    assert (found["status"], found["reason"]) == ("True", "Scheduled")
    cluster.native(status={"conditions": [found]})
    cluster.pod("p2", phase="Failed", nodeName="n1", **native)
    assert status() is None


def test_fields_of_a_native_group_that_are_stored_only_are_named(cluster: Cluster) -> None:
    group = cluster.native()
    topology = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    cluster.put_again(group | {"spec": group["spec"] | topology})
    cluster.pod("p1", held=False, schedulingGroup={"podGroupName": "train"})
    rule = GroupStatus(group=NATIVE, waiting="", now_unix_s=NOW)
    status = rule.answer(cluster.cache)
    assert condition(status, "PodGroupInitiallyScheduled")["status"] == "False"
    assert condition(status, "NotHonored")["message"] == (
        "dray stores spec.schedulingConstraints but does not act on it yet"
    )
    cluster.put_again(group | {"spec": group["spec"] | topology, "status": status})
    assert rule.answer(cluster.cache) is None


def test_a_native_group_of_kube_scheduler_is_left_alone(cluster: Cluster) -> None:
    cluster.native()
    cluster.pod("p1", held=False, gated=True, schedulingGroup={"podGroupName": "train"})
    assert GroupStatus(group=NATIVE, waiting="", now_unix_s=NOW).answer(cluster.cache) is None


def queues(cluster: Cluster, *, acts: bool = True) -> Any:
    return QueueStatuses(acts_for_volcano=acts).answer(cluster.cache)


def test_a_queue_counts_its_groups_by_phase(cluster: Cluster) -> None:
    write(cluster)
    (status,) = queues(cluster).values()
    assert (status["state"], status["inqueue"], status["pending"]) == ("Open", 1, 0)
    cluster.put(QUEUES, "default", status=status)
    assert queues(cluster) == {}
    cluster.pod("p1", held=True, nodeName="n1")
    assert queues(cluster)["default"]["allocated"] == {"pods": "1"}


def test_a_queue_that_is_closing_is_closed_with_its_last_group(cluster: Cluster) -> None:
    cluster.queue(state="Closing")
    assert queues(cluster)["default"]["state"] == "Closing"
    cluster.put(QUEUES, "empty", status={"state": "Closing"})
    assert queues(cluster)["empty"]["state"] == "Closed"


def test_shares_of_a_queue_are_named_as_stored_only(cluster: Cluster) -> None:
    cluster.put(QUEUES, "q", spec={"weight": 2, "capability": {"cpu": "1"}})
    (found,) = queues(cluster)["q"]["conditions"]
    assert found["message"] == (
        "dray stores spec.capability, spec.weight but does not act on it yet"
    )


def test_the_default_queue_is_made_where_a_group_needs_it_or_volcano_is_absent() -> None:
    cluster = Cluster()
    assert queues(cluster, acts=False) == {}
    assert queues(cluster) == {"default": {}}
    cluster.group()
    assert queues(cluster, acts=False) == {"default": {}}


def test_queues_are_volcanos_where_it_runs(cluster: Cluster) -> None:
    write(cluster)
    assert queues(cluster, acts=False) == {}


def test_counts_of_a_queue_follow_its_groups_and_their_pods(cluster: Cluster) -> None:
    cluster.queue()
    cluster.queue("other")
    rule = QueueStatuses(acts_for_volcano=True)
    rule.answer(cluster.cache)
    group = cluster.group()
    bound = cluster.pod("p0", nodeName="n1")
    cluster.pod("p1")
    status = rule.answer(cluster.cache)["default"]
    assert (status["pending"], status["allocated"]) == (1, {"pods": "1"})
    cluster.group(queue="other")
    status = rule.answer(cluster.cache)["other"]
    assert (status["pending"], status["allocated"]) == (1, {"pods": "1"})
    assert cluster.cache.queue_counts().phases == {"other": {"pending": 1}}
    cluster.cache.apply(PODS, Deleted(bound))
    assert rule.answer(cluster.cache)["other"]["allocated"] == {"pods": "0"}
    cluster.cache.apply(POD_GROUPS, Deleted(group))
    assert cluster.cache.queue_counts().phases == {}
    assert restored(cluster).queue_counts().phases == {}


def test_only_groups_that_changed_are_counted_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.queue()
    for number in range(20):
        cluster.put(POD_GROUPS, f"g{number}", "team", spec={"minMember": 1})
    cluster.cache.queue_counts()
    counted: list[GroupKey] = []
    share = ObjectCache._queue_share
    monkeypatch.setattr(
        ObjectCache, "_queue_share", lambda cache, key: counted.append(key) or share(cache, key)
    )
    cluster.pod("p0", nodeName="n1", annotations={"scheduling.k8s.io/group-name": "g7"})
    QueueStatuses(acts_for_volcano=True).answer(cluster.cache)
    assert [key.name for key in counted] == ["g7"]


@pytest.mark.parametrize("kind", [QUEUES, PRIORITY_CLASSES])
def test_a_queue_and_a_class_concern_the_groups_that_name_them_alone(
    cluster: Cluster, kind: Any
) -> None:
    for number in range(20):
        spec = {"minMember": 1, "queue": f"q{number}", "priorityClassName": f"q{number}"}
        cluster.put(POD_GROUPS, f"g{number}", "team", spec=spec)
    for cache in (cluster.cache, restored(cluster)):
        cluster.cache = cache
        cache.take_dirty()
        cluster.put(kind, "q7", value=5, status={"state": "Closed"})
        dirty = [key.identity for key, _ in cache.take_dirty() if key.kind == "group"]
        assert dirty == [fact_key(GroupKey(VOLCANO, "team", "g7")).identity]


def restored(cluster: Cluster) -> ObjectCache:
    return restore_snapshot(take_snapshot(cluster.cache))
