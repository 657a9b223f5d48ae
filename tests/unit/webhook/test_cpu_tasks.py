"""Pods without GPUs that name a scheduler of dray and a GPUPool."""

import json
from typing import Any

import pytest
from tests.unit.webhook.conftest import Cluster, P, request_for

from dray.api.names import ALLOCATION_GATE, DEDICATED_TAINT, DEVICE_CLASS, OWNER_KUBE_SCHEDULER
from dray.api.pods import Pool
from dray.kube.convert_pods import has_accounting_claim
from dray.messages.facts import PoolObserved
from dray.messages.rpc import Lookup, LookupReply
from dray_webhook.decisions.pods import admit_pod, refuse_late_annotations
from dray_webhook.decisions.pools import Installation

GROUP = "scheduling.k8s.io/group-name"
SCHEDULER = "tensor-fusion-scheduler"


def cpu_task(pool: str = "dedicated", annotations: Any = None, **spec: Any) -> dict[str, Any]:
    named = {P + "gpupool": pool, GROUP: "train", **(annotations or {})}
    metadata = {"name": "ps", "namespace": "team-a", "annotations": named}
    spec = {"schedulerName": SCHEDULER, "containers": [{"name": "app"}], **spec}
    return {"metadata": metadata, "spec": spec}


def test_dray_binds_it_on_dedicated_nodes_and_accounts_for_it(
    cluster: Cluster, patched: Any
) -> None:
    pod = cpu_task()
    answer = cluster.admit(pod)
    after = patched(pod, answer)
    assert after["spec"]["schedulerName"] == SCHEDULER
    assert "schedulingGates" not in after["spec"]
    assert "resourceClaims" not in after["spec"]
    assert [one["key"] for one in after["spec"]["tolerations"]] == [DEDICATED_TAINT]
    assert has_accounting_claim(after)
    shape = json.loads(after["metadata"]["annotations"][P + "shape"])
    labels = {P + "gpupool": "dedicated"}
    assert shape == {"metadata": {"labels": labels}, "spec": {"devices": {}}}
    assert answer.requested is not None
    assert answer.requested.understood["gpus"] == "0"
    assert answer.derive is None, "no template is needed"
    assert "asks for no GPUs" in answer.warnings[0], "amounts may have been forgotten"
    assert patched(after, cluster.admit(after)) == after, "a second call changes nothing"
    assert refuse_late_annotations(request_for(after)).allowed


def test_it_need_not_be_in_a_group(cluster: Cluster, patched: Any) -> None:
    pod = cpu_task(annotations={GROUP: ""})
    assert has_accounting_claim(patched(pod, cluster.admit(pod)))


def test_any_scheduler_name_of_dray_counts(cluster: Cluster, patched: Any) -> None:
    pod = cpu_task(schedulerName="volcano")
    assert not cluster.admit(pod).allowed, "the name is another scheduler's"
    cluster.rules = Installation("dray-system", scheduler_names=("volcano",))
    after = patched(pod, cluster.admit(pod))
    assert after["spec"]["schedulerName"] == SCHEDULER
    assert patched(after, cluster.admit(after)) == after, "a second call changes nothing"


@pytest.mark.parametrize(
    ("pool", "spec", "why"),
    [
        ("shared", {}, "is on shared nodes"),
        ("of-kubernetes", {}, "is owned by kube-scheduler (spec.owner)"),
        (
            "dedicated",
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "the pod has needs that only kube-scheduler reads",
        ),
    ],
)
def test_else_kube_scheduler_places_it_and_it_says_why(
    cluster: Cluster, patched: Any, pool: str, spec: Any, why: str
) -> None:
    foreign = Pool(name="of-kubernetes", uid="9", template="on", owner=OWNER_KUBE_SCHEDULER)
    cluster.view.apply(PoolObserved(revision=1, pool=foreign))
    pod = cpu_task(pool, **spec)
    answer = cluster.admit(pod)
    after = patched(pod, answer)
    assert after["spec"]["schedulingGates"] == [{"name": ALLOCATION_GATE}]
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert P + "gpupool" not in after["metadata"]["annotations"], "it would wait for a claim"
    assert not has_accounting_claim(after)
    (warning,) = answer.warnings
    assert f"{P}gpupool has no effect: kube-scheduler places the pod, because" in warning
    assert why in warning


@pytest.mark.parametrize(
    ("pool", "spec", "why"),
    [
        ("missing", {}, "there is no such GPUPool"),
        ("NO", {}, "expected the name of a GPUPool"),
        ("dedicated", {"nodeName": "n1"}, "expected none, because the scheduler chooses the node"),
    ],
)
def test_what_can_not_be_placed_is_refused(
    cluster: Cluster, pool: str, spec: Any, why: str
) -> None:
    answer = cluster.admit(cpu_task(pool, **spec))
    assert not answer.allowed
    assert answer.message.startswith('pod "ps" can\'t be placed: ')
    assert why in answer.message


def test_a_pool_that_does_not_admit_the_namespace_is_refused(cluster: Cluster) -> None:
    closed = Pool(name="closed", uid="9", dedicated=True, allowed_namespaces=("team-b",))
    cluster.view.apply(PoolObserved(revision=1, pool=closed))
    answer = cluster.admit(cpu_task("closed"))
    assert 'does not admit pods of namespace "team-a"' in answer.message


@pytest.mark.parametrize(
    "more", [{P + "tflops-request": "1"}, {P + "qos": "high"}, {P + "dra-enabled": "true"}]
)
def test_a_pod_that_asks_for_gpus_is_none(cluster: Cluster, more: dict[str, str]) -> None:
    answer = cluster.admit(cpu_task(annotations=more))
    assert not answer.allowed
    assert "can't get its GPUs" in answer.message


def test_a_pod_of_another_scheduler_is_none(cluster: Cluster) -> None:
    assert "can't get its GPUs" in cluster.admit(cpu_task(schedulerName="other")).message


def test_shares_that_nothing_counts_are_taken_away(cluster: Cluster, patched: Any) -> None:
    share = {"tensor-fusion.ai/gpu-share": "1"}
    container = {"name": "app", "resources": {"limits": {**share}, "requests": {**share}}}
    pod = cpu_task(containers=[container])
    (after,) = patched(pod, cluster.admit(pod))["spec"]["containers"]
    assert after["resources"] == {"limits": {}, "requests": {}}


def test_a_forged_shape_is_replaced(cluster: Cluster, patched: Any) -> None:
    pod = cpu_task(annotations={P + "shape": '{"spec":{"devices":{"requests":[{}]}}}'})
    after = patched(pod, cluster.admit(pod))
    assert "requests" not in after["metadata"]["annotations"][P + "shape"]


def test_a_manifest_that_is_applied_again_changes_nothing(cluster: Cluster, patched: Any) -> None:
    for pool in ("dedicated", "shared"):
        manifest = cpu_task(pool)
        admitted = patched(manifest, cluster.admit(manifest))
        merged = admitted["metadata"]["annotations"] | manifest["metadata"]["annotations"]
        again = {**admitted, "metadata": {**admitted["metadata"], "annotations": merged}}
        answer = cluster.admit(again, operation="UPDATE", old=admitted)
        assert patched(again, answer) == admitted


ON_CPU_NODES = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "role", "operator": "Exists"}]}]
    }
}
QUESTION = Lookup(kind="group", name="train", namespace="team-a")


@pytest.fixture
def unmodified(cluster: Cluster) -> Any:
    """A pod of a framework, without annotations of dray, and the answer for it."""
    cluster.rules = Installation(
        "dray-system", scheduler_names=("volcano",), gpu_resources=("nvidia.com/gpu",)
    )
    cluster.pool("dedicated", default=True)

    def answer(
        *resources: str, error: str = "", annotations: Any = None, **spec: Any
    ) -> tuple[Any, Any]:
        pod = cpu_task(annotations=annotations, **{"schedulerName": "volcano", **spec})
        del pod["metadata"]["annotations"][P + "gpupool"]
        found = cluster.admit(pod)
        assert found.unresolved == (QUESTION,)
        replies = {QUESTION: LookupReply(group_resources=resources, error=error)}
        while found.unresolved:
            for one in found.unresolved:
                replies.setdefault(one, LookupReply(pool=cluster.view.pools.get(one.name)))
            view = cluster.view.with_answers(replies)
            found = admit_pod(request_for(pod), view, cluster.rules, cluster.ids)
        return pod, found

    return answer


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpu", f"deviceclass/{DEVICE_CLASS}", f"vram.deviceclass/{DEVICE_CLASS}"],
)
def test_one_of_a_framework_goes_to_the_default_pool_if_its_group_asks_for_gpus(
    cluster: Cluster, patched: Any, unmodified: Any, resource: str
) -> None:
    pod, answer = unmodified("cpu", resource)
    after = patched(pod, answer)
    assert after["spec"]["schedulerName"] == SCHEDULER
    assert after["metadata"]["annotations"][P + "gpupool"] == "dedicated"
    assert has_accounting_claim(after)
    assert patched(after, cluster.admit(after)) == after, "a second call changes nothing"


def test_one_of_a_group_without_gpus_is_kube_schedulers(patched: Any, unmodified: Any) -> None:
    pod, answer = unmodified("cpu", "memory", "example.com/gpu")
    after = patched(pod, answer)
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert after["spec"]["schedulingGates"] == [{"name": ALLOCATION_GATE}]
    assert answer.warnings == ()


@pytest.mark.parametrize(
    ("change", "spec", "why"),
    [
        ({"dedicated": False}, {}, "is on shared nodes"),
        ({"default": False}, {}, "no GPUPool is marked spec.default: true"),
        ({"allowed_namespaces": ("team-b",)}, {}, "does not admit pods of namespace"),
        (
            {},
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "needs that only kube-scheduler reads",
        ),
        ({}, {"nodeSelector": {"role": "cpu"}}, "selects its nodes itself (spec.nodeSelector)"),
        ({}, {"affinity": {"nodeAffinity": ON_CPU_NODES}}, "itself (required node affinity)"),
    ],
)
def test_one_of_a_framework_that_dray_can_not_bind_is_kube_schedulers(
    cluster: Cluster, patched: Any, unmodified: Any, change: Any, spec: Any, why: str
) -> None:
    cluster.pool("dedicated", **change)
    pod, answer = unmodified("nvidia.com/gpu", **spec)
    after = patched(pod, answer)
    assert after["spec"]["schedulerName"] == "default-scheduler"
    (warning,) = answer.warnings
    assert "kube-scheduler places the pod once its group has started, because" in warning
    assert why in warning


def test_one_of_a_framework_may_prefer_nodes(patched: Any, unmodified: Any) -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    pod, answer = unmodified("nvidia.com/gpu", affinity={"nodeAffinity": preferred})
    assert has_accounting_claim(patched(pod, answer))


def test_one_that_names_its_pool_may_select_among_its_nodes(cluster: Cluster, patched: Any) -> None:
    pod = cpu_task(nodeSelector={"role": "cpu"})
    assert has_accounting_claim(patched(pod, cluster.admit(pod)))


def test_while_groups_are_not_known_it_is_kube_schedulers(patched: Any, unmodified: Any) -> None:
    pod, answer = unmodified(error="away")
    assert patched(pod, answer)["spec"]["schedulerName"] == "default-scheduler"
    (warning,) = answer.warnings
    assert 'could not make sure whether PodGroup "train" asks for GPUs: away' in warning


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        ({GROUP: ""}, {}),
        ({GROUP: "", P + "gang-enabled": "true", P + "gang-min-members": "2"}, {}),
        ({GROUP: ""}, {"schedulingGroup": {"podGroupName": "train"}}),
        ({}, {"schedulerName": "default-scheduler"}),
    ],
)
def test_no_group_is_looked_up_for_others(
    cluster: Cluster, unmodified: Any, annotations: Any, spec: Any
) -> None:
    pod = cpu_task(annotations=annotations, **{"schedulerName": "volcano", **spec})
    del pod["metadata"]["annotations"][P + "gpupool"]
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u-1", "controller": True}
    ]
    answer = cluster.admit(pod)
    assert answer.allowed
    assert answer.unresolved == ()
