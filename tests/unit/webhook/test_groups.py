"""Pods that are in a group, with GPUs and without."""

from typing import Any

import pytest
from tests.unit.webhook.conftest import Cluster, P, new_pod, request_for

from dray.api.names import ALLOCATION_GATE, OWNER_KUBE_SCHEDULER
from dray.messages.facts import PriorityClassObserved
from dray_webhook.decisions.pods import refuse_late_annotations
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.workloads import validate_workload

GROUP = "scheduling.k8s.io/group-name"
OF_VOLCANO = "scheduling.volcano.sh/group-name"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u1", "controller": True}
SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u2", "controller": True}
ASKS = {P + "gang-enabled": "true"}


def owned(pod: dict[str, Any], *owners: dict[str, Any], **labels: str) -> dict[str, Any]:
    pod["metadata"] |= {"ownerReferences": list(owners), "labels": labels}
    return pod


def rider(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod without GPUs."""
    metadata = {"name": "ps", "namespace": "team-a", "annotations": annotations or {}}
    spec = {"schedulerName": "tensor-fusion-scheduler", "containers": [{"name": "app"}], **spec}
    return {"metadata": metadata, "spec": spec}


def test_a_pod_that_names_its_group_is_left_as_it_is(cluster: Cluster, patched: Any) -> None:
    pod = new_pod({GROUP: "train"})
    after = patched(pod, cluster.admit(pod))
    assert after["metadata"]["annotations"][GROUP] == "train"


def test_a_jobs_pod_that_asks_for_it_gets_a_group_for_the_job(
    cluster: Cluster, patched: Any
) -> None:
    pod = owned(new_pod(ASKS), JOB)
    after = patched(pod, cluster.admit(pod))
    assert after["metadata"]["annotations"][GROUP] == "podgroup-u1"


def test_all_jobs_of_a_job_set_have_one_group(cluster: Cluster, patched: Any) -> None:
    pod = owned(new_pod(ASKS), JOB, **{"jobset.sigs.k8s.io/jobset-uid": "set"})
    after = patched(pod, cluster.admit(pod))
    assert after["metadata"]["annotations"][GROUP] == "podgroup-set"


def test_other_owners_must_state_the_number(cluster: Cluster, patched: Any) -> None:
    answer = cluster.admit(owned(new_pod(ASKS), SET))
    assert 'ReplicaSet "rs" does not say how many pods' in answer.message
    pod = owned(new_pod({**ASKS, P + "gang-min-members": "4"}), SET)
    after = patched(pod, cluster.admit(pod))
    assert after["metadata"]["annotations"][GROUP] == "podgroup-u2"


def test_an_owner_whose_uid_can_name_no_group_is_refused(cluster: Cluster) -> None:
    answer = cluster.admit(owned(new_pod(ASKS), JOB | {"uid": "a/b"}))
    assert 'the uid of the owner, Job "job", is "a/b": expected a UID' in answer.message
    label = {"jobset.sigs.k8s.io/jobset-uid": "A_B"}
    answer = cluster.admit(owned(rider(ASKS), JOB, **label))
    assert 'jobset.sigs.k8s.io/jobset-uid is "A_B": expected a UID' in answer.message


def test_a_pod_without_owner_must_name_a_group(cluster: Cluster) -> None:
    assert "the pod has no owner for which a PodGroup could be made" in cluster.errors(ASKS)


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({P + "gang-enabled": "yes"}, 'gang-enabled is "yes": expected "true" or "false"'),
        ({P + "gang-min-members": "0"}, "expected a whole number from 1 to 4096"),
        ({P + "gang-min-members": "10000"}, "expected a whole number from 1 to 4096"),
        ({P + "gang-timeout": "0s"}, "expected a time above zero and up to 30d"),
        ({P + "gang-timeout": "31d"}, "expected a time above zero and up to 30d"),
        ({P + "gang-timeout": "9" * 309 + "s"}, "expected a time above zero and up to 30d"),
        ({P + "gang-timeout": "soon"}, 'gang-timeout is "soon": '),
        ({P + "gang-loss-policy": "cry"}, 'expected "end" or "keep"'),
        ({GROUP: "a", OF_VOLCANO: "b"}, "a pod is in one PodGroup"),
        ({GROUP: "No_Name"}, "expected the name of a PodGroup"),
    ],
)
def test_bad_values_are_refused_with_what_is_expected(
    cluster: Cluster, annotations: dict[str, str], words: str
) -> None:
    assert words in cluster.errors(annotations)
    if P + "gang-enabled" not in annotations:
        answer = cluster.admit(rider(annotations))
        assert not answer.allowed
        assert words in answer.message
        assert answer.message.startswith('pod "ps" can\'t join its group: ')


def test_two_annotations_with_the_same_group_agree(cluster: Cluster) -> None:
    assert cluster.admit(new_pod({GROUP: "a", OF_VOLCANO: "a"})).allowed


def test_a_group_of_kubernetes_and_one_of_volcano_disagree(cluster: Cluster) -> None:
    message = cluster.errors({GROUP: "a"}, schedulingGroup={"podGroupName": "a"})
    assert 'names PodGroup "a" of Kubernetes, and annotation' in message


def test_what_has_no_effect_is_warned_of(cluster: Cluster) -> None:
    answer = cluster.admit(new_pod({P + "gang-timeout": "5m"}))
    assert f'annotation {P}gang-timeout has no effect without {P}gang-enabled: "true"' in (
        answer.warnings
    )


def test_a_timeout_that_no_group_could_meet_is_warned_of(cluster: Cluster) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    for text, warnings in (("1ms", 1), ("5s", 0)):
        pod = new_pod({P + "gang-enabled": "true", P + "gang-timeout": text})
        pod["metadata"]["ownerReferences"] = [owner]
        answer = cluster.admit(pod)
        assert answer.allowed
        assert (
            sum("is less than 5s, and counts as 5s" in one for one in answer.warnings) == warnings
        )


def test_a_pool_of_kube_scheduler_knows_no_groups_of_volcano(cluster: Cluster) -> None:
    cluster.pool("shared", owner=OWNER_KUBE_SCHEDULER)
    cluster.server(version="v1.36.3", allocating_scheduler=True)
    assert "which does not know such groups" in cluster.errors({GROUP: "a"})
    native = new_pod(schedulingGroup={"podGroupName": "a"})
    assert cluster.admit(native).allowed


def test_pods_of_kubernetes_groups_are_bound_by_dray_on_dedicated_nodes(
    cluster: Cluster, patched: Any
) -> None:
    pod = new_pod({P + "gpupool": "dedicated"}, schedulingGroup={"podGroupName": "a"})
    after = patched(pod, cluster.admit(pod))
    assert after["spec"]["schedulerName"] == "tensor-fusion-scheduler"
    assert "schedulingGates" not in after["spec"]


def test_a_pod_without_gpus_waits_for_its_group_at_the_gate(cluster: Cluster, patched: Any) -> None:
    cluster.group("train")
    pod = rider({GROUP: "train"})
    after = patched(pod, cluster.admit(pod))
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert after["spec"]["schedulingGates"] == [{"name": ALLOCATION_GATE}]
    assert after["metadata"]["annotations"][P + "request-id"] == "request-1"
    assert patched(after, cluster.admit(after)) == after, "a second call changes nothing"
    assert refuse_late_annotations(request_for(after)).allowed


def test_a_jobs_pod_without_gpus_joins_the_same_group(cluster: Cluster, patched: Any) -> None:
    pod = owned(rider(ASKS, schedulerName="default-scheduler"), JOB)
    after = patched(pod, cluster.admit(pod))
    assert after["metadata"]["annotations"][GROUP] == "podgroup-u1"
    assert after["spec"]["schedulingGates"] == [{"name": ALLOCATION_GATE}]


def test_a_pod_without_gpus_and_group_is_kube_schedulers(cluster: Cluster, patched: Any) -> None:
    pod = rider()
    after = patched(pod, cluster.admit(pod))
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert "schedulingGates" not in after["spec"]


def test_scheduler_names_are_a_setting(cluster: Cluster, patched: Any) -> None:
    cluster.group("train")
    pod = rider({GROUP: "train"}, schedulerName="volcano")
    assert cluster.admit(pod).patch == (), "Volcano's"
    cluster.rules = Installation(
        "dray-system", scheduler_names=("tensor-fusion-scheduler", "volcano")
    )
    after = patched(pod, cluster.admit(pod))
    assert after["spec"]["schedulerName"] == "default-scheduler"
    gpu = new_pod(schedulerName="volcano")
    assert cluster.admit(gpu).warnings == ()


def test_another_schedulers_pod_with_dray_annotations_is_left_alone(cluster: Cluster) -> None:
    answer = cluster.admit(owned(rider(ASKS, schedulerName="other"), JOB))
    assert answer.allowed
    assert answer.patch == ()


def test_gang_annotations_that_came_late_are_refused(cluster: Cluster) -> None:
    late = rider(ASKS)
    answer = refuse_late_annotations(request_for(late))
    assert not answer.allowed
    assert f"annotation {P}gang-enabled was added by a mutating webhook" in answer.message


def test_a_workload_is_admitted_as_the_owner_of_its_pods(cluster: Cluster) -> None:
    template = new_pod(ASKS)
    job = {"metadata": {"name": "job"}, "spec": {"template": template}}

    def warnings(kind: str, group: str) -> tuple[str, ...]:
        review = {"kind": {"group": group, "version": "v1", "kind": kind}}
        request = request_for(job, **review)
        return validate_workload(request, cluster.view, cluster.rules, cluster.ids).warnings

    assert warnings("Job", "batch") == ()
    assert any("does not say how many pods" in one for one in warnings("Deployment", "apps"))


def with_class(cluster: Cluster, name: str) -> None:
    cluster.view.apply(PriorityClassObserved(revision=1, name=name, value=300))


def test_qos_sets_the_class_and_removes_what_was_filled_before(
    cluster: Cluster, patched: Any
) -> None:
    filled = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    pod = new_pod({P + "qos": "high"}, **filled)
    assert "priorityClassName" not in patched(pod, cluster.admit(pod))["spec"], "there is no class"
    with_class(cluster, "tensor-fusion-high")
    after = patched(pod, cluster.admit(pod))["spec"]
    assert after["priorityClassName"] == "tensor-fusion-high"
    assert not {*filled} & {*after}


def test_a_class_that_the_pod_names_stays(cluster: Cluster, patched: Any) -> None:
    with_class(cluster, "tensor-fusion-high")
    pod = new_pod({P + "qos": "high"}, priorityClassName="mine", priority=7)
    after = patched(pod, cluster.admit(pod))["spec"]
    assert (after["priorityClassName"], after["priority"]) == ("mine", 7)


def test_a_pod_without_qos_gets_no_class(cluster: Cluster, patched: Any) -> None:
    with_class(cluster, "tensor-fusion-medium")
    pod = new_pod()
    assert "priorityClassName" not in patched(pod, cluster.admit(pod))["spec"]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "other"])
def test_a_pod_without_gpus_keeps_no_forged_shape(
    cluster: Any, patched: Any, scheduler: str
) -> None:
    pod = rider({"tensor-fusion.ai/shape": "forged"}, schedulerName=scheduler)
    found = patched(pod, cluster.admit(pod))
    assert "tensor-fusion.ai/shape" not in found["metadata"]["annotations"]
