"""The published protocol: the order in which pods arrive, and what is measured.

As in "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent" (USENIX ATC '23) and its artefact: pods by name, shuffled with the seed, then copies of
pods picked at random, while all pods together ask for at most 130 % of the cards. No pod ends. A
pod that doesn't fit is dropped, and is not tried again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from dray_cli.simulate.trace import ClusterTrace, TracePod

ARRIVED: Final = (90, 100, 130)
"""The allocated cards are measured when these percentages of the cards were asked for."""
_RATIO: Final = 1.3
_STEPS: Final = 20


class PlacementPolicy(Protocol):
    """A scheduler with its cluster."""

    def place(self, pod: TracePod) -> bool:
        """Give the pod a node and cards; False if it fits nowhere."""


@dataclass(frozen=True, slots=True)
class PlacementOutcome:
    """The result of one run."""

    allocated: tuple[float, ...]
    """The allocated percentage of the cards, at each of ``ARRIVED``."""
    pods: int
    dropped: int


def workload(trace: ClusterTrace, seed: int) -> list[TracePod]:
    """The pods in the order in which they arrive."""
    random = Random(seed)
    pods = list(trace.pods)
    random.shuffle(pods)
    asked = sum(pod.gpu_milli for pod in pods)
    while True:
        copy = random.choice(trace.pods)
        asked += copy.gpu_milli
        if asked > _RATIO * trace.gpu_milli:
            return pods
        pods.append(copy)


def run(
    policy: PlacementPolicy,
    pods: Iterable[TracePod],
    gpu_milli: int,
    tell: Callable[[float], None] = lambda _: None,
) -> PlacementOutcome:
    """Let the pods arrive. ``tell``: called in steps with the share that has arrived so far."""
    arrived = allocated = dropped = count = 0
    found = [0.0] * len(ARRIVED)
    reported = 0
    for pod in pods:
        count += 1
        arrived += pod.gpu_milli
        if policy.place(pod):
            allocated += pod.gpu_milli
        else:
            dropped += 1
        for at, per_cent in enumerate(ARRIVED):
            if 100 * arrived <= per_cent * gpu_milli:
                found[at] = 100 * allocated / gpu_milli
        if _STEPS * arrived >= (reported + 1) * _RATIO * gpu_milli:
            reported += 1
            tell(arrived / gpu_milli)
    return PlacementOutcome(tuple(found), count, dropped)
