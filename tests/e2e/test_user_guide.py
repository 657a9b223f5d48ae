"""Every command of the user guide, to the letter, on one stack with the real control plane."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.command_blocks import DOWN, GUIDE_PAGES, ROOT, UP, GuidePage

from dray_sandbox.controlplane.build import find_kubectl

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of somebody who has typed ``dray up`` and the line that it prints."""
    kubectl = find_kubectl()
    assert kubectl is not None
    folders = (str(ROOT / ".venv" / "bin"), str(Path(kubectl).parent), os.environ["PATH"])
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(folders),
        "DRAY_STACK": "user-guide",
        "FOLDER": str(tmp_path_factory.mktemp("guide")),
    }
    environment.pop("KUBECONFIG", None)
    try:
        printed = run(UP, environment)
        (kubeconfig,) = re.findall(r"^export KUBECONFIG=(.+)$", printed, re.MULTILINE)
        yield {**environment, "KUBECONFIG": kubeconfig}
    finally:
        run(DOWN, environment)


def run(script: str, environment: dict[str, str]) -> str:
    """What the commands print; the test fails with it if one of them fails."""
    log = Path(environment["FOLDER"]) / "printed"
    with log.open("w+", encoding="utf-8") as printed:
        code = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
        ).returncode
    text = log.read_text("utf-8")
    assert code == 0, text
    return text


@pytest.mark.parametrize("page", GUIDE_PAGES, ids=lambda page: page.path)
def test_its_commands_work(page: GuidePage, shell: dict[str, str]) -> None:
    run(page.script(), shell)
