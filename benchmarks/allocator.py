"""The allocator's hot path: ``python -m benchmarks.allocator``.

Fleets of nodes with eight cards, three quarters of them in use. Pods of several shapes are decided
in turns, and as many that run already end, so that the fleet stays as full. Every node is scored
for every decision, by the policy that is named. Timed are

choose   the pod's wants in, node and cards out: what Kubernetes' allocator does node by node
handle   the pod's fact in, the record for the decision log out; nothing is left out
slice    a node's slice with eight changed cards, until the next decision could be taken

yard     a thousand additions in a loop, between the decisions: on an idle machine of the kind named
         in docs/performance.md some 35 µs; where it is more, so is everything else

The wall clock is the one people wait for, the thread's own clock tells what the machine's other
work added to it. The upstream Go allocator, the peer of these rows, is asked by
``tests/conformance/oracle``; a row with it belongs here, in the same run.
"""

import gc
import json
import os
import resource
import time
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import click

from benchmarks import decision
from benchmarks.machine import machine, percentiles
from dray.domain import names
from dray.domain.claims import AllocatedDevice, Allocation, Claim, ClaimSpec, DeviceRequest
from dray.domain.devices import DeviceId
from dray.messages.facts import ClaimObserved, SliceObserved
from dray_allocator import deciding
from dray_allocator.domain import Domain
from dray_allocator.placement.ask import Wanted
from dray_allocator.placement.choose import choose, index_of
from dray_allocator.state import AllocatorState

POOL = decision.POOL
CARDS = decision.GPUS_PER_NODE
IN_USE = 0.75
FRACTIONS = (0.1, 0.25, 0.5, 1.0)
TFLOPS, GIB = 312, 40
PHASES = ("Running", "Pending")


@dataclass(slots=True)
class Taken:
    """Microseconds by the wall's clock and by the thread's."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def time(self, what: Any, *arguments: Any) -> Any:
        """Call it and note what that took."""
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        found = what(*arguments)
        self.wall.append((time.perf_counter_ns() - wall) / 1e3)
        self.cpu.append((time.thread_time_ns() - cpu) / 1e3)
        return found

    def forget(self) -> None:
        """What was taken to warm up does not count."""
        self.wall.clear()
        self.cpu.clear()

    def row(self) -> dict[str, float]:
        """Medians and 99th percentiles."""
        wall, cpu = percentiles(self.wall), percentiles(self.cpu)
        return {"p50": wall["p50"], "p99": wall["p99"], "cpu p50": cpu["p50"], "n": wall["samples"]}


class Fleet(decision.Fleet):
    """A fleet in use, whose pods come and go."""

    def __init__(
        self, gpus: int, shapes: int, in_use: float = IN_USE, policy: str = names.COMPACT_FIRST
    ) -> None:
        super().__init__(gpus // CARDS, policy)
        self.random = Random(7)
        self.shapes = tuple(shape(number) for number in range(shapes))
        self.running: list[Claim] = []
        self.last: Wanted
        """What was decided upon last."""
        self._fill(gpus, in_use)

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

    def decide(self, uid: str, spec: ClaimSpec, taken: Taken) -> None:
        """A pod comes, is decided and committed; one that runs ends."""
        claim_fact, pod_fact = decision.pod_facts(uid, spec=spec)
        self.see(claim_fact)
        allocation = decision.allocation_in(taken.time(self.see, pod_fact))
        claim = replace(claim_fact.claim, allocation=allocation)
        self.see(ClaimObserved(revision=2, claim=claim))
        self.running.append(claim)
        last = len(self.running) - 1
        at = self.random.randrange(len(self.running))
        self.running[at], self.running[last] = self.running[last], self.running[at]
        self.see(ClaimObserved(revision=3, claim=self.running.pop(), deleted=True))

    def change(self, fact: SliceObserved) -> None:
        """Take a slice in, until the next decision could be taken."""
        self.see(fact)
        index_of(self.state, self.state.domains[POOL], self.last)


def shape(number: int) -> ClaimSpec:
    """What pods of one shape ask for; all of them differ."""
    fraction = FRACTIONS[number % len(FRACTIONS)]
    capacity = {"virtual_tflops": str(max(1, int(TFLOPS * fraction) - number // 4))}
    capacity["virtual_vram"] = asked(fraction)["virtual_vram"]
    made = DeviceRequest(
        names.GPU_REQUEST, names.DEVICE_CLASS, (decision.SELECTOR,), capacity=capacity
    )
    return ClaimSpec((made,))


def asked(fraction: float) -> dict[str, str]:
    """A fraction of a card."""
    return {
        "virtual_tflops": str(int(TFLOPS * fraction)),
        "virtual_vram": f"{int(GIB * 1024 * fraction)}Mi",
    }


def measure(
    gpus: int,
    shapes: int,
    samples: int,
    in_use: float = IN_USE,
    policy: str = names.COMPACT_FIRST,
) -> dict[str, Taken]:
    """``samples`` decisions, the shapes taking turns, then as many changed slices."""
    fleet = Fleet(gpus, shapes, in_use, policy)
    chosen, handled, changed, yard = Taken(), Taken(), Taken(), Taken()

    def timed(state: AllocatorState, domain: Domain, wanted: Wanted) -> Any:
        fleet.last = wanted
        return chosen.time(choose, state, domain, wanted)

    real, deciding.choose = deciding.choose, timed
    try:
        for number, spec in enumerate(fleet.shapes):
            fleet.decide(f"warm-{number}", spec, Taken())
        gc.collect()
        gc.freeze()
        chosen.forget()
        for number in range(samples):
            fleet.decide(f"pod-{number}", fleet.shapes[number % shapes], handled)
            yard.time(_add)
    finally:
        deciding.choose = real
    for number in range(min(samples, 500)):
        node = f"node-{fleet.random.randrange(gpus // CARDS)}"
        part = decision.slice_of(node, generation=number + 2, phase=PHASES[number % 2])
        changed.time(fleet.change, SliceObserved(revision=number + 2, slice=part))
    gc.unfreeze()
    return {"choose": chosen, "handle": handled, "slice": changed, "yard": yard}


def _add() -> int:
    total = 0
    for number in range(1000):
        total += number
    return total


@click.command()
@click.option("--gpus", multiple=True, type=int, default=(1_000, 10_000, 100_000))
@click.option("--shapes", multiple=True, type=int, default=(1, 32), help="Shapes of pods in turns.")
@click.option("--samples", default=2_000, show_default=True, help="Decisions per row.")
@click.option("--in-use", default=IN_USE, show_default=True, help="Share of cards in use.")
@click.option("--policy", default=names.COMPACT_FIRST, show_default=True, help="Placement mode.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(
    gpus: tuple[int, ...],
    shapes: tuple[int, ...],
    samples: int,
    in_use: float,
    policy: str,
    output: str,
) -> None:
    """Measure deciding on this machine, in microseconds."""
    rows: list[dict[str, Any]] = []
    if output == "text":
        click.echo(f"{machine()}, load {os.getloadavg()[0]:.1f}\n")
    for count in gpus:
        for several in shapes:
            for what, taken in measure(count, several, samples, in_use, policy).items():
                head = {"gpus": count, "shapes": several, "what": what, "policy": policy}
                rows.append({**head, **taken.row()})
                if output == "text":
                    click.echo("  ".join(_told(name, one) for name, one in rows[-1].items()))
            gc.collect()
    used_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    growth = _growth(rows)
    if output == "text":
        click.echo(
            f"\np50 of choose at most by at fewest GPUs: {growth:.2f}; {used_mib} MiB at most"
        )
    else:
        found = {"machine": machine(), "load": os.getloadavg()[0], "rows": rows}
        click.echo(json.dumps({**found, "growth": growth, "most_mib": used_mib}, indent=2))


def _growth(rows: list[dict[str, Any]]) -> float:
    medians = [row["p50"] for row in rows if row["what"] == "choose"]
    shapes = max(1, len({row["shapes"] for row in rows}))
    return float(medians[-shapes] / medians[0])


def _told(name: str, value: Any) -> str:
    return f"{name} {value:8.1f}" if isinstance(value, float) else f"{name} {value}"


if __name__ == "__main__":
    main()
