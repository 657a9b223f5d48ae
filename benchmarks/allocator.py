"""The allocator's hot path: ``python -m benchmarks.allocator``.

Uses fleets of nodes with eight cards, three quarters of them in use. Pods of several shapes are
decided in turn, and as many running pods end, so that the fleet stays equally full. Every node is
scored for every decision (CompactFirst). These times are measured:

choose     from the pod's request to the node and cards: Kubernetes' allocator does this per node
handle     from the pod's fact to the record for the decision log; nothing is left out
new shape  choose, for pods unlike any before
slice      a node's slice with eight changed cards, until the next decision could be made
yard       a thousand additions in a loop, between the decisions: about 35 µs on an idle machine of
           the kind named in docs/performance.md; if it is more, the other times are longer, too

Then the upstream Go allocator and dray's compatible mode get the same fleets. Both stop at the
first node that fits. The Go allocator also runs on every node, as scoring would require, but it
scores nothing. If Go is missing and can't be installed, those rows are left out, and the output
says so.

Targets and ratios use the thread's CPU time, which excludes other work on the machine; on an idle
machine it is the time that passes. ``--clock wall`` uses wall time instead; the rows show both.
"""

import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from benchmarks.allocator_fleet import Fits, Fleet, Measured, Taken, measure
from benchmarks.allocator_peer import NoPeerError, Peer, build, peer
from benchmarks.machine import machine
from dray.api import names

IN_USE = 0.75
POLICY = "CompactFirst"
COMPATIBLE = names.KUBERNETES_COMPATIBLE
FIRST_FIT_GPUS = 10_000
COMPATIBLE_SAMPLES = 200
EVERY_NODE_TARGETS = {10_000: 300.0, 100_000: 2_000.0}
MILLION = ("--gpus", "1000000", "--shapes", "1", "--in-use", "0.01", "--samples", "500")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure with its target: the most that it may be, or the least."""

    what: str
    policy: str
    value: float
    unit: str
    target: float
    at_least: bool = False
    peer: str = ""
    """The peer with which it is compared."""

    @property
    def is_met(self) -> bool:
        """Whether it is within its target."""
        return self.value >= self.target if self.at_least else self.value <= self.target

    def __str__(self) -> str:
        sign, verdict = "≥" if self.at_least else "≤", "ok" if self.is_met else "MISSED"
        compared = f" against {self.peer}" if self.peer else ""
        return (
            f"  {self.what} ({self.policy}){compared}: {self.value:,.4g} {self.unit}, "
            f"target {sign} {self.target:,.4g}: {verdict}"
        )


@dataclass(slots=True)
class Report:
    """All results of one run; rows are reported as they come."""

    tells: bool
    clock: str
    """Which columns count: ``cpu `` before their names, or nothing."""
    policy: str
    """The placement of the fleets."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print a text for people."""
        if self.tells:
            click.echo(text)

    def add(self, head: dict[str, Any], taken: Taken) -> None:
        """Add a row of times."""
        row = {**head, **taken.row()}
        self.rows.append(row)
        self.say("  ".join(_labelled(name, one) for name, one in row.items()))

    def add_peer(self, gpus: int, fits: Fits, found: Peer) -> None:
        """Add the times of the Go allocator."""
        for what, times in found.rows.items():
            head = {"gpus": gpus, "fits": fits.value, "what": what, "policy": "Go allocator"}
            self.rows.append({**head, **times})
            self.say("  ".join(_labelled(name, one) for name, one in self.rows[-1].items()))

    def of(self, gpus: int, what: str, fits: Fits = Fits.ALL, policy: str = "") -> float:
        """The median of a row."""
        policy = policy or self.policy
        wanted = {"gpus": gpus, "what": what, "fits": fits.value, "policy": policy}
        return next(
            float(row[f"{self.clock}p50"])
            for row in self.rows
            if all(row[name] == value for name, value in wanted.items())
        )


@click.command()
@click.option("--gpus", multiple=True, type=int, default=(1_000, 10_000, 100_000))
@click.option("--shapes", multiple=True, type=int, default=(1, 32), help="Shapes of pods in turns.")
@click.option("--samples", default=2_000, show_default=True, help="Decisions per row.")
@click.option("--in-use", default=IN_USE, show_default=True, help="Share of cards in use.")
@click.option("--policy", default=POLICY, show_default=True, help="Placement mode of the fleets.")
@click.option("--peer/--no-peer", "peers", default=True, help="Measure the Go allocator, too.")
@click.option("--million", is_flag=True, help="Also 1 000 000 GPUs, in a process of its own.")
@click.option("--clock", type=click.Choice(["cpu", "wall"]), default="cpu", show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(
    gpus: tuple[int, ...],
    shapes: tuple[int, ...],
    samples: int,
    in_use: float,
    policy: str,
    peers: bool,
    million: bool,
    clock: str,
    output: str,
) -> None:
    """Measure decisions on this machine, in microseconds."""
    report = Report(output == "text", "" if clock == "wall" else "cpu ", policy)
    report.say(f"{machine()}, load {os.getloadavg()[0]:.1f}\n")
    oracle = _oracle(report) if peers else None
    for count in gpus:
        for several in shapes:
            found = measure(Fleet(count, several, in_use, policy=policy), samples)
            _add(report, count, several, found)
            if oracle is not None and several == shapes[0] and count in EVERY_NODE_TARGETS:
                _ask(report, count, lambda made=found.fleet: peer(oracle, made))
            del found
            gc.collect()
    most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if peers:
        _first_fits(report, samples, oracle)
    report.figures += _own(report, gpus, shapes)
    report.figures += _compared(report, gpus)
    if million:
        report.figures += _million(report)
    growth = _growth(report, gpus, shapes)
    if output == "json":
        reported = {"figures": list(map(_as_json, report.figures)), "left_out": report.left_out}
        found_all = {
            "machine": machine(),
            "load": os.getloadavg()[0],
            "rows": report.rows,
            **reported,
        }
        click.echo(json.dumps({**found_all, "growth": growth, "most_mib": most_mib}, indent=2))
        return
    report.say(f"\np50 of choose at most by at fewest GPUs: {growth:.2f}; {most_mib} MiB at most")
    for one in (*report.figures, *(f"  left out: {why}" for why in report.left_out)):
        report.say(str(one))


def _add(report: Report, gpus: int, shapes: int, found: Measured) -> None:
    for what, taken in found.rows.items():
        head = {"gpus": gpus, "fits": found.fleet.fits.value, "shapes": shapes, "what": what}
        report.add({**head, "policy": report.policy}, taken)


def _oracle(report: Report) -> Any:
    try:
        return build(report.say)
    except NoPeerError as error:
        report.left_out.append(f"all rows of the Go allocator: {error}")
        return None


def _ask(report: Report, gpus: int, ask: Any, fits: Fits = Fits.ALL) -> None:
    try:
        report.add_peer(gpus, fits, ask())
    except (NoPeerError, subprocess.TimeoutExpired) as error:
        report.left_out.append(f"the Go allocator at {gpus} GPUs, {fits.value} fit: {error}")


def _first_fits(report: Report, samples: int, oracle: Any) -> None:
    """The cases of a first fit: the node in the middle, and the very first one."""
    for fits in (Fits.MIDDLE, Fits.FIRST):
        found = measure(Fleet(FIRST_FIT_GPUS, 1, IN_USE, fits, report.policy), samples)
        _add(report, FIRST_FIT_GPUS, 1, found)
        head = {"gpus": FIRST_FIT_GPUS, "fits": fits.value, "shapes": 1, "what": "first fit"}
        compatible = measure(Fleet(FIRST_FIT_GPUS, 1, IN_USE, fits, COMPATIBLE), COMPATIBLE_SAMPLES)
        report.add({**head, "policy": COMPATIBLE}, compatible.rows["choose"])
        if oracle is not None:
            made = found.fleet
            _ask(report, FIRST_FIT_GPUS, lambda made=made: peer(oracle, made), fits)


def _own(report: Report, gpus: tuple[int, ...], shapes: tuple[int, ...]) -> Iterator[Figure]:
    """Figures without a peer."""
    clock = report.clock
    for row in report.rows:
        if row["policy"] != report.policy or row["fits"] != Fits.ALL.value:
            continue
        name = f"{row['gpus']:,} GPUs, {row['shapes']} shapes"
        if row["what"] == "choose" and row["gpus"] in EVERY_NODE_TARGETS:
            yield Figure(f"decide, p50, {name}", report.policy, row[f"{clock}p50"], "µs", 50.0)
            yield Figure(f"decide, p99, {name}", report.policy, row[f"{clock}p99"], "µs", 500.0)
        if row["what"] == "slice":
            yield Figure(
                f"slice of 8 cards, p50, {name}", report.policy, row[f"{clock}p50"], "µs", 1_000.0
            )
    if {1_000, 100_000} <= set(gpus):
        growth = _growth(report, (1_000, 100_000), shapes)
        yield Figure("growth from 1 000 to 100 000 GPUs", report.policy, growth, "×", 3.0)


def _compared(report: Report, gpus: tuple[int, ...]) -> Iterator[Figure]:
    """Figures relative to the Go allocator, of the existing rows."""
    go = "Go allocator"
    measured = {(row["gpus"], row["fits"]) for row in report.rows if row["policy"] == go}
    for count, target in EVERY_NODE_TARGETS.items():
        if (count, Fits.ALL.value) in measured:
            ratio = report.of(count, "every node", policy=go) / report.of(count, "choose")
            named = f"decide, {count:,} GPUs"
            yield Figure(
                named, report.policy, ratio, "× faster", target, True, f"{go}, every node tried"
            )
    if (FIRST_FIT_GPUS, Fits.MIDDLE.value) in measured:
        theirs = report.of(FIRST_FIT_GPUS, "first fit", Fits.MIDDLE, go)
        ratio = theirs / report.of(FIRST_FIT_GPUS, "choose", Fits.MIDDLE)
        name, other = f"decide, {FIRST_FIT_GPUS:,} GPUs", f"{go}, first fit, node in the middle"
        yield Figure(name, report.policy, ratio, "× faster", 300.0, True, other)
        ratio = theirs / report.of(FIRST_FIT_GPUS, "first fit", Fits.MIDDLE, COMPATIBLE)
        name = f"compatible mode, {FIRST_FIT_GPUS:,} GPUs"
        yield Figure(name, COMPATIBLE, ratio, "× faster", 20.0, True, other)
    if (FIRST_FIT_GPUS, Fits.FIRST.value) in measured:
        theirs = report.of(FIRST_FIT_GPUS, "first fit", Fits.FIRST, go)
        ratio = report.of(FIRST_FIT_GPUS, "choose", Fits.FIRST) / theirs
        name, other = f"decide, {FIRST_FIT_GPUS:,} GPUs", f"{go}, first fit, on the first node"
        yield Figure(name, report.policy, ratio, "× slower", 4.0, False, other)


def _million(report: Report) -> Iterator[Figure]:
    """A million GPUs, 1 % of them in use, with nothing else in memory."""
    command = [sys.executable, "-m", "benchmarks.allocator", *MILLION, "--no-peer", "-o", "json"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        report.left_out.append(f"1 000 000 GPUs: {done.stderr.decode(errors='replace').strip()}")
        return
    found = json.loads(done.stdout)
    report.rows += found["rows"]
    choosing = next(row for row in found["rows"] if row["what"] == "choose")
    took_us = choosing[f"{report.clock}p50"]
    yield Figure("decide, p50, 1,000,000 GPUs", report.policy, took_us, "µs", 1_000.0)
    used_mb = found["most_mib"] * 2**20 / 1e6
    yield Figure("memory at most, 1,000,000 GPUs", report.policy, used_mb, "MB", 1_000.0)


def _growth(report: Report, gpus: tuple[int, ...], shapes: tuple[int, ...]) -> float:
    return report.of(max(gpus), "choose") / report.of(min(gpus), "choose")


def _as_json(one: Figure) -> dict[str, Any]:
    return {**asdict(one), "met": one.is_met}


def _labelled(name: str, value: Any) -> str:
    return f"{name} {value:8.1f}" if isinstance(value, float) else f"{name} {value}"


if __name__ == "__main__":
    main()
