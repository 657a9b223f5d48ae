"""``python -m dray_sandbox.node.boot PLAN PAUSE``: the work of a node's first process.

Run it as the first process of new namespaces. It makes the node's own mounts, prints ``ready`` and
becomes ``PAUSE``, which reaps orphans.

| path in the node | where its content is |
|---|---|
| /run, empty after each boot | ``run`` |
| /var/lib/kubelet, /var/lib/containerd, /var/lib/dray | ``kubelet``, ``containerd``, ``dray`` |
| /var/log/pods, /var/log/containers | ``log`` |
| the rest of /var/lib and /var/log | this machine's files; changes are in memory |
| everything else | this machine's files |
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

from dray_sandbox.node.machine import MachinePlan, read_plan
from dray_sandbox.node.router import forward_packets

_KEPT = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/lib/dray": "dray",
    "/var/log/pods": "log/pods",
    "/var/log/containers": "log/containers",
}
"""Folders that survive a boot, by their paths in the node; values are below the node's folder."""
CHANGED_IN_MEMORY = ("/var/lib", "/var/log")
"""Folders of this machine in which only the node sees its changes."""
_KUBELETS_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Kernel-wide settings that a kubelet changes. It finds them already set, in files of the node."""
_SCRATCH = Path("/mnt")
"""A folder that every Linux has; only the node sees what is mounted there."""


def main() -> int:
    """Set up the node, then execute the second argument."""
    plan, pause = read_plan(Path(sys.argv[1])), sys.argv[2]
    # Until /proc is the node's own, its "self" has the process id that this machine knows.
    print(os.readlink("/proc/self"), flush=True)
    _mount("proc", "/proc", kind="proc")
    _mount("tmpfs", str(_SCRATCH), kind="tmpfs")
    _mount_folders(plan)
    _hide_kernel_settings()
    socket.sethostname(plan.name)
    forward_packets()
    os.chdir("/")
    # Volumes with mount propagation need this; the mounts still end with the namespace.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    print("ready", flush=True)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, sys.stdout.fileno())
    os.execv(pause, [f"node {plan.name}"])


def _mount_folders(plan: MachinePlan) -> None:
    for path in CHANGED_IN_MEMORY:
        layers = _SCRATCH / path.strip("/").replace("/", "-")
        upper, work = layers / "upper", layers / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        options = f"lowerdir={path},upperdir={upper},workdir={work}"
        _mount("overlay", path, kind="overlay", options=options)
    for path, kept in _KEPT.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        _bind(Path(plan.directory) / kept, path)
    _bind(Path(plan.directory) / "run", "/run")


def _hide_kernel_settings() -> None:
    for name, value in _KUBELETS_SETTINGS.items():
        path = Path("/proc/sys", name)
        if path.exists():
            own = _SCRATCH / name.replace("/", "-")
            own.write_text(value)
            _bind(own, str(path))


def _bind(source: Path, target: str) -> None:
    subprocess.run(["mount", "--bind", str(source), target], check=True)


def _mount(source: str, target: str, *, kind: str, options: str = "") -> None:
    flags = ["-o", options] if options else []
    subprocess.run(["mount", "-t", kind, *flags, source, target], check=True)


if __name__ == "__main__":
    sys.exit(main())
