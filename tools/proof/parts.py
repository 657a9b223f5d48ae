"""The parts of ``make proof`` and their sizes. Pure.

A part is a list of commands. Each result is stored when the command has ended, so a part that takes
hours is split into commands that take minutes.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.run_parts import NAMES as CONFORMANCE_PARTS

MINORS: Final = ("1.34", "1.35", "1.36", "1.37")
NATIVE_GROUPS_MINOR: Final = "1.37"
"""The first minor that has its own PodGroups."""
CHART_MINORS: Final = ("1.34", "1.35", "1.37")
"""Minors in addition to the one that `make e2e-helm` uses."""
CHAOS_SEEDS: Final = 2_000
FAULT_SEEDS: Final = 62
"""Two rounds of the 31 faults."""
REAL_FAULT_SEEDS: Final = 31
ALLOCATION_CASES: Final = 10_000
OPENB_SEEDS: Final = "42-51"
OPENB_NODES: Final = "openb_node_list_gpu_node.csv"
OPENB_PODS: Final = ("default", "cpu250", "gpushare100", "multigpu50", "gpuspec33")


@dataclass(frozen=True, slots=True)
class ProofPart:
    """One statement, and the commands that prove it."""

    name: str
    title: str
    commands: tuple[str, ...]


def parts(openb: Path | None) -> tuple[ProofPart, ...]:
    """All parts. ``openb`` is the folder of openb's files, which do not belong to dray; without it,
    that part has no commands."""
    return (
        ProofPart("test", "Everything that needs no Go", ("make check", "make test")),
        ProofPart(
            "pythons",
            "Objects at their limits are read on every Python of this machine",
            ("make test-pythons",),
        ),
        ProofPart(
            "explore", "No interleaving of small worlds breaks an invariant", ("make explore",)
        ),
        ProofPart(
            "chaos",
            "Simulated services under seeded faults keep every promise",
            _seeds("make chaos", CHAOS_SEEDS, 250),
        ),
        ProofPart(
            "faults",
            "Whole stacks outlive killed and stopped processes",
            _seeds("make faults", FAULT_SEEDS, 16),
        ),
        ProofPart(
            "faults-real",
            "The same on the real control plane",
            _seeds("make faults CONTROL_PLANE=real", REAL_FAULT_SEEDS, 11),
        ),
        ProofPart(
            "real",
            "The main job and further tests on the real control plane",
            (
                "make demo",
                "make demo CONTROL_PLANE=real",
                "make test-real",
                f"make test-real K8S={NATIVE_GROUPS_MINOR} TESTS=tests/native_groups",
            ),
        ),
        ProofPart(
            "nodes",
            "Pods run on real kubelets, and nodes may fail, go and come back",
            ("make node-packages", *(f"make test-node K8S={minor}" for minor in MINORS)),
        ),
        ProofPart(
            "images",
            "Each service has a small image that runs as nobody, and Compose brings them up",
            ("make packaging-packages", "make images BASE=debian", "make e2e-compose"),
        ),
        ProofPart(
            "chart",
            "The chart is installed, upgraded under load, rolled back and uninstalled",
            (
                "make packaging-packages",
                "make e2e-helm",
                *(f"make e2e-helm SHORT=1 K8S={minor}" for minor in CHART_MINORS),
            ),
        ),
        ProofPart(
            "conformance",
            "What dray says about Kubernetes is true on every minor",
            tuple(
                f"make conformance REAL_ONLY=1 K8S={minor} PARTS={part}"
                for minor in MINORS
                for part in CONFORMANCE_PARTS
            ),
        ),
        ProofPart(
            "allocation",
            "Offline decisions are those of Kubernetes' allocator",
            tuple(f"make oracle-allocation K8S={m} CASES={ALLOCATION_CASES}" for m in MINORS),
        ),
        ProofPart(
            "openb",
            "How much of a recorded cluster's GPUs the policies allocate",
            _openb_commands(openb) if openb else (),
        ),
    )


def _seeds(command: str, count: int, at_once: int) -> tuple[str, ...]:
    return tuple(
        f"{command} FIRST={first} SEEDS={min(at_once, count - first)}"
        for first in range(0, count, at_once)
    )


def _openb_commands(folder: Path) -> tuple[str, ...]:
    return tuple(
        f".venv/bin/dray simulate openb --nodes {shlex.quote(str(folder / OPENB_NODES))} "
        f"--pods {shlex.quote(str(folder / f'openb_pod_list_{pods}.csv'))} --policy {policy} "
        f"--ties name --seeds {OPENB_SEEDS} --jobs 2"
        for pods in OPENB_PODS
        for policy in ("fgd", "fragmentation-aware")
    )


NAMES: Final = tuple(part.name for part in parts(None))
