"""``python -m dray_sandbox.node.machine PLAN PAUSE``: a node's namespaces, cgroup and network.

It is ready when the node's pid file exists. On SIGTERM, or when the node's first process or the
router ends, it ends the node at once, as a power failure does. Then it removes the cgroup.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dray.api.errors import PermanentError
from dray_sandbox.node.cgroups import make_group, remove_group
from dray_sandbox.node.network import run_ip
from dray_sandbox.processes import bound_to_this_process

PLAN_FILE = "machine.json"
"""The file of the plan in the node's folder."""
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc")


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """The folder, cgroup and addresses of a node's machine."""

    name: str
    directory: str
    """The node's folder. ``boot`` documents its content."""
    group: str
    """The cgroup of the node's pods."""
    address: str
    pods: str
    """The subnet of its pods."""
    first_pod: str
    link: str
    """Name of the router's end of its link."""
    router: str
    """The router's address."""
    router_pid_file: str

    @property
    def pid_file(self) -> Path:
        """Contains the id of the node's first process while the node runs."""
        return Path(self.directory, "machine.pid")


def read_plan(path: Path) -> MachinePlan:
    """The plan in a file."""
    return MachinePlan(**json.loads(path.read_text()))


def write_plan(plan: MachinePlan, path: Path) -> None:
    """Write a file for ``read_plan``."""
    path.write_text(json.dumps(asdict(plan), indent=2) + "\n")


def remove_leftovers(nodes: Path) -> None:
    """Remove the cgroups of machines that were killed; ``nodes`` has their folders.

    Raises:
        OSError: a process in them did not end.
    """
    for path in nodes.glob(f"*/{PLAN_FILE}"):
        remove_group(read_plan(path).group)


def main() -> int:
    """Exit code 0 after SIGTERM, 1 if the node can't start or ends."""
    path, pause = Path(sys.argv[1]), sys.argv[2]
    for number in _END_SIGNALS:
        signal.signal(number, _end)
    try:
        return run(path, read_plan(path), pause)
    except (PermanentError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _end(*_: object) -> None:
    """End at the first signal. When the parent is killed, the kernel sends one signal for each of
    its threads."""
    _ignore_signals()
    sys.exit(0)


def _ignore_signals() -> None:
    for number in _END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def run(path: Path, plan: MachinePlan, pause: str) -> int:
    """Run the machine of the plan in ``path`` until it ends."""
    router = int(Path(plan.router_pid_file).read_text())
    _make_folders(plan)
    remove_group(plan.group)  # of a machine that was killed
    command = [*_NAMESPACES, "--fork", "--kill-child", "--propagation", "slave", "--"]
    boot = [sys.executable, "-m", "dray_sandbox.node.boot", str(path), pause]
    unshared = subprocess.Popen(
        bound_to_this_process(["unshare", *command, *boot]), stdout=subprocess.PIPE, text=True
    )
    try:
        make_group(plan.group)
        first_process = _first_process(unshared)
        _join_router(plan, router, first_process)
        plan.pid_file.write_text(str(first_process))
        print(f"node {plan.name} runs; its first process is {first_process}", flush=True)
        _wait_for_one([unshared.pid, router])
        return 1
    finally:
        _ignore_signals()
        plan.pid_file.unlink(missing_ok=True)
        unshared.kill()  # the kernel ends everything in the node
        unshared.wait()
        remove_group(plan.group)


def _make_folders(plan: MachinePlan) -> None:
    directory = Path(plan.directory)
    shutil.rmtree(directory / "run", ignore_errors=True)
    for name in ("run", "run/cdi", "kubelet", "containerd", "dray", "log/pods", "log/containers"):
        (directory / name).mkdir(parents=True, exist_ok=True)


def _first_process(unshared: "subprocess.Popen[str]") -> int:
    """The id of the node's first process, once it has mounted everything."""
    assert unshared.stdout is not None
    first, ready = unshared.stdout.readline(), unshared.stdout.readline()
    if ready.strip() != "ready":
        raise PermanentError("the node's first process ended before it was ready")
    return int(first)


def _join_router(plan: MachinePlan, router: int, first_process: int) -> None:
    # The link of an earlier machine may still exist: the kernel removes it with a delay.
    links = run_ip(["link show"], inside=router, flags=("-brief",))
    if plan.link in links.replace("@", " ").split():
        run_ip([f"link delete {plan.link}"], inside=router)
    run_ip([f"link add {plan.link} netns {router} type veth peer name eth0 netns {first_process}"])
    run_ip(
        [
            f"link set {plan.link} up",
            f"address add {plan.router}/32 dev {plan.link}",
            f"route add {plan.address}/32 dev {plan.link}",
            f"route add {plan.pods} via {plan.address} dev {plan.link}",
        ],
        inside=router,
    )
    run_ip(
        [
            "link set lo up",
            "link set eth0 up",
            f"address add {plan.address}/32 dev eth0",
            f"route add {plan.router}/32 dev eth0",
            f"route add default via {plan.router} dev eth0",
        ],
        inside=first_process,
    )


def _wait_for_one(processes: Sequence[int]) -> None:
    """Wait until one of the processes ends."""
    poll = select.poll()
    for process in processes:
        poll.register(os.pidfd_open(process), select.POLLIN)
    poll.poll()


if __name__ == "__main__":
    sys.exit(main())
