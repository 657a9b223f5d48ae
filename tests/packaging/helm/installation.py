"""A real cluster without dray, and what an administrator does to it with helm and kubectl."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dray.kube.ports import Kube
from dray_sandbox.controlplane.audit import AuditedRequest, audited_requests
from dray_sandbox.controlplane.build import find_kubectl, wanted_minor
from dray_sandbox.layout import StackOptions, simulated_nodes
from dray_sandbox.stack import Stack
from tools.helm import NEWEST, build_helm
from tools.images.__main__ import ARCHIVE
from tools.retry import connect_with_retries

INSTALLED = [
    pytest.mark.packaging,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
"""The marks of a module's tests: ``pytestmark = INSTALLED``."""
ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "dray"
NAMESPACE = "dray-system"
RELEASE = "dray"
KEEPS_SHARES = wanted_minor() not in ("1.34", "1.35")
"""Whether the API server keeps shares of a card, as it comes; else kube-scheduler allocates the
default pool."""
OF_DECISIONS = pytest.mark.skipif(
    not KEEPS_SHARES,
    reason="kube-scheduler allocates the default pool on 1.34 and 1.35; runs on 1.36",
)
"""The mark of a test that shows dray's decisions in the pool that comes with the chart. On 1.36,
which `.ci/run` takes, all of them run."""
SIMULATED = ("--set", "nodeAgent.gpus=simulated", "--set", "nodeAgent.model=A100")
"""This machine has no GPUs."""
PATIENCE_S = 120.0
WORKLOADS = (
    "statefulset/dray-nats",
    "deployment/dray-claim-controller",
    "deployment/dray-allocator",
    "deployment/dray-webhook",
    "daemonset/dray-node-agent",
)
ACCOUNTS = tuple(
    f"system:serviceaccount:{NAMESPACE}:dray-{name}"
    for name in ("claim-controller", "node-agent", "setup", "renewal", "removal", "webhook")
)


class CommandError(AssertionError):
    """A command failed; the text is what it printed."""


@dataclass(slots=True)
class Cluster:
    """The cluster, as an administrator with a kubeconfig sees it."""

    stack: Stack
    kube: Kube
    helm_program: str
    helm_major: int = NEWEST

    @property
    def kubeconfig(self) -> str:
        return self.stack.record.kubeconfig

    async def helm(self, *arguments: str, within_s: float = 300.0) -> str:
        """What helm prints. Raises CommandError."""
        return await run(
            [self.helm_program, "--kubeconfig", self.kubeconfig, *arguments], within_s=within_s
        )

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl prints. Raises CommandError."""
        program = find_kubectl()
        assert program is not None
        return await run([program, "--kubeconfig", self.kubeconfig, *arguments], stdin=stdin)

    async def objects(self, *arguments: str) -> list[Any]:
        """What ``kubectl get`` finds."""
        found = json.loads(await self.kubectl("get", *arguments, "-o", "json"))
        return list(found["items"]) if "items" in found else [found]

    async def install(self, *values: str, chart: Path = CHART) -> str:
        """``helm install`` with these values, and nothing else."""
        return await self.helm(
            "install", RELEASE, str(chart), "-n", NAMESPACE, "--create-namespace", *values
        )

    async def upgrade(self, *values: str, chart: Path = CHART) -> str:
        """``helm upgrade`` to these values; what kubectl changed meanwhile does not count."""
        force = ("--force-conflicts",) if self.helm_major > 3 else ()  # Helm 3 always overwrites
        return await self.helm("upgrade", RELEASE, str(chart), "-n", NAMESPACE, *force, *values)

    async def uninstall(self) -> str:
        """``helm uninstall``."""
        return await self.helm("uninstall", RELEASE, "-n", NAMESPACE)

    async def ready(self, workloads: Sequence[str] = WORKLOADS) -> None:
        """Wait until every workload of dray is ready."""
        for workload in workloads:
            await self.kubectl(
                "rollout", "status", workload, "-n", NAMESPACE, f"--timeout={PATIENCE_S:.0f}s"
            )

    async def apply(self, *manifests: str) -> None:
        """``kubectl apply``."""
        await self.kubectl("apply", "-f", "-", stdin="\n---\n".join(manifests))

    async def running(self, *names: str) -> None:
        """Wait until the pods of the default namespace run."""
        pods = [f"pod/{name}" for name in names]
        await self.kubectl("wait", "--for=condition=Ready", *pods, f"--timeout={PATIENCE_S:.0f}s")

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Wait for a condition; its value."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (value := await holds()):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pods = await self.kubectl("get", "pods", "-A")
            raise AssertionError(f"not within {PATIENCE_S:g} s: {what}\n{pods}") from None
        return value

    def audited(self, users: Sequence[str] = ACCOUNTS) -> list[AuditedRequest]:
        """What these users have asked of the API server."""
        log = Path(self.stack.record.audit_log)
        return [one for one in audited_requests(log) if one.user in users]


async def run(command: Sequence[str], *, stdin: str = "", within_s: float = 180.0) -> str:
    """What a command prints. Raises CommandError."""
    done = await asyncio.to_thread(
        subprocess.run, command, input=stdin, capture_output=True, text=True, timeout=within_s
    )
    if done.returncode != 0:
        raise CommandError(f"{' '.join(command[:6])} …: {done.stderr}{done.stdout}")
    return done.stdout


@asynccontextmanager
async def cluster(
    name: str, *images: Path, nodes: int = 2, helm: int = NEWEST
) -> AsyncIterator[Cluster]:
    """A cluster of real nodes that have dray's images, and nothing of dray's. ``helm`` is the major
    version of the administrator's."""
    options = StackOptions(
        name,
        control_plane="real",
        kubelet="real",
        nodes=simulated_nodes(nodes, pools=()),
        services=False,
        images=tuple(str(path) for path in (images or (ARCHIVE,))),
    )
    program = await build_helm(print, helm)
    async with Stack(options, print) as stack:
        kube = await connect_with_retries(stack.record.kubeconfig, user_agent="dray-test-helm")
        try:
            yield Cluster(stack, kube, str(program), helm)
        finally:
            await kube.close()


def gpu_pod(name: str, *, tflops: str = "100", vram: str = "16Gi", image: str = "app") -> str:
    """The first pod of the user guide, of another name and image."""
    return f"""
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  annotations:
    tensor-fusion.ai/dra-enabled: "true"
    tensor-fusion.ai/tflops-request: "{tflops}"
    tensor-fusion.ai/vram-request: "{vram}"
    tensor-fusion.ai/gpu-count: "1"
    tensor-fusion.ai/gpupool: "default"
spec:
  containers:
    - name: workload
      image: {image}
"""
