"""examples/06-workloads on the real control plane: what people do with workloads."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from dray.api.names import DRIVER, VRAM_REQUEST
from dray.kube.ports import BIND_REQUESTS, CLAIMS, PODS, Kube
from dray_cli.explain import fetch_explanation
from dray_sandbox.controlplane.build import find_kubectl
from dray_sandbox.layout import StackOptions, simulated_nodes
from dray_sandbox.paths import checkout
from dray_sandbox.stack import Stack
from tools.faults.history import watch_history
from tools.retry import connect_with_retries

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

EXAMPLE = checkout() / "examples" / "06-workloads"
GPUS_PER_NODE = 4
WITHIN_S = 120.0
QUOTA = f"{DRIVER}.deviceclass.resource.k8s.io/devices"


class Cluster:
    """The stack, as somebody with kubectl sees it."""

    def __init__(self, stack: Stack, kube: Kube) -> None:
        self.stack = stack
        self.kube = kube
        self._kubectl = find_kubectl() or "kubectl"

    async def kubectl(self, *arguments: str) -> str:
        """What the command prints, warnings last; fails with its error."""
        done = await asyncio.to_thread(
            subprocess.run,
            [self._kubectl, "--kubeconfig", self.stack.record.kubeconfig, *arguments],
            capture_output=True,
            text=True,
            cwd=EXAMPLE,
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout + done.stderr

    async def objects(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        printed = await self.kubectl("get", kind, "-o", "json", *arguments)
        listed, _ = json.JSONDecoder().raw_decode(printed)
        items: list[dict[str, Any]] = listed["items"]
        return items

    async def pods(self, app: str, phase: str = "Running") -> list[dict[str, Any]]:
        """The pods of an app in a phase, without those that are being deleted."""
        found = await self.objects("pods", "-l", f"app={app}")
        return [
            pod
            for pod in found
            if pod["status"]["phase"] == phase and "deletionTimestamp" not in pod["metadata"]
        ]

    async def until(self, holds: Callable[[], Any], what: str) -> Any:
        """The value of ``holds`` once it is true."""
        deadline = time.monotonic() + WITHIN_S
        while not (value := await holds()):
            assert time.monotonic() < deadline, f"{what}\n{await self.kubectl('get', 'pods')}"
            await asyncio.sleep(0.2)
        return value

    async def running(self, app: str, count: int) -> list[dict[str, Any]]:
        """Wait until so many pods of the app run, and no others are there."""

        async def holds() -> list[dict[str, Any]]:
            everything = await self.objects("pods", "-l", f"app={app}")
            running = await self.pods(app)
            return running if len(running) == len(everything) == count else []

        found: list[dict[str, Any]] = await self.until(holds, f"{count} pods of {app}")
        return found

    async def has_claims(self, count: int, vram: str = "16Gi") -> bool:
        """Whether the namespace has so many claims, all allocated with that amount."""
        claims = await self.objects("resourceclaims")
        amounts = [
            result["consumedCapacity"]["virtual_vram"]
            for claim in claims
            for result in claim.get("status", {})
            .get("allocation", {})
            .get("devices", {})
            .get("results", ())
        ]
        return len(claims) == count and amounts == [vram] * count

    async def quota_is_counted(self) -> bool:
        (quota,) = await self.objects("resourcequotas")
        return QUOTA in quota.get("status", {}).get("used", {})

    async def explained(self, name: str, words: str) -> bool:
        """Whether `dray explain` says that of a pod."""
        found = await fetch_explanation(self.kube, "default", name)
        return words in "\n".join(found.lines())

    async def device_of(self, name: str) -> str:
        """The only GPU of a pod."""
        pod = await self.kube.get(PODS, name, "default")
        (status,) = pod["status"]["resourceClaimStatuses"]
        claim = await self.kube.get(CLAIMS, status["resourceClaimName"], "default")
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        device: str = result["device"]
        return device

    async def has_warned(self, reason: str) -> bool:
        return reason in await self.warnings()

    async def warnings(self) -> set[str]:
        """The reasons of all warning events."""
        return {one["reason"] for one in await self.objects("events") if one["type"] == "Warning"}

    async def is_empty(self) -> bool:
        return not await self.objects("pods,resourceclaims")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    """Two nodes of four cards; at the end, no device was ever allocated twice."""
    options = StackOptions(
        name="workloads",
        control_plane="real",
        nodes=simulated_nodes(2, gpus=GPUS_PER_NODE, models=("A100",), pools=("workloads",)),
    )
    async with Stack(options) as stack:
        kube = await connect_with_retries(stack.record.kubeconfig, user_agent="dray-test")
        made = Cluster(stack, kube)
        async with watch_history(kube) as history:
            await made.kubectl("apply", "-f", "01-pool.yaml")
            await made.kubectl("wait", "--for=condition=Ready", "gpupool/workloads")
            yield made
        assert history.check_all().violations == []
        await kube.close()


@pytest_asyncio.fixture(loop_scope="module")
async def web(cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster with the example's Deployment, and nothing else."""
    await cluster.kubectl("apply", "-f", "02-deployment.yaml")
    await cluster.running("web", 2)
    yield cluster
    await cluster.kubectl("delete", "deployments,statefulsets,jobs,resourcequotas", "--all")
    await cluster.until(cluster.is_empty, "no pods and no claims")


async def test_pods_of_deployments_jobs_and_statefulsets_get_their_gpus(web: Cluster) -> None:
    await web.kubectl("apply", "-f", "03-job.yaml", "-f", "04-statefulset.yaml")
    await web.kubectl("wait", "--for=condition=Complete", "job/train", "--timeout=120s")
    await web.running("shard", 2)
    assert len(await web.objects("pods", "-l", "job-name=train")) == 4
    cards = [
        result["device"]
        for claim in await web.objects("resourceclaims")
        for result in claim["status"]["allocation"]["devices"]["results"]
        if claim["metadata"]["name"].startswith("shard-")
    ]
    assert len(set(cards)) == 2


async def test_a_deployment_is_scaled(web: Cluster) -> None:
    await web.kubectl("scale", "deployment/web", "--replicas=9")
    await web.running("web", 9)
    await web.kubectl("scale", "deployment/web", "--replicas=1")
    await web.running("web", 1)
    await web.until(lambda: web.has_claims(1), "one claim")


async def test_a_restart_replaces_the_pods_and_their_claims(web: Cluster) -> None:
    before = names(await web.pods("web"))
    await web.kubectl("rollout", "restart", "deployment/web")
    await web.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    assert not before & names(await web.running("web", 2))
    await web.until(lambda: web.has_claims(2), "two claims")


async def test_a_changed_annotation_is_rolled_out_and_undone(web: Cluster) -> None:
    annotations = {"annotations": {VRAM_REQUEST: "32Gi"}}
    patch = {"spec": {"template": {"metadata": annotations}}}
    await web.kubectl("patch", "deployment/web", "-p", json.dumps(patch))
    await web.until(lambda: web.has_claims(2, "32Gi"), "claims of 32Gi")
    await web.kubectl("rollout", "undo", "deployment/web")
    await web.until(lambda: web.has_claims(2, "16Gi"), "claims of 16Gi")


async def test_wrong_annotations_of_a_template_are_a_warning_when_it_is_applied(
    web: Cluster,
) -> None:
    annotations = {"annotations": {VRAM_REQUEST: "much"}}
    patch = json.dumps({"spec": {"template": {"metadata": annotations}}})
    warned = await web.kubectl("patch", "deployment/web", "-p", patch, "--dry-run=server")
    assert 'Warning: Deployment "web": its pods would be refused' in warned
    assert f"Warning: annotation {VRAM_REQUEST}" in warned
    assert "Warning" not in await web.kubectl("scale", "deployment/web", "--replicas=2")


async def test_a_drained_nodes_pods_move(web: Cluster) -> None:
    await web.kubectl("apply", "-f", "04-statefulset.yaml")
    await web.running("shard", 2)
    await web.kubectl("drain", "sim-1", "--ignore-daemonsets")
    everything = [*await web.running("web", 2), *await web.running("shard", 2)]
    assert {pod["spec"]["nodeName"] for pod in everything} == {"sim-2"}
    await web.kubectl("uncordon", "sim-1")


async def test_a_quota_of_devices_holds_pods_back_until_it_is_gone(web: Cluster) -> None:
    await web.kubectl("apply", "-f", "05-quota.yaml")
    await web.until(web.quota_is_counted, "a counted quota")
    await web.kubectl("scale", "deployment/web", "--replicas=9")
    await web.until(lambda: web.has_claims(6), "six claims")

    async def three_wait() -> bool:
        running, waiting = await web.pods("web"), await web.pods("web", "Pending")
        return (len(running), len(waiting)) == (6, 3)

    await web.until(three_wait, "six running pods and three waiting ones")
    await web.kubectl("delete", "resourcequota", "gpus")
    await web.running("web", 9)


async def test_five_troubles_of_a_deployment_end_without_a_surprise(web: Cluster) -> None:
    """A labelled node, a killed allocator, an unhealthy GPU and a deleted node that returns."""
    await web.kubectl("delete", "events", "--all")
    await web.kubectl("label", "node", "sim-2", "disk=fast")
    selected = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}
    await web.kubectl("patch", "deployment/web", "-p", json.dumps(selected))
    await web.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    pods = await web.running("web", 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"sim-2"}
    assert await web.warnings() == set()

    await web.stack.kill("allocator")
    await web.kubectl("scale", "deployment/web", "--replicas=3")
    await web.stack.restart("allocator")
    pods = await web.running("web", 3)
    assert await web.warnings() <= {"GPUWaiting"}

    name = pods[0]["metadata"]["name"]
    device = await web.device_of(name)
    health = web.stack.nodes_directory / "sim-2" / "state" / "unhealthy"
    health.write_text(f"GPU-{device.removeprefix('gpu-')} xid-79\n")
    await web.until(lambda: web.explained(name, "is unhealthy: xid-79"), "the GPU's health")
    await web.until(lambda: web.has_warned("GPUUnhealthy"), "an event about the GPU")
    health.unlink()

    await web.kubectl("delete", "node", "sim-2")
    await web.until(lambda: web.explained(name, "sim-2 is gone"), "the lost node")

    async def is_lost() -> bool:
        request = await web.kube.get(BIND_REQUESTS, name, "default")
        return bool((request.get("status") or {}).get("reason") == "NodeLost")

    await web.until(is_lost, "the BindRequest says NodeLost")
    await web.kubectl("delete", "pods", "-l", "app=web", "--force", "--grace-period=0")

    async def waits() -> bool:
        waiting = await web.pods("web", "Pending")
        return len(waiting) == 3 and await web.explained(
            waiting[0]["metadata"]["name"], "1 of 1 node"
        )

    await web.until(waits, "the pods wait for a node with the label")
    await web.stack.restart("kubelet")
    await web.kubectl("wait", "--for=condition=Ready", "node/sim-2", "--timeout=60s")
    await web.kubectl("label", "node", "sim-2", "disk=fast")
    await web.running("web", 3)
    assert await web.warnings() <= {"GPUWaiting", "GPUUnhealthy", "NodeNotReady"}


def names(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}
