"""``dray doctor`` checks what dray needs of nodes, of Kubernetes and of certificates."""

import base64
import datetime
from typing import Any

import pytest

from dray.api.names import DRIVER, DRIVER_VERSION_LABEL
from dray.kube.memory import MemoryKube
from dray.kube.ports import NODES, PODS, SLICES, Object, RefusedError
from dray.messages.facts import ClusterObserved
from dray.runtime.certificates import issue
from dray_cli.doctor import certificates, nodes
from dray_cli.doctor.capabilities import capabilities
from dray_cli.operator_secret import MUTATING_WEBHOOKS, SECRETS

AT = "2026-01-01T00:00:00Z"
NOW = datetime.datetime.fromisoformat(AT)


def node(
    name: str, kubelet: str = "v1.36.3", runtime: str = "containerd://2.1.4", **ready: str
) -> Object:
    info = {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
    conditions = [{"type": "Ready", **ready}] if ready else []
    return {"metadata": {"name": name}, "status": {"conditions": conditions, "nodeInfo": info}}


def test_nodes_that_are_not_ready_are_named_with_their_time() -> None:
    three = [
        node("n1", status="True", lastTransitionTime=AT),
        node("n2", status="Unknown", lastTransitionTime=AT),
        node("n3"),
    ]
    found = nodes.ready_finding(three, NOW.timestamp() + 8)

    assert found.grade == "lesser"
    assert found.text.startswith("2 of 3 nodes not: n2 since 8 s, n3; no pod is placed there.")
    assert nodes.ready_finding(three[:1], 0.0).text == "1 node"


def test_kubelets_before_dra_are_named() -> None:
    found = nodes.kubelets_finding([node("n1"), node("n2", "v1.33.4"), node("n3", "v1.33.4")])

    assert (found.grade, found.text) == (
        "broken",
        "v1.33.4 on 2 nodes, v1.36.3 on 1 node: n2, n3 are older than 1.34 and can't prepare "
        "devices",
    )
    assert nodes.kubelets_finding([node("n1"), node("n2", "v1.34.0-rc.1")]).grade == "ok"


@pytest.mark.parametrize(
    ("runtime", "grade"),
    [
        ("containerd://2.1.4", "ok"),
        ("containerd://v2.0.0-rc.1", "ok"),
        ("containerd://1.7.28", "lesser"),
        ("containerd://1.6.33", "broken"),
        ("cri-o://1.34.1", "ok"),
        ("cri-o://1.27.0", "lesser"),
        ("cri-o://1.22.0", "broken"),
        ("sandbox://0", "ok"),
        ("docker://28.0.1", "unseen"),
        ("", "unseen"),
    ],
)
def test_runtimes_are_judged_by_what_they_know_of_cdi(runtime: str, grade: str) -> None:
    found = nodes.runtimes_finding([node("n1", runtime=runtime)])

    assert found.grade == grade
    assert (runtime or "unknown") in found.text


async def test_nodes_with_gpus_are_checked_with_their_drivers() -> None:
    kube = MemoryKube()
    await kube.create(NODES, {"metadata": {"name": "plain"}})
    assert await nodes.gpu_nodes(kube) == []
    await kube.create(NODES, {"metadata": {"name": "n1"}})
    for name, of, version in (("a", "n1", "550.54.15"), ("b", "n2", "")):
        labels = {DRIVER_VERSION_LABEL: version} if version else {}
        pool = {"name": of, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": of, "pool": pool}
        await kube.create(SLICES, {"metadata": {"name": name, "labels": labels}, "spec": spec})

    found = {one.subject: one for one in await nodes.gpu_nodes(kube)}

    assert found["ready"].text.startswith("1 of 1 node not: n1;")
    assert found["NVIDIA driver"].text == "550.54.15 on 1 node, unknown on 1 node"
    assert found["GPUs are dray's alone"].grade == "ok"


def test_nodes_whose_gpus_another_program_gives_out_are_named() -> None:
    offering, idle, claimed = node("n1"), node("n2"), node("n3")
    offering["status"]["allocatable"] = {"cpu": "8", "nvidia.com/gpu": "8"}
    idle["status"]["allocatable"] = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "0"}

    found = nodes.owners_finding(
        [offering, idle, claimed], dict.fromkeys(("n3", "n4"), "gpu.nvidia.com")
    )

    assert found.grade == "broken"
    assert found.text.startswith("not on n1 (nvidia.com/gpu), n3 (gpu.nvidia.com): two programs")
    assert nodes.owners_finding([idle], {}).grade == "ok"


@pytest.mark.parametrize(
    "labels",
    [
        {"name": "nvidia-device-plugin-ds"},
        {"app": "nvidia-device-plugin-daemonset"},
        {"app.kubernetes.io/name": "nvidia-device-plugin"},
    ],
)
async def test_nvidias_device_plugin_is_seen_where_drays_own_runs(labels: dict[str, str]) -> None:
    kube = MemoryKube()
    await kube.create(NODES, node("n1") | {"metadata": {"name": "n1"}})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool}
    await kube.create(SLICES, {"metadata": {"name": "a"}, "spec": spec})
    folder = {"name": "f", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    containers = [{"name": "plugin", "image": "k8s-device-plugin"}]
    for name, volumes, phase in (
        ("of-a-tenant", [], "Running"),
        ("ended", [folder], "Succeeded"),
        ("plugin", [folder], "Running"),
    ):
        seen = {one.subject: one for one in await nodes.gpu_nodes(kube)}
        assert seen["GPUs are dray's alone"].grade == "ok"
        metadata = {"name": name, "namespace": "kube-system", "labels": labels}
        spec = {"nodeName": "n1", "containers": containers, "volumes": volumes}
        status = {"status": {"phase": phase}}
        await kube.create(PODS, {"metadata": metadata, "spec": spec}, "kube-system")
        await kube.patch(PODS, name, status, "kube-system", subresource="status")

    found = {one.subject: one for one in await nodes.gpu_nodes(kube)}

    assert found["GPUs are dray's alone"].grade == "broken"
    assert "n1 (NVIDIA's device plugin)" in found["GPUs are dray's alone"].text


def test_the_resource_of_drays_own_device_plugin_is_no_other_program() -> None:
    offering = node("n1")
    resources = {"nvidia.com/gpu": "8", "tensor-fusion.ai/gpu-share": "512"}
    offering["status"] |= {"allocatable": resources, "capacity": resources}
    same = {
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"extendedResourceName": "nvidia.com/gpu"},
    }

    assert nodes.owners_finding([offering], {}).grade == "ok"
    assert nodes.plugin_finding([node("n2")], [same]) == []
    (alone,) = nodes.plugin_finding([offering], [])
    assert (alone.grade, alone.text) == ("ok", "on n1")
    (twice,) = nodes.plugin_finding([offering], [same])
    assert twice.grade == "broken"
    assert "stands for claims of DeviceClass gpu.nvidia.com" in twice.text


@pytest.mark.parametrize(("version", "grade"), [("v1.33.9", "broken"), ("v1.34.0", "ok")])
def test_kubernetes_before_1_34_is_too_old(version: str, grade: str) -> None:
    seen = ClusterObserved(revision=1, version=version, served_versions=("v1",))

    assert capabilities(seen)[0].grade == grade


@pytest.mark.parametrize(("days", "grade"), [(90, "ok"), (6, "lesser"), (0, "broken")])
def test_certificates_are_judged_by_the_days_they_last(days: int, grade: str) -> None:
    end = NOW + datetime.timedelta(days=days)

    assert certificates.expiry_finding("of NATS", end, NOW).grade == grade


def registered(*bundles: bytes) -> Object:
    return {
        "metadata": {"name": "dray-webhook"},
        "webhooks": [
            {"name": str(at), "clientConfig": {"caBundle": base64.b64encode(one).decode()}}
            for at, one in enumerate(bundles)
        ],
    }


def test_every_webhook_needs_authorities_that_are_valid() -> None:
    valid = issue("ca", "name", ("name",), datetime.timedelta(days=365)).authority
    now = datetime.datetime.now(datetime.UTC)

    assert certificates.authorities_finding(registered(valid, valid), now).grade == "ok"
    assert "lacks them" in certificates.authorities_finding(registered(valid, b""), now).text
    assert "expired or" in certificates.authorities_finding(registered(valid, b"x"), now).text
    later = now + datetime.timedelta(days=5000)
    assert "expired or" in certificates.authorities_finding(registered(valid), later).text


async def test_certificates_of_an_installation_are_read_where_this_user_may() -> None:
    kube = MemoryKube()
    assert await certificates.look_at_certificates(kube) == []
    await kube.create(MUTATING_WEBHOOKS, registered(issue_one()))
    data = {"tls.crt": base64.b64encode(issue_one()).decode()}
    await kube.create(SECRETS, {"metadata": {"name": "dray-nats-tls"}, "data": data}, "dray-system")

    found = await certificates.look_at_certificates(kube)

    assert [(one.subject, one.grade) for one in found] == [
        ("authorities of the webhook", "ok"),
        ("of NATS", "ok"),
    ]


def issue_one() -> bytes:
    return issue("ca", "name", ("name",), datetime.timedelta(days=365)).authority


async def test_certificates_that_this_user_may_not_read_are_not_seen() -> None:
    class Refusing(MemoryKube):
        async def get(self, *_: Any, **__: Any) -> Object:
            raise RefusedError("forbidden", 403)

    assert {one.grade for one in await certificates.look_at_certificates(Refusing())} == {"unseen"}
