"""Every command of the user guide, to the letter, on one stack with the real control plane."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.command_blocks import DOWN, GUIDE_PAGES, ROOT, UP

from dray_sandbox.controlplane.build import find_kubectl

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@contextmanager
def shell(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of somebody who has typed ``dray up`` and the line that it prints."""
    kubectl = find_kubectl()
    assert kubectl is not None
    folders = (str(ROOT / ".venv" / "bin"), str(Path(kubectl).parent), os.environ["PATH"])
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(folders),
        "DRAY_STACK": "user-guide",
        "FOLDER": str(folder),
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


def test_the_commands_of_all_pages_work(tmp_path: Path) -> None:
    with shell(tmp_path) as environment:
        for page in GUIDE_PAGES:
            run(page.script(), environment)
