"""Fleets whose pods come and go, for the allocator's rows, and the measurement of their times."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from benchmarks import decision
from benchmarks.machine import add_a_thousand, percentiles
from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation, Claim, ClaimSpec, DeviceRequest
from dray.api.devices import DeviceId, ResourceSlice
from dray.api.quantities import quantity_of
from dray.messages.facts import ClaimObserved, SliceObserved
from dray.user_guide_form.selector import generated_selector
from dray_allocator.cycle import step
from dray_allocator.placement.fast_path.table_choice import index_of
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.schedule import schedule_pod
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

POOL = decision.POOL
CARDS = decision.GPUS_PER_NODE
FRACTIONS = (0.1, 0.25, 0.5, 1.0)
TFLOPS, GIB = 312, 40
PHASES = ("Running", "Pending")
ON_ONE_NODE = 20
"""Pods that run from the start if only one node fits: a quarter of the node's capacity."""
SELECTOR = generated_selector("A100", POOL, quantity_of(10), 20 * 2**30)
"""Six clauses; the fourth is false for a small card."""


class Fits(Enum):
    """The nodes with cards that pods can use; the cards of other nodes are too small."""

    ALL = "all"
    MIDDLE = "middle"
    FIRST = "first"

    def takes(self, number: int, nodes: int) -> bool:
        """Whether node ``number`` is one of them."""
        return self is Fits.ALL or number == (nodes // 2 if self is Fits.MIDDLE else 0)


@dataclass(slots=True)
class Taken:
    """Microseconds of wall time and of the thread's CPU time."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def time(self, what: Any, *arguments: Any) -> Any:
        """Call ``what`` and note the time that it took."""
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        found = what(*arguments)
        self.wall.append((time.perf_counter_ns() - wall) / 1e3)
        self.cpu.append((time.thread_time_ns() - cpu) / 1e3)
        return found

    def forget(self) -> None:
        """Drop the times so far: those of the warm-up do not count."""
        self.wall.clear()
        self.cpu.clear()

    def row(self) -> dict[str, float]:
        """Medians and 99th percentiles."""
        wall, cpu = percentiles(self.wall), percentiles(self.cpu)
        return {
            "p50": wall["p50"],
            "p99": wall["p99"],
            "cpu p50": cpu["p50"],
            "cpu p99": cpu["p99"],
            "n": wall["samples"],
        }


class Fleet(decision.Fleet):
    """A fleet in use, whose pods come and go."""

    def __init__(
        self,
        gpus: int,
        shapes: int,
        in_use: float,
        fits: Fits = Fits.ALL,
        policy: str = names.COMPACT_FIRST,
    ) -> None:
        self.nodes = gpus // CARDS
        self.fits = fits
        super().__init__(self.nodes, self.slice_of, policy)
        self.random = Random(7)
        self.shapes = tuple(shape(number) for number in range(shapes))
        self.running: list[Claim] = []
        self.last: PodRequest
        """The request that was decided last."""
        if fits is Fits.ALL:
            self._fill(gpus, in_use)

    def slice_of(self, node: str, generation: int = 1, phase: str = "Running") -> ResourceSlice:
        """A node's slice."""
        suits = self.fits.takes(int(node.removeprefix("node-")), self.nodes)
        return decision.slice_of(node, generation, phase, f"{GIB}Gi" if suits else "16Gi")

    def _fill(self, gpus: int, in_use: float) -> None:
        for number in range(gpus):
            if self.random.random() < in_use:
                node = f"node-{number // CARDS}"
                device = DeviceId(names.DRIVER, node, f"{node}-gpu-{number % CARDS}")
                self._run(f"old-{number}", device, self.random.choice(FRACTIONS))

    def _run(self, uid: str, device: DeviceId, fraction: float) -> None:
        share = AllocatedDevice(names.GPU_REQUEST, device, None, asked(fraction))
        claim = Claim(uid, "ns", uid, 1, POOL, self.shapes[0], allocation=Allocation((share,)))
        self.see(ClaimObserved(revision=1, claim=claim))
        self.running.append(claim)

    def begin(self, uid: str, spec: ClaimSpec, taken: Taken) -> None:
        """Add a pod, decide it and commit it."""
        claim_fact, pod_fact = decision.pod_facts(uid, spec=spec)
        self.see(claim_fact)
        allocation = decision.allocation_in(taken.time(self.see, pod_fact))
        claim = replace(claim_fact.claim, allocation=allocation)
        self.see(ClaimObserved(revision=2, claim=claim))
        self.running.append(claim)

    def end_one(self) -> None:
        """End a running pod."""
        last, at = len(self.running) - 1, self.random.randrange(len(self.running))
        self.running[at], self.running[last] = self.running[last], self.running[at]
        self.see(ClaimObserved(revision=3, claim=self.running.pop(), deleted=True))

    def change(self, fact: SliceObserved) -> None:
        """Apply a slice, until the next decision could be made."""
        self.see(fact)
        index_of(self.state, self.state.domains[POOL], self.last)


def shape(number: int, milli: int = 0) -> ClaimSpec:
    """The request of pods of one shape. All shapes differ, also by ``milli``."""
    fraction = FRACTIONS[number % len(FRACTIONS)]
    capacity = asked(fraction)
    capacity["virtual_tflops"] = str(max(1, int(TFLOPS * fraction) - number // 4))
    if milli:
        capacity["virtual_tflops"] = f"{10_000 + milli}m"
    made = DeviceRequest(names.GPU_REQUEST, names.DEVICE_CLASS, (SELECTOR,), capacity=capacity)
    return ClaimSpec((made,))


def asked(fraction: float) -> dict[str, str]:
    """A fraction of a card."""
    return {
        "virtual_tflops": str(int(TFLOPS * fraction)),
        "virtual_vram": f"{int(GIB * 1024 * fraction)}Mi",
    }


@dataclass(slots=True)
class Measured:
    """A fleet, and the times of its decisions."""

    fleet: Fleet
    rows: dict[str, Taken]


def measure(fleet: Fleet, samples: int) -> Measured:
    """Time ``samples`` decisions with the shapes in turn, then new shapes and changed slices."""
    chosen, handled, yard = Taken(), Taken(), Taken()

    def timed(
        state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, most: Any
    ) -> Any:
        fleet.last = wanted
        return chosen.time(schedule_pod, state, domain, wanted, most)

    try:
        with patch.object(step, "schedule_pod", timed):
            while len(fleet.running) < ON_ONE_NODE:
                fleet.begin(f"first-{len(fleet.running)}", fleet.shapes[0], Taken())
            for number, spec in enumerate(fleet.shapes):
                _turn(fleet, f"warm-{number}", spec, Taken())
            gc.collect()
            gc.freeze()
            chosen.forget()
            for number in range(samples):
                spec = fleet.shapes[number % len(fleet.shapes)]
                _turn(fleet, f"pod-{number}", spec, handled)
                yard.time(add_a_thousand)
            rows = {"choose": chosen, "handle": handled}
            if fleet.fits is Fits.ALL:
                rows |= {"new shape": _new_shapes(fleet, chosen), "slice": _changes(fleet, samples)}
    finally:
        gc.unfreeze()
    return Measured(fleet, {**rows, "yard": yard})


def _turn(fleet: Fleet, uid: str, spec: ClaimSpec, taken: Taken) -> None:
    fleet.begin(uid, spec, taken)
    fleet.end_one()


def _new_shapes(fleet: Fleet, chosen: Taken, count: int = 20) -> Taken:
    """Time the choice for pods unlike any before."""
    known = len(chosen.wall)
    for number in range(1, count + 1):
        _turn(fleet, f"new-{number}", shape(0, number), Taken())
    found = Taken(chosen.wall[known:], chosen.cpu[known:])
    del chosen.wall[known:], chosen.cpu[known:]
    return found


def _changes(fleet: Fleet, samples: int) -> Taken:
    changed = Taken()
    make: Callable[[str, int, str], ResourceSlice] = fleet.slice_of
    for number in range(min(samples, 500)):
        node = f"node-{fleet.random.randrange(fleet.nodes)}"
        part = make(node, number + 2, PHASES[number % 2])
        changed.time(fleet.change, SliceObserved(revision=number + 2, slice=part))
    return changed
