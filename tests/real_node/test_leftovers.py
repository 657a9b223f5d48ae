"""A stack with real kubelets leaves nothing on this machine, however it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dray_sandbox.controlplane.build import find_kubectl
from dray_sandbox.node.cgroups import hierarchies
from dray_sandbox.paths import checkout
from dray_sandbox.stack_file import StackFile, read_stack_file

pytestmark = [pytest.mark.node, pytest.mark.real, pytest.mark.timeout(300)]

NAME = "leftovers"
WITHIN_S = 60.0
SETTINGS = (
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
)
"""Settings of the kernel that kubelets or routers change."""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "mounts"},
    "spec": {
        "containers": [
            {
                "name": "app",
                "image": "app",
                "ports": [{"containerPort": 80, "hostPort": 8080}],
                "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
            }
        ],
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
    },
}
"""It has a volume in memory, a token, a link and firewall rules."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine has of a stack, outside of its files."""

    interfaces: str
    routes: str
    firewall: str
    named_networks: tuple[str, ...]
    settings: tuple[str, ...]
    groups: tuple[str, ...]
    mounts: tuple[str, ...]
    folders: tuple[str, ...]


def printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def machine_now() -> Machine:
    links = json.loads(printed("ip", "-json", "link"))
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    folders = ("/var/lib", "/var/log", "/run", "/etc/cni", "/opt")
    return Machine(
        interfaces=" ".join(sorted(link["ifname"] for link in links)),
        routes=printed("ip", "route"),
        firewall=re.sub(
            r"counter packets \d+ bytes \d+", "counter", printed("nft", "list", "ruleset")
        ),
        named_networks=names_in(Path("/run/netns")),
        settings=tuple(Path("/proc/sys", name).read_text() for name in SETTINGS),
        groups=tuple(name for root in hierarchies() for name in names_in(root) if "dray-" in name),
        mounts=tuple(line for line in mounts if f"/{NAME}/" in line),
        folders=tuple(f"{one}/{name}" for one in folders for name in names_in(Path(one))),
    )


def names_in(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(os.listdir(folder))) if folder.is_dir() else ()


def dray(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dray_cli", *arguments, "--stack", NAME],
        capture_output=True,
        text=True,
        cwd=checkout(),
        timeout=200,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def processes(stack: StackFile) -> set[int]:
    """All processes of the stack: those of its file, and those in its nodes."""
    files = [file for root in hierarchies() for file in root.glob("dray-*/**/cgroup.procs")]
    in_groups = {int(line) for file in files for line in file.read_text().split()}
    node = namespace(machine_process(stack))
    everything = map(int, filter(str.isdigit, os.listdir("/proc")))
    in_node = {process for process in everything if namespace(process) == node}
    return {*in_groups, *in_node, *(one.pid for one in (stack.supervisor, *stack.processes))}


def machine_process(stack: StackFile) -> int:
    (pid_file,) = Path(stack.directory, "n").resolve().glob("*/machine.pid")
    return int(pid_file.read_text())


def namespace(process: int) -> str:
    try:
        return os.readlink(f"/proc/{process}/ns/pid")
    except OSError:
        return ""


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: Callable[[], Any], what: str) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


@pytest.fixture
def before() -> Iterator[Machine]:
    """What there was before a stack that runs a pod."""
    dray("down")
    machine = machine_now()
    dray("up", "--kubelet", "real", "--nodes", "1", "--no-services", "--detach")
    yield machine
    dray("down")


@pytest.fixture
def stack(before: Machine) -> StackFile:
    """The stack, once its pod runs."""
    found = read_stack_file(NAME)
    assert found is not None
    kubectl = [str(find_kubectl()), "--kubeconfig", found.kubeconfig]
    subprocess.run([*kubectl, "apply", "-f", "-"], input=json.dumps(POD), text=True, check=True)
    printed(*kubectl, "wait", "--for=condition=Ready", "pod/mounts", "--timeout=60s")
    return found


def differences(before: Machine) -> dict[str, tuple[Any, Any]]:
    now = machine_now()
    return {
        name: (getattr(before, name), getattr(now, name))
        for name in Machine.__slots__
        if getattr(before, name) != getattr(now, name)
    }


def test_down_leaves_nothing(before: Machine, stack: StackFile) -> None:
    were = processes(stack)
    # The comparison finds what would stay.
    assert {"interfaces", "routes", "groups"} <= differences(before).keys()
    assert len(were) > len(stack.processes) + 3

    dray("down")

    assert [process for process in were if is_alive(process)] == []
    assert differences(before) == {}


def test_a_killed_supervisor_leaves_nothing(before: Machine, stack: StackFile) -> None:
    were = processes(stack)
    os.kill(stack.supervisor.pid, signal.SIGKILL)
    until(lambda: not any(map(is_alive, were)), "its processes run on")
    until(lambda: not differences(before), f"{differences(before)} stays")


def test_down_removes_what_stays_when_every_process_is_killed(
    before: Machine, stack: StackFile
) -> None:
    were = processes(stack)
    for process in (stack.supervisor, *stack.processes):
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not any(map(is_alive, were)), "its processes run on")
    dray("down")
    assert differences(before) == {}
