"""The processes of real nodes: their command lines and checks. Pure, but for the checks."""

import asyncio
import os
import re
import sys
from pathlib import Path
from signal import SIGTERM

from dray_sandbox.node.configuration import (
    CONTAINERD_SOCKET,
    KUBELET_HEALTH_PORT,
    PROXY_HEALTH_PORT,
    PROXY_METRICS_PORT,
)
from dray_sandbox.node.machine import MachinePlan
from dray_sandbox.node.network import API_NAMES, ClusterNetwork
from dray_sandbox.node.programs import NodePrograms
from dray_sandbox.probes import answers, resolves, runs_containers
from dray_sandbox.processes import ProcessSpec, Ready

_NETWORK = "network"
_NETWORK_ORDER, _INSIDE_ORDER, _MACHINE_ORDER = -1, 8, 9
"""A machine stops before the programs in it, so that everything in the node ends at once."""
_ENTER = str(Path(__file__).with_name("enter.py"))
_ALL_NAMESPACES = "mnt,pid,net,uts,ipc"
_OF_SERVICES = "mnt,pid"
"""A service shares the node's files and ends with the node. It does not join the node's network,
because NATS is in this machine's."""
_STAND_IN_DEVICES = ("/dev/fuse", "/dev/null")
"""Containers may open the first only if they are given it; every machine has the second."""
_RULES_WRITTEN = re.compile(
    r'^kubeproxy_sync_proxy_rules_last_timestamp_seconds(\{ip_family="IPv4"\})? [1-9]', re.MULTILINE
)
"""The kube-proxy metric that says when it last wrote its rules. Its health page answers before it
has written any."""
MACHINE, CONTAINERD, KUBELET, KUBE_PROXY = "machine", "containerd", "kubelet", "kube-proxy"


def name_of(program: str, node: str) -> str:
    """The name of a node's process, such as ``kubelet-sim-1``."""
    return f"{program}-{node}"


def service_in_node(machine_pid_file: Path) -> tuple[str, ...]:
    """The beginning of a command line that runs a service in a node."""
    return (sys.executable, "-I", "-S", _ENTER, str(machine_pid_file), _OF_SERVICES)


def stand_in_device() -> str:
    """The device file that containers see for simulated GPUs."""
    return next(path for path in _STAND_IN_DEVICES if Path(path).exists())


def network(addresses: ClusterNetwork, pid_file: Path) -> ProcessSpec:
    """The router of all nodes."""
    module = (sys.executable, "-m", "dray_sandbox.node.router")
    return ProcessSpec(
        name=_NETWORK,
        argv=("unshare", "--net", *module, str(addresses.number), str(pid_file)),
        ready=_names_a_process(pid_file),
        order=_NETWORK_ORDER,
        pid_file=pid_file,
    )


def registry(directory: Path, host: str, port: int) -> ProcessSpec:
    """The registry of the images in ``directory``."""
    flags = (f"--directory={directory}", f"--host={host}", f"--port={port}")
    url = f"http://{host}:{port}/v2/"
    return ProcessSpec(
        name="registry",
        argv=(sys.executable, "-m", "dray_sandbox.registry", *flags),
        ready=answers(url),
        health_url=url,
        order=_INSIDE_ORDER,
    )


def coredns(
    programs: NodePrograms, corefile: Path, health_url: str, host: str, port: int
) -> ProcessSpec:
    """CoreDNS, on this machine; ready once it has read the Services."""
    return ProcessSpec(
        name="coredns",
        argv=(programs.coredns, "-conf", str(corefile)),
        ready=resolves(API_NAMES[-1], host, port),
        health_url=health_url,
        order=_INSIDE_ORDER,
    )


def machine(plan: MachinePlan, plan_file: Path, programs: NodePrograms) -> ProcessSpec:
    """A node's namespaces; the processes below need it."""
    module = (sys.executable, "-m", "dray_sandbox.node.machine")
    return ProcessSpec(
        name=name_of(MACHINE, plan.name),
        argv=(*module, str(plan_file), programs.pause),
        ready=_names_a_process(plan.pid_file),
        order=_MACHINE_ORDER,
        parent_death_signal=SIGTERM,  # it removes the cgroup
        pid_file=plan.pid_file,
    )


def containerd(plan: MachinePlan, programs: NodePrograms, configuration: Path) -> ProcessSpec:
    """The container runtime."""
    return ProcessSpec(
        name=name_of(CONTAINERD, plan.name),
        argv=_inside(plan, programs.containerd, f"--config={configuration}"),
        # When containerd restarts, it looks for the shim's program only in PATH.
        environment={"PATH": f"{Path(programs.shim).parent}{os.pathsep}{os.environ['PATH']}"},
        ready=runs_containers(Path(plan.directory) / CONTAINERD_SOCKET.lstrip("/")),
        order=_INSIDE_ORDER,
    )


def kubelet(
    plan: MachinePlan, programs: NodePrograms, configuration: Path, kubeconfig: Path, labels: str
) -> ProcessSpec:
    """The kubelet, which gives a new Node ``labels`` (``KEY=VALUE,…``)."""
    flags = (
        f"--config={configuration}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={plan.name}",
        f"--node-ip={plan.address}",
        *([f"--node-labels={labels}"] if labels else ()),
        "--v=2",
    )
    url = f"http://{plan.address}:{KUBELET_HEALTH_PORT}/healthz"
    return ProcessSpec(
        name=name_of(KUBELET, plan.name),
        argv=_inside(plan, programs.kubelet, *flags),
        ready=answers(url),
        health_url=url,
        order=_INSIDE_ORDER,
    )


def kube_proxy(plan: MachinePlan, programs: NodePrograms, configuration: Path) -> ProcessSpec:
    """kube-proxy, which makes Services work in the node; ready once it has written its rules."""
    metrics = f"http://{plan.address}:{PROXY_METRICS_PORT}/metrics"
    url = f"http://{plan.address}:{PROXY_HEALTH_PORT}/healthz"
    return ProcessSpec(
        name=name_of(KUBE_PROXY, plan.name),
        argv=_inside(plan, programs.kube_proxy, f"--config={configuration}"),
        ready=answers(metrics, text=_RULES_WRITTEN),
        health_url=url,
        order=_INSIDE_ORDER,
    )


def _inside(plan: MachinePlan, *command: str) -> tuple[str, ...]:
    enter = (sys.executable, "-I", "-S", _ENTER, str(plan.pid_file), _ALL_NAMESPACES)
    return (*enter, *command)


def _names_a_process(pid_file: Path) -> Ready:
    def check() -> bool:
        try:
            return Path(f"/proc/{int(pid_file.read_text())}").exists()
        except (FileNotFoundError, ValueError):
            return False

    return lambda: asyncio.to_thread(check)
