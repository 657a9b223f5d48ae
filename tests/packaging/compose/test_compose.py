"""`docker compose up` on a laptop, by podman-compose and images made here.

The tests are steps of one story, in their order.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.packaging.helm.installation import gpu_pod

from dray_sandbox.controlplane.build import find_kubectl

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
FOLDER = HERE.parents[2] / "deploy" / "compose"
KUBECONFIG = FOLDER / "run" / "kubeconfig"
PATIENCE_S = 120.0


def compose(*arguments: str) -> str:
    """What podman-compose prints."""
    program = Path(sys.executable).with_name("podman-compose")
    files = ("-f", str(FOLDER / "compose.yaml"), "-f", str(HERE / "override.yaml"))
    environment = {"CONTAINERS_CONF": str(HERE / "containers.conf"), "COMPOSE_PROFILES": "sandbox"}
    done = subprocess.run(
        [sys.executable, str(program), "--profile", "sandbox", *files, *arguments],
        env=os.environ | environment,
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, f"podman-compose {arguments}: {done.stderr}{done.stdout}"
    return done.stdout


def kubectl(*arguments: str, stdin: str = "") -> str:
    """What kubectl prints with the kubeconfig that compose has written."""
    program = find_kubectl()
    assert program is not None
    done = subprocess.run(
        [program, "--kubeconfig", str(KUBECONFIG), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"kubectl {arguments}: {done.stderr}{done.stdout}"
    return done.stdout


def objects(*arguments: str) -> list[Any]:
    found = json.loads(kubectl("get", *arguments, "-o", "json"))
    return list(found["items"]) if "items" in found else [found]


def until(holds: Callable[[], Any], what: str) -> Any:
    """Wait for a condition; its value."""
    end_s = time.monotonic() + PATIENCE_S
    why: object = ""
    while time.monotonic() < end_s:
        try:
            if value := holds():
                return value
        except (AssertionError, KeyError) as error:
            why = error
        time.sleep(0.3)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}; {why}\n{compose('logs')[-6000:]}")


def down(*options: str) -> None:
    """Stop everything; podman-compose forgets the replicas of --scale."""
    compose("down", *options)
    names = [name for name in containers() if name.startswith("dray_")]
    if names:
        subprocess.run(
            ["podman", "rm", "--force", "--depend", *names], check=True, capture_output=True
        )


def containers() -> list[str]:
    """Names of all containers, ended ones too."""
    command = ["podman", "ps", "--all", "--format", "{{.Names}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module", autouse=True)
def stopped() -> Iterator[None]:
    """Nothing of an earlier run is there, and nothing is left."""
    down("--volumes")
    yield
    down("--volumes")
    KUBECONFIG.unlink(missing_ok=True)


def test_one_command_brings_a_working_system_up() -> None:
    compose("up", "--no-build", "--detach", "--scale", "allocator=3")

    until(KUBECONFIG.exists, "a kubeconfig")
    until(lambda: len(objects("nodes")) == 3, "three nodes")
    until(lambda: objects("gpupool", "default")[0]["status"]["nodes"] == 3, "nodes in the pool")

    def is_registered() -> bool:
        return bool(objects("mutatingwebhookconfigurations"))

    until(is_registered, "the webhook registered")


def test_a_pod_gets_its_gpu() -> None:
    def applied() -> bool:
        return bool(kubectl("apply", "-f", "-", stdin=gpu_pod("first")))

    until(applied, "the webhook answers")
    until(lambda: objects("pod", "first")[0]["status"]["phase"] == "Running", "the pod runs")
    (claim,) = objects("resourceclaims")
    assert claim["status"]["allocation"]["devices"]["results"]


def test_three_allocators_are_connected() -> None:
    replicas = [name for name in containers() if "allocator" in name]

    assert len(replicas) == 3
    for name in replicas:
        logged = subprocess.run(["podman", "logs", name], capture_output=True, text=True).stderr
        assert "can't connect" not in logged.splitlines()[-1]


def test_everything_is_kept_from_one_start_to_the_next() -> None:
    down()
    compose("up", "--no-build", "--detach")

    until(lambda: objects("pod", "first")[0]["status"]["phase"] == "Running", "the pod is there")
    until(lambda: kubectl("apply", "-f", "-", stdin=gpu_pod("second")), "the webhook answers")
    until(lambda: objects("pod", "second")[0]["status"]["phase"] == "Running", "another one runs")


def test_ports_are_of_this_machine_alone_and_containers_have_bounds() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]

    for name, service in services.items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
        assert limits.keys() == {"cpus", "memory"}, name
        assert service["restart"] in ("unless-stopped", "on-failure"), name
        assert service["read_only"], name
        assert not service["image"].endswith(":latest"), name
        assert ":" in service["image"], name
