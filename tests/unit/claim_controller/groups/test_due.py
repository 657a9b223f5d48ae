"""What is due for the pods of a group: gates that go, and groups that end."""

from typing import Any

import pytest
from tests.unit.claim_controller.groups.cluster import KEY, NATIVE, Cluster

from dray.api.names import GPUPOOL, SHAPE
from dray.kube.ports import JOB_SETS, JOBS, Resource
from dray_claim_controller.groups.decisions.rules import (
    DueForGroup,
    GroupActions,
    MissingGroups,
    controller_of,
    owned_group,
    owner_with_pod_count,
)

NOTHING = GroupActions()
HAS_RUN = {"phase": "Unknown", "conditions": [{"type": "Scheduled", "status": "True"}]}
NATIVE_HAS_RUN = {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.queue()
    made.group()
    return made


def due(cluster: Cluster, below_s: float = 0.0, **fields: Any) -> GroupActions:
    terms = {"group": KEY, "timeout_s": 300.0, "grace_s": 60.0, **fields}
    return DueForGroup(below_s=below_s, **terms).answer(cluster.cache)


def rider(cluster: Cluster, name: str, **fields: Any) -> None:
    cluster.pod(name, without=(GPUPOOL, SHAPE), gated=True, **fields)


def test_pods_without_devices_start_with_their_group(cluster: Cluster) -> None:
    rider(cluster, "ps")
    cluster.pod("w", held=False)
    assert due(cluster) == NOTHING
    cluster.pod("w", held=True, nodeName="n1")
    assert due(cluster).ungate == ("pods-ps",)


def test_a_pod_that_another_gate_holds_is_left_and_does_not_count(cluster: Cluster) -> None:
    gates = [{"name": "tensor-fusion.ai/allocation"}, {"name": "kueue.x-k8s.io/admission"}]
    rider(cluster, "ps", schedulingGates=gates)
    cluster.pod("w", held=True, nodeName="n1")
    assert due(cluster) == GroupActions(is_below=True)


def test_a_group_that_holds_nothing_has_no_deadline(cluster: Cluster) -> None:
    cluster.pod("a", held=False)
    cluster.pod("b", held=False)
    assert due(cluster, below_s=1e6) == NOTHING


def test_past_the_deadline_bound_pods_are_evicted_and_others_taken_back(cluster: Cluster) -> None:
    cluster.group(minMember=3)
    cluster.pod("bound", held=True, nodeName="n1")
    cluster.pod("ready", held=True)
    cluster.pod("waits", held=False)
    assert due(cluster, below_s=299.0) == GroupActions(is_below=True)
    ended = due(cluster, below_s=300.0)
    assert (ended.evict, ended.roll_back) == (("pods-bound",), ("pods-ready",))
    executed = due(cluster, below_s=300.0, executing=("pods-ready",))
    assert executed.roll_back == (), "its execution gives it back"


def test_the_groups_own_timeout_counts(cluster: Cluster) -> None:
    cluster.group(metadata={"annotations": {"tensor-fusion.ai/gang-timeout": "10s"}})
    cluster.pod("a", held=True, nodeName="n1")
    assert due(cluster, below_s=10.0).evict == ("pods-a",)


def test_after_a_loss_the_grace_period_counts(cluster: Cluster) -> None:
    cluster.group(status=HAS_RUN)
    cluster.pod("a", held=True, nodeName="n1")
    cluster.pod("b", nodeName="n1", phase="Failed")
    assert due(cluster, below_s=59.0) == GroupActions(is_below=True)
    assert due(cluster, below_s=60.0).evict == ("pods-a",)


def test_a_group_may_stay_below_its_minimum_after_a_loss(cluster: Cluster) -> None:
    keep = {"annotations": {"tensor-fusion.ai/gang-loss-policy": "keep"}}
    cluster.group(status=HAS_RUN, metadata=keep)
    cluster.pod("a", held=True, nodeName="n1")
    assert due(cluster, below_s=1e6) == GroupActions(is_below=True)
    cluster.group(metadata=keep)
    assert due(cluster, below_s=1e6).evict == ("pods-a",), "it has never run"


def test_a_native_group_stays_unless_it_is_disrupted_as_a_whole(cluster: Cluster) -> None:
    native = {"schedulingGroup": {"podGroupName": "train"}}
    obj = cluster.native(status=NATIVE_HAS_RUN)
    cluster.pod("a", held=True, nodeName="n1", **native)
    assert due(cluster, below_s=1e6, group=NATIVE).evict == ()
    obj["spec"]["disruptionMode"] = {"all": {}}
    cluster.put_again(obj)
    assert due(cluster, below_s=1e6, group=NATIVE).evict == ("pods-a",)


def test_gates_of_a_native_groups_pods_are_removed_together(cluster: Cluster) -> None:
    native = {"schedulingGroup": {"podGroupName": "train"}}
    cluster.native()
    cluster.pod("a", held=True, gated=False, **native)
    cluster.pod("b", held=True, gated=True, **native)
    cluster.pod("extra", held=False, gated=True, **native)
    assert due(cluster, group=NATIVE) == GroupActions(is_below=True)
    cluster.pod("b", held=True, gated=False, **native)
    assert due(cluster, group=NATIVE).ungate == ("pods-extra",)


def test_extras_of_a_volcano_group_keep_their_gates(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.pod(name, held=True, gated=False)
    cluster.pod("extra", held=False, gated=True)
    assert due(cluster).ungate == ()


def test_pods_that_kube_scheduler_does_not_bind_end_the_group_at_the_deadline(
    cluster: Cluster,
) -> None:
    cluster.pod("bound", held=True, gated=False, nodeName="n1")
    cluster.pod("unbound", held=True, gated=False)
    assert due(cluster, below_s=299.0) == GroupActions(is_below=True)
    ended = due(cluster, below_s=300.0)
    assert (ended.evict, ended.roll_back) == (("pods-bound", "pods-unbound"), ())
    cluster.pod("unbound", held=True, gated=False, nodeName="n1")
    assert due(cluster, below_s=300.0) == NOTHING


def test_a_pod_without_devices_that_is_not_bound_ends_the_group_at_the_deadline(
    cluster: Cluster,
) -> None:
    rider(cluster, "ps")
    cluster.pod("w", held=True, nodeName="n1")
    assert due(cluster) == GroupActions(ungate=("pods-ps",), is_below=True)
    cluster.pod("ps", without=(GPUPOOL, SHAPE), gated=False)
    assert due(cluster, below_s=300.0).evict == ("pods-ps", "pods-w")


def test_pods_without_devices_alone_have_no_deadline(cluster: Cluster) -> None:
    cluster.pod("a", without=(GPUPOOL, SHAPE), gated=False, nodeName="n1")
    cluster.pod("b", without=(GPUPOOL, SHAPE), gated=False)
    assert due(cluster, below_s=1e6) == NOTHING


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u1", "controller": True}


def test_a_group_is_made_for_the_owner_of_pods_that_ask_for_it(cluster: Cluster) -> None:
    named = {"scheduling.k8s.io/group-name": "podgroup-u1"}
    cluster.pod("silent", annotations=named)
    assert MissingGroups().answer(cluster.cache) == ()
    asks = named | {
        "tensor-fusion.ai/gang-enabled": "true",
        "tensor-fusion.ai/gang-timeout": "1m",
        "scheduling.volcano.sh/queue-name": "research",
    }
    pod = cluster.pod("asks", annotations=asks, metadata={"ownerReferences": [OWNER]})
    ((key, uid),) = MissingGroups().answer(cluster.cache)
    assert (key.name, uid) == ("podgroup-u1", "pods-asks")
    pod["spec"]["priorityClassName"] = "high"
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "uid": "u1"},
        "spec": {"parallelism": 8, "completions": 6},
    }
    group = owned_group(pod, key, job)
    assert group["spec"] == {
        "minMember": 6,
        "priorityClassName": "high",
        "queue": "research",
    }
    assert group["metadata"]["annotations"] == {"tensor-fusion.ai/gang-timeout": "1m"}
    (owner,) = group["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u1"}


def test_the_pods_of_a_job_set_are_one_group(cluster: Cluster) -> None:
    pod = cluster.pod("p")
    (key,) = cluster.cache.group_members.groups()
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "uid": "u2"},
        "spec": {
            "replicatedJobs": [
                {"name": "ps", "template": {"spec": {}}},
                {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4}}},
            ]
        },
    }
    assert owned_group(pod, key, job_set)["spec"]["minMember"] == 1 + 8
    pod["metadata"]["annotations"]["tensor-fusion.ai/gang-min-members"] = "3"
    assert owned_group(pod, key, job_set)["spec"]["minMember"] == 3


def test_an_owner_without_such_fields_is_a_reference(cluster: Cluster) -> None:
    annotations = {"tensor-fusion.ai/gang-min-members": "2"}
    pod = cluster.pod("p", annotations=annotations, metadata={"ownerReferences": [OWNER]})
    (key,) = cluster.cache.group_members.groups()
    reference = controller_of(pod)
    assert reference is not None
    assert owned_group(pod, key, reference)["spec"]["minMember"] == 2


@pytest.mark.parametrize(
    ("api_version", "kind", "resource"),
    [
        ("batch/v1", "Job", JOBS),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", JOB_SETS),
        ("batch.volcano.sh/v1alpha1", "Job", None),
        ("v1", "Job", None),
        ("apps/v1", "ReplicaSet", None),
    ],
)
def test_only_jobs_and_job_sets_of_kubernetes_are_asked_for_their_number_of_pods(
    api_version: str, kind: str, resource: Resource | None
) -> None:
    assert owner_with_pod_count({"apiVersion": api_version, "kind": kind}) is resource
