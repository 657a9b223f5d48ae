"""The kubelet stand-ins of a stack: one process for all simulated nodes."""

import sys
from pathlib import Path

import msgspec

from dray_sandbox.access import KUBELET
from dray_sandbox.processes import Program
from dray_sandbox.services import Wiring

NAME = "kubelet"


def kubelet_program(wiring: Wiring, directory: Path) -> Program:
    """The process; its nodes are written to a file in ``directory``."""
    nodes = []
    for node in wiring.options.nodes:
        folders = wiring.folders(node.name)
        nodes.append(
            {
                "name": node.name,
                "labels": dict(node.labels),
                "cpu": node.cpu,
                "memory": node.memory,
                "pods": node.pods,
                "plugins_dir": str(folders.plugins),
                "registry_dir": str(folders.registry),
                "cdi_dir": str(folders.cdi),
                "state_dir": str(folders.root / "kubelet"),
            }
        )
    path = directory / "nodes.json"
    path.write_bytes(msgspec.json.encode({"nodes": nodes}))
    kubeconfig = wiring.endpoint.kubeconfigs[KUBELET]
    argv = (sys.executable, "-m", "dray_sandbox.kubelet", f"--kubeconfig={kubeconfig}")
    return Program(name=NAME, argv=(*argv, f"--nodes={path}"), order=15)
