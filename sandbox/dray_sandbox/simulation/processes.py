"""The processes of a simulation, dray's and Kubernetes', and the nodes."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dray.kube.memory import MemoryKube
from dray_sandbox.simulation import actors
from dray_sandbox.simulation.cluster import DEDICATED, SHARED
from dray_sandbox.simulation.faulty_adapters import FaultyBus
from dray_sandbox.simulation.loop import Process

NODES = {"n1": DEDICATED, "n2": DEDICATED, "n3": SHARED, "n4": SHARED}
CARDS = 2
"""Of every node."""
OWN = ("cc-1", "cc-2", "alloc-1", "alloc-2", *(f"agent-{node}" for node in NODES))
"""Dray's processes."""


@dataclass(slots=True)
class SimulatedProcess:
    """A process with all its restarts."""

    name: str
    begin: actors.Life
    process: Process | None = None
    running: actors.RunningLoops | None = None
    bus: FaultyBus | None = None
    kube: Any = None
    lives: int = 0
    keeps_name: bool = True


def all_processes(
    seed: int, draw: random.Random, boards: Mapping[str, actors.SimulatedNodeGpus], kube: MemoryKube
) -> dict[str, SimulatedProcess]:
    """All processes by name, none started; their options are drawn from the seed."""
    lives = {
        "cc-1": actors.claim_controller,
        "cc-2": actors.claim_controller,
        "alloc-1": actors.allocator,
        "alloc-2": actors.allocator,
        **{f"agent-{n}": actors.node_agent(b, actors.Disk()) for n, b in boards.items()},
        "k-claims": actors.claims_controller(watch_templates=draw.random() < 0.7),
        "k-scheduler": actors.scheduler,
        "k-allocates": actors.allocating_scheduler(random.Random(f"{seed}-allocates")),
        "k-lets": actors.kubelets,
        "k-garbage": actors.garbage_collector(kube),
    }
    return {
        name: SimulatedProcess(name, begin, keeps_name=draw.random() < 0.5)
        for name, begin in lives.items()
    }
