"""The real cluster that tests share, and what they do with it."""

import asyncio
import json
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest
from tests.conformance.stand import NAMESPACE, Stand

from dray_sandbox.controlplane.build import find_kubectl

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


@dataclass(slots=True)
class RealCluster(Stand):
    """A running stack with real kubelets, as somebody with kubectl sees it."""

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

    async def pod(self, name: str) -> Any:
        """The pod as it is now."""
        return json.loads(await self.kubectl("get", "pod", name, "-n", NAMESPACE, "-o", "json"))
