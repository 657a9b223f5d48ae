"""The sandbox's API server, scheduler and controllers as processes: as nasty as the real ones."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.controlplane.waiting import until

from dray.kube.api import connect
from dray.kube.ports import (
    CLAIMS,
    NODES,
    PODS,
    TEMPLATES,
    Kube,
    NotFoundError,
    Object,
    RefusedError,
)
from dray_sandbox.access import Endpoint, make_credentials
from dray_sandbox.paths import checkout
from dray_sandbox.processes import Runner
from dray_sandbox.standins import start_sandbox

TEMPLATE: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "tpl", "namespace": "default"},
    "spec": {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    },
}


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Endpoint]:
    runner = Runner(tmp_path / "logs")
    crds = checkout() / "deploy" / "helm" / "dray" / "crds"
    try:
        yield await start_sandbox(
            runner, tmp_path, make_credentials(tmp_path / "access"), context="test", crds=crds
        )
    finally:
        await runner.stop_all()


@pytest.fixture
async def kube(endpoint: Endpoint) -> AsyncIterator[Kube]:
    kube = await connect(str(endpoint.admin_kubeconfig), user_agent="test")
    yield kube
    await kube.close()


async def add_node(kube: Kube, name: str, cpu: str) -> None:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    await kube.create(NODES, node)
    status = {"status": {"allocatable": allocatable, "capacity": allocatable}}
    await kube.patch(NODES, name, status, subresource="status")
    # What a kubelet's first report does to a new node's not-ready taint.
    await kube.patch(NODES, name, {"spec": {"taints": None}})


def pod(name: str, cpu: str) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    references = [{"name": "gpu", "resourceClaimTemplateName": "tpl"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "resourceClaims": references},
    }


def condition(pod: Object) -> Object:
    conditions = pod["status"].get("conditions") or []
    found: Object = next((c for c in conditions if c["type"] == "PodScheduled"), {})
    return found


async def allocate(kube: Kube, name: str, node: str) -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    result = {"request": "r", "driver": "d.example.com", "pool": node, "device": "gpu-0"}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }
    finalizers = ["resource.kubernetes.io/delete-protection"]
    await kube.patch(CLAIMS, name, {"metadata": {"finalizers": finalizers}}, "default")
    patch = {"status": {"allocation": allocation}}
    await kube.patch(CLAIMS, name, patch, "default", subresource="status")


async def claim_name(kube: Kube, pod_name: str) -> str:
    made = await until(kube, PODS, pod_name, lambda obj: obj["status"].get("resourceClaimStatuses"))
    return str(made["status"]["resourceClaimStatuses"][0]["resourceClaimName"])


async def test_a_pods_way_from_its_late_template_to_its_node_and_away(kube: Kube) -> None:
    await add_node(kube, "small", "1")
    await add_node(kube, "large", "8")
    await kube.create(PODS, pod("mine", "2"), "default")
    await kube.create(TEMPLATES, TEMPLATE, "default")
    claim = await claim_name(kube, "mine")
    refused = await until(kube, PODS, "mine", lambda obj: condition(obj).get("reason"))
    assert condition(refused)["reason"] == "Unschedulable"
    assert "cannot allocate all claims" in condition(refused)["message"]

    # Allocated where the pod has no room, while another node gets as far as the claims.
    await allocate(kube, claim, "small")
    await until(kube, CLAIMS, claim, lambda obj: "allocation" not in obj.get("status", {}))

    await allocate(kube, claim, "large")
    bound = await until(kube, PODS, "mine", lambda obj: obj["spec"].get("nodeName"))
    assert bound["spec"]["nodeName"] == "large"
    reserved = (await kube.get(CLAIMS, claim, "default"))["status"]["reservedFor"]
    assert [consumer["uid"] for consumer in reserved] == [bound["metadata"]["uid"]]

    await kube.delete(PODS, "mine", "default", grace_period_s=0)
    with pytest.raises(NotFoundError):
        await until(kube, CLAIMS, claim, lambda obj: False)


async def test_an_unknown_token_is_refused(endpoint: Endpoint, tmp_path: Path) -> None:
    stolen = tmp_path / "stolen"
    token = endpoint.tokens["dray-admin"]
    stolen.write_text(endpoint.admin_kubeconfig.read_text().replace(token, "guess"))
    kube = await connect(str(stolen), user_agent="test")
    try:
        with pytest.raises(RefusedError) as refusal:
            await kube.list(PODS)
        assert refusal.value.status == 401
    finally:
        await kube.close()
