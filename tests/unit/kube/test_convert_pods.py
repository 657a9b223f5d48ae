"""Pods and nodes as domain values: requests summed as Kubernetes sums them, needs named."""

from typing import Any

import pytest

from dray.api.devices import Taint, Toleration
from dray.api.pods import NodeExpression, PodClaim
from dray.kube.convert import node_from, pod_from, pod_needs, requests_of


def container(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    requests = {name: amount for name, amount in amounts.items() if amount}
    return {"name": "c", "resources": {"requests": requests}, **more}


def sidecar(cpu: str) -> dict[str, Any]:
    return container(cpu, restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "cpu_milli", "memory_bytes"),
    [
        ({"containers": []}, 0, 0),
        ({"containers": [container("500m", "1Gi"), container("1", "1M")]}, 1500, 2**30 + 10**6),
        # A request that is absent is its limit, as the server defaults it.
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000, 0),
        # Init containers run one after another: the largest counts, if it exceeds the sum.
        (
            {
                "containers": [container("1"), container("1")],
                "initContainers": [container("3"), container("2")],
            },
            3000,
            0,
        ),
        (
            {
                "containers": [container("1"), container("1")],
                "initContainers": [container("1500m")],
            },
            2000,
            0,
        ),
        # Restartable init containers stay and add up.
        ({"containers": [container("1")], "initContainers": [sidecar("500m")]}, 1500, 0),
        # … and run together with the later init containers (KEP-753).
        (
            {
                "containers": [container("1")],
                "initContainers": [sidecar("1"), container("5"), sidecar("2"), container("4")],
            },
            7000,
            0,
        ),
        # Pod-level resources override the sum; overhead comes on top.
        (
            {
                "containers": [container("1", "1Gi")],
                "resources": {"requests": {"cpu": "3"}},
                "overhead": {"cpu": "250m", "memory": "64Mi"},
            },
            3250,
            2**30 + 64 * 2**20,
        ),
    ],
)
def test_requests_are_summed_as_kubernetes_does(
    spec: dict[str, Any], cpu_milli: int, memory_bytes: int
) -> None:
    asked = requests_of(spec)
    assert (asked.cpu_milli, asked.memory_bytes) == (cpu_milli, memory_bytes)


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "zone"}


@pytest.mark.parametrize(
    ("spec", "unread"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, ("pod affinity",)),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, ("pod anti-affinity",)),
        ({"affinity": {"podAffinity": {PREFERRED: [{}]}}}, ()),
        (
            {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]},
            ("topology spread",),
        ),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]}, ()),
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {}}]}, ("volume d",)),
        ({"volumes": [{"name": "d", "ephemeral": {}}]}, ("volume d",)),
        ({"volumes": [{"name": "d", "csi": {}}]}, ("volume d",)),
        (
            {
                "volumes": [
                    {"name": f"v{n}", kind: {}}
                    for n, kind in enumerate(
                        (
                            "configMap",
                            "secret",
                            "emptyDir",
                            "projected",
                            "hostPath",
                            "downwardAPI",
                        )
                    )
                ]
            },
            (),
        ),
        (
            {"resourceClaims": [{"name": "tensor-fusion-gpu-claim"}, {"name": "nic"}]},
            ("resource claim nic",),
        ),
        ({"runtimeClassName": "gvisor", "overhead": {"cpu": "1"}}, ()),
        ({"schedulingGroup": {"podGroupName": "ring"}}, ()),
        (
            {"workloadRef": {"name": "ring", "podGroup": "a"}},
            ("pod group of Kubernetes 1.35",),
        ),
        ({"hostUsers": False}, ()),
        (
            {"hostUsers": False, "hostNetwork": True},
            ("user namespace in the host's network",),
        ),
        (
            {"containers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            ("restart of all containers",),
        ),
    ],
)
def test_needs_that_the_node_fit_does_not_read_are_named(
    spec: dict[str, Any], unread: tuple[str, ...]
) -> None:
    assert pod_needs(spec).unread == unread


def test_node_selection_is_read() -> None:
    terms = [
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
        },
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
    ]
    needs = pod_needs(
        {
            "nodeSelector": {"disk": "ssd"},
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: [{"weight": 1}]}
            },
            "tolerations": [{"key": "a", "operator": "Exists"}, {"operator": "Exists"}],
        }
    )
    assert needs.node_selector == {"disk": "ssd"}
    assert needs.node_terms == (
        (
            NodeExpression("zone", "In", ("a", "b")),
            NodeExpression("metadata.name", "In", ("n",), is_field=True),
        ),
        (NodeExpression("gpu", "Exists"),),
    )
    assert needs.tolerations == (Toleration("a", "Exists"), Toleration("", "Exists"))
    assert needs.unread == ()


def test_a_pod_is_read() -> None:
    pod = pod_from(
        {
            "metadata": {
                "uid": "u",
                "namespace": "n",
                "name": "p",
                "resourceVersion": "42",
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "annotations": {
                    "tensor-fusion.ai/gpupool": "pool",
                    "tensor-fusion.ai/request-id": "r",
                    "tensor-fusion.ai/traceparent": "00-1",
                },
            },
            "spec": {
                "schedulerName": "s",
                "schedulingGates": [{"name": "tensor-fusion.ai/allocation"}, {"name": "other"}],
                "priority": 7,
                "containers": [container("1")],
                "resourceClaims": [
                    {"name": "tensor-fusion-gpu-claim", "resourceClaimTemplateName": "t-1"},
                    {"name": "nic", "resourceClaimName": "mine"},
                ],
            },
            "status": {
                "phase": "Running",
                "resourceClaimStatuses": [
                    {"name": "tensor-fusion-gpu-claim", "resourceClaimName": "p-claim-x"}
                ],
            },
        }
    )
    assert (pod.uid, pod.namespace, pod.name, pod.resource_version) == ("u", "n", "p", 42)
    assert (pod.pool, pod.scheduler, pod.priority, pod.phase) == ("pool", "s", 7, "Running")
    assert pod.gated
    assert pod.other_gates
    assert not pod.deleting
    assert pod.needs.cpu_milli == 1000
    assert pod.claims == (
        PodClaim("tensor-fusion-gpu-claim", "p-claim-x", "t-1"),
        PodClaim("nic", "mine", ""),
    )
    assert (pod.request_id, pod.traceparent) == ("r", "00-1")
    assert pod.created_unix_s == 1_767_323_045.0


def test_a_plain_pod_has_the_default_scheduler_and_nothing_else() -> None:
    pod = pod_from(
        {"metadata": {"uid": "u", "namespace": "n", "name": "p"}, "spec": {"containers": []}}
    )
    assert (pod.pool, pod.scheduler, pod.node, pod.phase) == (
        "",
        "default-scheduler",
        "",
        "Pending",
    )
    assert not pod.gated
    assert not pod.other_gates
    assert pod.claims == ()


def test_a_node_is_read() -> None:
    node = node_from(
        {
            "metadata": {"name": "n", "uid": "u", "labels": {"tensor-fusion.ai/qos": "high"}},
            "spec": {
                "unschedulable": True,
                "taints": [
                    {"key": "a", "value": "b", "effect": "NoSchedule"},
                    {"key": "c", "effect": "NoExecute"},
                ],
            },
            "status": {
                "capacity": {"cpu": "8"},
                "allocatable": {
                    "cpu": "7900m",
                    "memory": "31Gi",
                    "pods": "50",
                    "ephemeral-storage": "1Gi",
                    "nvidia.com/gpu": "8",
                    "hugepages-1Gi": "0",
                },
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            },
        }
    )
    assert (node.cpu_milli, node.memory_bytes, node.pods) == (7900, 31 * 2**30, 50)
    assert node.resources == {"ephemeral-storage": 2**30, "nvidia.com/gpu": 8}
    assert node.taints == (Taint("a", "b"), Taint("c", "", "NoExecute"))
    assert (node.qos, node.pool, node.unschedulable, node.ready) == ("high", "", True, False)


def test_a_node_has_what_it_says_and_no_more() -> None:
    node = node_from({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}})
    assert (node.cpu_milli, node.pods, node.qos, node.ready) == (2000, 0, "medium", True)
    assert node.resources == {}
