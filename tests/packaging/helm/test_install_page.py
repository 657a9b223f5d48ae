"""An administrator who follows docs/install.md reaches a running pod with three commands."""

import os
import re
from pathlib import Path

import pytest
from tests.packaging.helm.installation import INSTALLED, NAMESPACE, ROOT, SIMULATED, cluster, run

from dray_sandbox.controlplane.build import find_kubectl

pytestmark = [*INSTALLED, pytest.mark.long]

PAGE = ROOT / "docs" / "install.md"


def commands() -> list[list[str]]:
    """Those of the first block."""
    (block, *_) = re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [line.removeprefix("$ ").split() for line in block.splitlines()]


async def test_three_commands_lead_to_a_running_pod(monkeypatch) -> None:
    words = commands()
    assert len(words) == 3
    async with cluster("page") as empty:
        kubectl = find_kubectl()
        assert kubectl is not None
        folders = (str(Path(program).parent) for program in (empty.helm_program, kubectl))
        monkeypatch.setenv("PATH", os.pathsep.join((*folders, os.environ["PATH"])))
        monkeypatch.setenv("KUBECONFIG", empty.kubeconfig)
        monkeypatch.chdir(ROOT)

        install, apply, wait = words
        await run([*install, *SIMULATED], within_s=300)
        await run(apply)
        await run(wait, within_s=300)

        environment = await empty.kubectl("exec", "my-gpu-workload", "--", "env")
        assert "NVIDIA_VISIBLE_DEVICES=GPU-" in environment
        await empty.kubectl("delete", "pod", "my-gpu-workload")
        await run([*["helm", "uninstall", "dray", "-n"], NAMESPACE], within_s=300)
