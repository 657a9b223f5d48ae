"""The plan of one run: pods, and faults of processes. Pure.

A seed determines the plan, not the outcome, which depends on the processes' timing.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

FAULTS_S = 6.0
"""Period in which pods are created and faults start."""
PAUSES_S = (2.0, 2.0, 3.5)
"""A tenth of 20 s and of 35 s: longer than the leases, which are also shortened to a tenth."""
LONGEST_OUTAGE_S = 2.0
_CHANGES = 60
"""Fewer changes of claims than a run has."""
NATS = "nats-server"
NAMESPACE, TENANT = "default", "tenant"
TRUSTED = frozenset({"etcd"})
"""Processes without faults."""
DEDICATED, SHARED = "my-gpu-pool", "default"
POOLS = (DEDICATED, SHARED)
GPUS_PER_NODE = 3

REFUSED = (
    "patch a claim",
    "patch a claim's status",
    "patch a pod",
    "bind a pod",
    "create a template",
    "create a BindRequest",
)
"""Requests that fail for one namespace, by their names in the simulation."""
TENANT_PODS = 3
"""Pods of that namespace."""

GANGS = ("gang-one", "gang-two")
"""PodGroups that compete for the dedicated nodes."""

Kind = Literal["kill", "pause", "empty", "refuse"]


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod that a user creates, and deletes after ``life_s``."""

    name: str
    at_s: float
    pool: str
    gpus: int
    tflops: int
    vram_gib: int
    life_s: float | None
    """None: until the end."""
    namespace: str = NAMESPACE
    group: str = ""
    """Its PodGroup."""


@dataclass(frozen=True, slots=True)
class StackFault:
    """A fault of one process that ends after ``for_s``, or a refusal of one kind of requests in one
    namespace that ends last."""

    at_s: float
    kind: Kind
    target: str
    for_s: float
    at_change: int = 0
    """Start after this number of changes of claims if that is earlier."""

    def __str__(self) -> str:
        texts = {
            "kill": f"kill -9 {self.target}, restart after {self.for_s:.1f} s",
            "pause": f"SIGSTOP {self.target}, SIGCONT after {self.for_s:.1f} s",
            "refuse": f"answer 500 to requests to {self.target} of the tenant, until the end",
            "empty": f"kill -9 {self.target}, restart with an empty store after {self.for_s:.1f} s",
        }
        sooner = f", or at change {self.at_change} of a claim" if self.at_change else ""
        return f"{self.at_s:6.2f} s{sooner}  {texts[self.kind]}"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One run."""

    seed: int
    pods: tuple[PlannedPod, ...]
    faults: tuple[StackFault, ...]
    """Faults of different processes, by start time."""
    final_fault: StackFault | None
    """Starts when everything is deleted; ``at_s`` counts from then."""
    deleted_share: float
    """Share of the running pods that is deleted if others wait for GPUs."""
    groups: tuple[str, ...] = GANGS
    """PodGroups; all of their pods start together or not at all."""

    def size(self, group: str) -> int:
        """The number of a group's pods, which is its minimum."""
        return sum(pod.group == group for pod in self.pods)

    def lines(self) -> list[str]:
        """A readable description."""
        last = [f"{self.final_fault} (after everything is deleted)"] if self.final_fault else []
        return [*map(str, self.faults), *last]


def draw(seed: int, processes: Iterable[str]) -> FaultPlan:
    """The plan of a seed for a stack of these processes.

    The first fault rotates: consecutive seeds have each possible fault once.
    """
    draw = random.Random(f"faults-{seed}")
    rounds = possible(processes)
    first = _fault(draw, *rounds[seed % len(rounds)], at_s=draw.uniform(0.3, FAULTS_S * 0.7))
    passing = [one for one in rounds if one[0] != "refuse"]
    faults = [first]
    for _ in range(draw.choice((1, 1, 2, 3))):
        kind, target = draw.choice(passing)
        at_s, at_change = draw.uniform(0.3, FAULTS_S), 0
        match draw.choice(("overlap", "overlap", "amid", "any")):
            case "overlap":
                at_s = draw.uniform(first.at_s, first.at_s + first.for_s)
            case "amid":
                at_s, at_change = FAULTS_S, draw.randint(1, _CHANGES)
        if target not in {fault.target for fault in faults}:
            faults.append(_fault(draw, kind, target, at_s=at_s, at_change=at_change))
    ending = _fault(draw, *draw.choice(passing), at_s=draw.uniform(0.0, 0.5))
    pods = [_planned_pod(draw, f"pod-{number}") for number in range(draw.randint(10, 16))]
    if any(fault.kind == "refuse" for fault in faults):
        pods += [
            replace(_planned_pod(draw, f"{TENANT}-{number}"), namespace=TENANT)
            for number in range(TENANT_PODS)
        ]
    return FaultPlan(
        seed,
        (*pods, *_gangs(seed)),
        tuple(sorted(faults, key=lambda fault: fault.at_s)),
        ending if draw.random() < 0.4 else None,
        draw.uniform(0.3, 0.8),
    )


def possible(processes: Iterable[str]) -> list[tuple[Kind, str]]:
    """All faults: each process killed and stopped, NATS also emptied, and each kind of request
    refused, spread among the others."""
    names = sorted(processes)
    found: list[tuple[Kind, str]] = [("kill", name) for name in names]
    found.insert(len(names) // 2, ("empty", NATS))
    found += [("pause", name) for name in names]
    apart = len(found) // len(REFUSED) + 1
    for number, target in enumerate(REFUSED):
        found.insert(number * (apart + 1), ("refuse", target))
    return found


def _fault(
    draw: random.Random, kind: Kind, target: str, *, at_s: float, at_change: int = 0
) -> StackFault:
    match kind:
        case "pause":
            for_s = draw.choice(PAUSES_S)
        case "refuse":
            at_s, at_change, for_s = draw.choice((0.0, at_s)), 0, FAULTS_S
        case _:
            for_s = draw.uniform(0.0, LONGEST_OUTAGE_S)
    return StackFault(round(at_s, 2), kind, target, round(for_s, 2), at_change)


def _gangs(seed: int) -> Iterator[PlannedPod]:
    """Two gangs of equal pods with whole GPUs: often there is room for one of them."""
    draw = random.Random(f"faults-gangs-{seed}")
    size, gpus = draw.choice(((2, 3), (2, 2), (3, 1), (4, 1)))
    for group in GANGS:
        for number in range(size):
            at_s = round(draw.uniform(0.0, FAULTS_S * 0.8), 2)
            yield PlannedPod(f"{group}-{number}", at_s, DEDICATED, gpus, 300, 4, None, group=group)


def _planned_pod(draw: random.Random, name: str) -> PlannedPod:
    gpus, tflops = draw.choice(((1, 50), (1, 150), (1, 200), (2, 150), (3, 100), (3, 300)))
    return PlannedPod(
        name,
        round(draw.uniform(0.0, FAULTS_S * 0.8), 2),
        draw.choice(POOLS),
        gpus,
        tflops,
        draw.choice((4, 10, 20)),
        round(draw.uniform(0.2, 4.0), 2) if draw.random() < 0.4 else None,
    )
