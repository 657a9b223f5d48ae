"""``python -m benchmarks.worst_case``: how allocators end on claims with too many combinations.

The same node, devices and claim, as Kubernetes' objects, are given to the upstream Go allocator
(the oracle's, with the 10 s after which kube-scheduler gives up a node), to `dray allocate`'s
compatible mode, and to dray's allocator as it serves, from a pod's fact to its reasons for waiting.
All bounds are the defaults.
"""

import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import decision
from benchmarks.allocator_peer import NoPeerError, build
from benchmarks.machine import machine
from dray.api import names
from dray.api.pods import Node
from dray.kube.convert import claim_from, class_from, slice_from
from dray.messages.decisions import Waiting
from dray.messages.facts import ClaimObserved, ClusterObserved
from dray_allocator.devices.allocate import Problem, allocate
from dray_allocator.devices.devices_in_use import DevicesInUse
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.versions import scheduler_version
from dray_allocator.values.events import Append

KUBERNETES = "1.37"
NODE = "node-0"
GIVES_UP_AFTER_S = 10
"""``DynamicResourcesFilterTimeout`` of kube-scheduler, per node."""
GROUP = f"{names.DRIVER}/group"
SERVED = (names.KUBERNETES_COMPATIBLE, names.DEFAULT_PLACEMENT)
"""Placements of the pool that dray's allocator serves."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Input:
    """A claim that no devices fit; trying every combination takes too long to find that out."""

    title: str
    groups: int
    """How many groups the devices have; devices are assigned to them in turn."""
    devices: int
    claim: Json
    """``spec.devices``."""

    def question(self) -> Json:
        """The input as the oracle reads it."""
        return {
            "id": "worst",
            "k8s": KUBERNETES,
            "features": sorted(scheduler_version(KUBERNETES).features),
            "node": {"metadata": {"name": NODE}},
            "slices": [self.slice()],
            "classes": [{"metadata": {"name": names.DEVICE_CLASS}, "spec": {}}],
            "allocated": [],
            "claims": [self.claim_object()],
        }

    def slice(self) -> Json:
        """All devices of the node."""
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        devices = [
            {"name": f"gpu-{at}", "attributes": {"group": {"string": f"g{at % self.groups}"}}}
            for at in range(self.devices)
        ]
        spec = {"driver": names.DRIVER, "pool": pool, "nodeName": NODE, "devices": devices}
        return {"metadata": {"name": "slice", "uid": "slice"}, "spec": spec}

    def claim_object(self) -> Json:
        """The claim."""
        metadata = {
            "name": "worst-gpu",
            "namespace": "ns",
            "uid": "claim-worst",
            "resourceVersion": "1",
            "labels": {names.POOL_LABEL: decision.POOL},
        }
        return {"metadata": metadata, "spec": {"devices": self.claim}}


def _request(name: str, count: int, *selectors: str) -> Json:
    exactly = {
        "deviceClassName": names.DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": text}} for text in selectors],
    }
    return {"name": name, "exactly": exactly}


INPUTS = (
    Input(
        "16 of 32 equal devices, and one that is not there: 601 080 390 ways",
        1,
        32,
        {"requests": [_request("half", 16), _request("none", 1, "false")]},
    ),
    Input(
        "16 devices that all differ in an attribute, of 64 with 15 values: some 10^14 ways",
        15,
        64,
        {"requests": [_request("all", 16)], "constraints": [{"distinctAttribute": GROUP}]},
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    """How one allocator ended on one input."""

    input: str
    who: str
    wall_s: float
    cpu_s: float
    outcome: str
    """Its final message."""


class Clock:
    """Wall and CPU time since it was made."""

    def __init__(self, whose: int) -> None:
        self._whose = whose
        self._wall_s, self._cpu_s = time.perf_counter(), self._used_s()

    def read(self) -> tuple[float, float]:
        """Seconds of wall time and of CPU time."""
        return time.perf_counter() - self._wall_s, self._used_s() - self._cpu_s

    def _used_s(self) -> float:
        used = resource.getrusage(self._whose)
        return used.ru_utime + used.ru_stime


def upstream(oracle: Path, one: Input) -> Row:
    """The Go allocator, stopped as kube-scheduler stops it.

    Raises:
        NoPeerError: it failed.
    """
    clock = Clock(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(oracle), "-allocate", "-timeout", f"{GIVES_UP_AFTER_S}s"],
        input=json.dumps(one.question()),
        capture_output=True,
        text=True,
        timeout=GIVES_UP_AFTER_S * 6,
        check=False,
    )
    took = clock.read()
    if done.returncode != 0:
        raise NoPeerError(f"the Go allocator failed: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    outcome = answer["error"] or ("fits" if answer["allocations"] else "does not fit")
    outcome = f"{outcome}; {answer['steps']:,} steps"
    return Row(one.title, f"Go allocator {KUBERNETES}", *took, outcome)


def compatible(one: Input) -> Row:
    """`dray allocate`'s compatible mode."""
    asked = one.question()
    problem = Problem(
        Node(NODE, f"uid-{NODE}"),
        [*map(slice_from, asked["slices"])],
        [*map(class_from, asked["classes"])],
        DevicesInUse(),
        [*map(claim_from, asked["claims"])],
    )
    clock = Clock(resource.RUSAGE_SELF)
    try:
        outcome = "fits" if allocate(problem, scheduler_version(KUBERNETES)) else "does not fit"
    except AllocationError as error:
        outcome = str(error)
    return Row(one.title, "dray allocate, compatible", *clock.read(), outcome)


def served(one: Input, placement: str) -> Row:
    """dray's allocator, as it serves a pool with this placement."""
    fleet = decision.Fleet(1, lambda _: slice_from(one.slice()), placement)
    fact = ClaimObserved(revision=1, claim=claim_from(one.claim_object()))
    _, pod = decision.pod_facts("worst", spec=fact.claim.spec)
    fleet.see(ClusterObserved(revision=1, version=f"v{KUBERNETES}.0"))
    fleet.see(fact)
    clock = Clock(resource.RUSAGE_SELF)
    effects = fleet.see(pod)
    took = clock.read()
    reasons = [
        str(reason)
        for effect in effects
        if isinstance(effect, Append) and isinstance(effect.record, Waiting)
        for reason in effect.record.reasons
    ]
    return Row(one.title, f"dray, {placement}", *took, "\n".join(reasons) or "fits")


def rows(oracle: Path | None) -> Iterator[Row]:
    """Every allocator on every input; without the Go allocator if there is none."""
    for one in INPUTS:
        if oracle is not None:
            yield upstream(oracle, one)
        yield compatible(one)
        for placement in SERVED:
            yield served(one, placement)


def _oracle(say: Callable[[str], None]) -> Path | None:
    try:
        return build(say, KUBERNETES)
    except NoPeerError as error:
        say(f"left out: the Go allocator: {error}")
        return None


@click.command()
@click.option("--peer/--no-peer", "peers", default=True, help="Ask the Go allocator, too.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(peers: bool, output: str) -> None:
    """Give each allocator claims that take for ever if every combination is tried."""
    head = f"{machine()}, load {os.getloadavg()[0]:.1f}"
    found = rows(_oracle(lambda text: click.echo(text, err=True)) if peers else None)
    if output == "json":
        reported = {"machine": head, "rows": [asdict(row) for row in found]}
        click.echo(json.dumps(reported, indent=2, ensure_ascii=False))
        return
    click.echo(f"{head}; wall and CPU time")
    title = ""
    for row in found:
        if row.input != title:
            title = row.input
            click.echo(f"\n{title}")
        first, *more = row.outcome.splitlines()
        click.echo(f"  {row.who:28}{row.wall_s:8.3f} s {row.cpu_s:8.3f} s  {first}")
        for line in more:
            click.echo(f"{'':53}{line}")


if __name__ == "__main__":
    main()
