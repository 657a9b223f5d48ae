"""`docker compose` on a laptop, by podman-compose and images made here, and what a user does to it
with kubectl."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dray_sandbox.controlplane import build
from tools.images.builders import find_builder
from tools.images.debian import build_base

HERE = Path(__file__).parent
FOLDER = HERE.parents[2] / "deploy" / "compose"
FILE = FOLDER / "compose.yaml"
KUBECONFIG = FOLDER / "run" / "kubeconfig"
PATIENCE_S = 120.0
KUBERNETES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")


@dataclass(frozen=True, slots=True)
class Project:
    """The containers of some profiles."""

    profiles: Sequence[str]
    overrides: Sequence[Path] = ()
    settings: tuple[tuple[str, str], ...] = ()
    """Variables of compose's environment."""

    def compose(self, *arguments: str) -> str:
        """What podman-compose prints."""
        program = Path(sys.executable).with_name("podman-compose")
        files = [word for path in (FILE, *self.overrides) for word in ("-f", str(path))]
        profiles = [word for name in self.profiles for word in ("--profile", name)]
        environment = {"CONTAINERS_CONF": str(HERE / "containers.conf")}
        environment |= {"COMPOSE_PROFILES": ",".join(self.profiles), **dict(self.settings)}
        done = subprocess.run(
            [sys.executable, str(program), *profiles, *files, *arguments],
            env=os.environ | environment,
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, f"podman-compose {arguments}: {done.stderr}{done.stdout}"
        return done.stdout

    def up(self, *options: str) -> None:
        """Start everything."""
        self.compose("up", "--no-build", "--detach", *options)

    def down(self, *options: str) -> None:
        """Stop everything. podman-compose forgets the replicas of --scale."""
        for name in containers():
            if name.startswith("dray_") and not name.endswith("_1"):
                podman("rm", "--force", name)
        self.compose("down", *options)

    @contextmanager
    def clean(self) -> Iterator[None]:
        """Nothing of an earlier run is there, and nothing is left."""
        self.down("--volumes")
        try:
            yield
        finally:
            self.down("--volumes")
            KUBECONFIG.unlink(missing_ok=True)

    def until(self, holds: Callable[[], Any], what: str) -> Any:
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
        logs = self.compose("logs")[-6000:]
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}; {why}\n{logs}")


def services() -> dict[str, Any]:
    """Those of the compose file, of all profiles."""
    return dict(yaml.safe_load(FILE.read_text())["services"])


def kubectl(*arguments: str, stdin: str = "") -> str:
    """What kubectl prints with the kubeconfig that compose has written."""
    program = build.find_kubectl()
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
    """What ``kubectl get`` finds."""
    found = json.loads(kubectl("get", *arguments, "-o", "json"))
    return list(found["items"]) if "items" in found else [found]


def runs(pod: str) -> bool:
    """Whether the pod runs."""
    return bool(objects("pod", pod)[0]["status"]["phase"] == "Running")


def podman(*arguments: str) -> str:
    """What podman prints."""
    environment = os.environ | {"CONTAINERS_CONF": str(HERE / "containers.conf")}
    command = ["podman", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
    return done.stdout


def containers() -> list[str]:
    """Names of all containers, ended ones too."""
    return podman("ps", "--all", "--format", "{{.Names}}").split()


def build_kubernetes() -> None:
    """Images with the programs of the real control plane's build, under the names that the compose
    file has for Kubernetes' own."""
    binary = asyncio.run(build.build(print))
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder, "bin")
        programs.mkdir()
        shutil.copy(binary.program("kubectl"), programs / "k8s")
        for name in KUBERNETES:
            (programs / name).symlink_to("k8s")
        text = "FROM scratch\nCOPY bin /usr/local/bin\nENV PATH=/usr/local/bin\n"
        _build(folder, text, [services()[name]["image"] for name in KUBERNETES])


def build_prometheus() -> None:
    """An image with Debian's Prometheus, under the name that the compose file has for the official
    one."""
    program = shutil.which("prometheus")
    assert program is not None, "no prometheus here: make packaging-packages"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(program, Path(folder, "prometheus"))
        base = build_base(find_builder("podman"))
        text = f"FROM {base}\nCOPY prometheus /bin/prometheus\n"
        text += 'USER 65534:65534\nENTRYPOINT ["/bin/prometheus"]\n'
        _build(folder, text, [services()["prometheus"]["image"]])


def _build(folder: str, text: str, names: Sequence[str]) -> None:
    dockerfile = Path(folder, "Dockerfile")
    dockerfile.write_text(text)
    find_builder("podman").build(names[0], dockerfile, Path(folder), {})
    for name in names[1:]:
        podman("tag", names[0], name)
