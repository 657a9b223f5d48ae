"""The real cluster that tests share, and what they do with it."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.stand import NAMESPACE, Stand, phase_of

from dray.api.names import API_GROUP, DRIVER, GPUPOOL, POOL_LABEL, TFLOPS_REQUEST, VRAM_REQUEST
from dray.kube.ports import NODES, PODS, SLICES, Object
from dray_sandbox.controlplane.build import find_kubectl
from dray_sandbox.layout import SimulatedNode

REAL_NODE = [
    pytest.mark.node,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]
"""The marks of a module's tests: ``pytestmark = REAL_NODE``."""
DEDICATED, SHARED = "dedicated", "shared"
"""Pools: dray binds pods of the first, kube-scheduler those of the second."""
NODE_OF = {DEDICATED: "sim-1", SHARED: "sim-2"}
GPUS = 4
"""Of each node."""
GPU_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
REACH_THE_API = "nc -w 5 kubernetes.default.svc 443 < /dev/null && echo reached"
"""A script that prints ``reached``, if Services have names and addresses in its pod."""


def node_in(pool: str, name: str = "") -> SimulatedNode:
    """A node of a pool; the two that always run have the names of NODE_OF."""
    return SimulatedNode(name or NODE_OF[pool], gpus=GPUS, labels={POOL_LABEL: pool})


def pod_of(name: str, pool: str, annotations: Mapping[str, str] = {}, **spec: Any) -> Object:
    """A pod that asks for a fraction of a card; ``spec`` replaces its one container, ``app``."""
    amounts = {GPUPOOL: pool, TFLOPS_REQUEST: "100", VRAM_REQUEST: "16Gi"}
    further = {f"{API_GROUP}/{key}": value for key, value in annotations.items()}
    metadata = {"name": name, "annotations": amounts | further}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "app", "image": "app"}], **spec},
    }


@dataclass(slots=True)
class RealCluster(Stand):
    """A running stack with real kubelets, as somebody with kubectl sees it."""

    async def create(self, pod: Object) -> None:
        """Create a pod."""
        await self.kube.create(PODS, pod, NAMESPACE)

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What the command prints; fails with its error."""
        done = await asyncio.to_thread(
            subprocess.run,
            [find_kubectl(), "--kubeconfig", self.stack.record.kubeconfig, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    async def environment(self, pod: str, container: str = "app") -> dict[str, str]:
        """The environment of a running container."""
        printed = await self.kubectl("exec", pod, "-c", container, "--", "env")
        return dict(line.split("=", 1) for line in printed.splitlines())

    async def shell(self, pod: str, script: str, container: str = "app") -> str:
        """What a script prints in a running container."""
        printed = await self.kubectl("exec", pod, "-c", container, "--", "sh", "-c", script)
        return printed.strip()

    async def pod(self, name: str) -> Object:
        """The pod as it is now."""
        return await self.kube.get(PODS, name, NAMESPACE)

    async def containers(self, name: str) -> dict[str, tuple[str, int]]:
        """Id and restarts of each of a pod's containers."""
        statuses = (await self.pod(name))["status"]["containerStatuses"]
        return {one["name"]: (one["containerID"], one["restartCount"]) for one in statuses}

    async def ready(self, *names: str) -> None:
        """Wait until the pods' containers run now, which a phase does not say after a reboot."""

        async def all_ready() -> bool:
            pods = await self.pods()
            return all(is_ready(pods.get(name)) for name in names)

        await self.until(all_ready, f"{', '.join(names)} ready")

    async def ended(self, name: str) -> None:
        """Wait until the pod has succeeded."""

        async def succeeded() -> bool:
            return phase_of(await self.pod(name)) == "Succeeded"

        await self.until(succeeded, f"{name} succeeded")

    async def restart(self, *programs: str) -> None:
        """Kill processes of the stack, then start them again."""
        for program in programs:
            await self.stack.kill(program)
        for program in programs:
            await self.stack.restart(program)

    async def slice_generation(self, node: str) -> int:
        """The generation of the node's published GPUs; 0 if there are none."""
        listed = await self.kube.list(SLICES, field_selector=f"spec.nodeName={node}")
        own = (one["spec"]["pool"] for one in listed.objects if one["spec"]["driver"] == DRIVER)
        return max((pool["generation"] for pool in own), default=0)

    async def node_is_ready(self, name: str, uid: str = "") -> None:
        """Wait until the Node is ready, and is not the one with ``uid``."""

        async def is_ready() -> bool:
            nodes = (await self.kube.list(NODES)).objects
            return any(
                node["metadata"]["name"] == name
                and node["metadata"]["uid"] != uid
                and not any(map(_is_of_lifecycle, node["spec"].get("taints") or ()))
                and _condition(node) == "True"
                for node in nodes
            )

        await self.until(is_ready, f"{name} ready")

    def node_files(self, node: str) -> Path:
        """The folder of a node on this machine."""
        return self.stack.nodes_directory / node

    def cdi_files(self, node: str) -> Sequence[Path]:
        """The CDI files of the node's claims."""
        return sorted((self.node_files(node) / "run" / "cdi").glob("*.json"))


def is_ready(pod: Object | None) -> bool:
    """Whether the pod's containers run and are ready."""
    return pod is not None and phase_of(pod) == "Running" and _condition(pod) == "True"


def _is_of_lifecycle(taint: Object) -> bool:
    return str(taint["key"]).startswith("node.kubernetes.io/")


def _condition(obj: Object) -> str:
    """The status of the condition ``Ready``."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((str(one["status"]) for one in conditions if one["type"] == "Ready"), "")
