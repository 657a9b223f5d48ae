"""Decisions on groups of pods, in memory: ``python -m benchmarks.groups``.

gang         from the last pod of a gang of 512 pods × 8 GPUs to its decision, on 10 000 nodes
impossible   the same for a gang that is larger than the pool, to the record that says so
event        1 000 gangs wait on a full pool; a claim ends: the step that follows, with all groups
             that it concerns; gangs that wait for room, for pods, for minResources
single       one pod's decision, if no group exists and if 1 000 wait

All times are those of the replica's core, without a bus, in CPU time of the thread: on an idle
machine it is the time that passes. The times of a gang end with the record, all others with the
last effect.
"""

import gc
import json
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

import click
from msgspec.structs import replace

from benchmarks import decision
from benchmarks.allocator import Figure
from benchmarks.machine import machine, percentiles
from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation, Claim, ClaimSpec, DeviceRequest
from dray.api.devices import DeviceId
from dray.api.groups import VOLCANO, PodGroup
from dray.api.pods import GroupKey, GroupMember
from dray.messages.decisions import DecidedGroup, Waiting
from dray.messages.facts import ClaimObserved, Fact, GroupObserved, PodObserved
from dray_allocator.core.handle import handle
from dray_allocator.values.events import Append, Continue, Effect, FactSeen

WHOLE = {"virtual_tflops": "312", "virtual_vram": "40Gi"}


def cards(count: int) -> ClaimSpec:
    """A claim of ``count`` whole cards."""
    request = DeviceRequest(
        names.GPU_REQUEST,
        names.DEVICE_CLASS,
        (decision.SELECTOR,),
        capacity=WHOLE,
        count=count,
    )
    return ClaimSpec((request,))


class Fleet(decision.Fleet):
    """A pool whose pods are in groups."""

    def group(
        self, name: str, minimum: int, resources: Mapping[str, str] = MappingProxyType({})
    ) -> GroupKey:
        """Create a PodGroup; ``resources``: its minResources."""
        key = GroupKey(VOLCANO, "ns", name)
        uid = f"group-{name}"
        group = PodGroup(key=key, uid=uid, minimum=minimum, min_resources=dict(resources))
        self.see(GroupObserved(revision=1, group=group))
        return key

    def members(self, key: GroupKey, count: int, spec: ClaimSpec) -> Iterator[PodObserved]:
        """The facts of a group's pods; their claims are applied as the facts are read."""
        for number in range(count):
            claim_fact, pod_fact = decision.pod_facts(f"{key.name}-{number:04}", spec=spec)
            self.follow(claim_fact)
            yield replace(pod_fact, pod=replace(pod_fact.pod, member=GroupMember(key)))

    def follow(self, fact: Fact) -> None:
        """Only apply a fact, as if other facts followed at once, in a burst."""
        self.facts += 1
        self.do(FactSeen(self.facts, fact, more=True))

    def gang(self, name: str, size: int, spec: ClaimSpec) -> tuple[float, list[Effect]]:
        """Milliseconds from the last pod of a gang to the record that follows, and the effects."""
        *others, last = self.members(self.group(name, size), size, spec)
        for fact in others:
            self.follow(fact)
        gc.collect()
        self.facts += 1
        began = time.thread_time()
        effects = handle(self.state, FactSeen(self.facts, last))
        while not any(isinstance(one, Append) for one in effects):
            effects += handle(self.state, Continue())
        took_ms = (time.thread_time() - began) * 1e3
        self.read_back([*effects, *self.effects_of(Continue())])
        return took_ms, effects

    def occupy(self, nodes: int) -> None:
        """Let all cards of the nodes be in use, each by its own claim."""
        for number in range(nodes * decision.GPUS_PER_NODE):
            self.claim(number)

    def claim(self, number: int, *, ended: bool = False) -> float:
        """Add or end a claim that uses a card; returns the milliseconds that this took."""
        node = f"node-{number // decision.GPUS_PER_NODE}"
        device = DeviceId(names.DRIVER, node, f"{node}-gpu-{number % decision.GPUS_PER_NODE}")
        allocation = Allocation((AllocatedDevice(names.GPU_REQUEST, device, None, WHOLE),))
        uid = f"old-{number}"
        claim = Claim(uid, "ns", uid, 1, decision.POOL, cards(1), allocation=allocation)
        revision = 2 * self.facts + 1
        began = time.thread_time()
        self.see(ClaimObserved(revision=revision, claim=claim, deleted=ended))
        return (time.thread_time() - began) * 1e3


def decided(effects: list[Effect]) -> int:
    """How many pods the effects decide together."""
    records = (one.record for one in effects if isinstance(one, Append))
    return sum(len(one.pods) for one in records if isinstance(one, DecidedGroup))


def reasons(effects: list[Effect]) -> str:
    """Why pods wait, in the first record that says so."""
    records = (one.record for one in effects if isinstance(one, Append))
    waiting = next((one for one in records if isinstance(one, Waiting)), None)
    return "" if waiting is None else str(waiting.reasons[0])


@dataclass(slots=True)
class Sizes:
    """The sizes of the rows."""

    nodes: int
    gang: int
    waiting: int
    samples: int


def gangs(sizes: Sizes) -> Iterator[Figure]:
    """A gang that fits, and one that can't."""
    fleet = Fleet(sizes.nodes)
    fleet.gang("warm-up", 4, cards(8))
    took_ms, effects = fleet.gang("gang", sizes.gang, cards(8))
    assert decided(effects) == sizes.gang, reasons(effects)
    what = f"gang of {sizes.gang} pods × 8 GPUs, {sizes.nodes} nodes"
    yield Figure(what, names.COMPACT_FIRST, took_ms, "ms", 50.0)
    large = Fleet(min(sizes.nodes, 4_000))
    size = min(sizes.nodes, 4_000) + 1
    took_ms, effects = large.gang("impossible", size, cards(8))
    assert "can never fit" in reasons(effects), reasons(effects)
    what = f"impossible gang of {size} pods × 8 GPUs"
    yield Figure(what, names.COMPACT_FIRST, took_ms, "ms", 1_000.0)


def events(sizes: Sizes) -> Iterator[Figure]:
    """A claim ends while many gangs wait, and is used again."""
    nodes = sizes.nodes // 10
    for waits_for, created, resources in (
        ("room", 4, {}),
        ("pods", 3, {}),
        ("minResources", 4, {"cpu": "1000000"}),
    ):
        fleet = Fleet(nodes)
        fleet.occupy(nodes)
        for number in range(sizes.waiting):
            key = fleet.group(f"waits-{number}", 4, resources)
            for fact in fleet.members(key, created, cards(1)):
                fleet.see(fact)
        took = []
        for number in range(sizes.samples):
            took.append(fleet.claim(number, ended=True))
            fleet.claim(number)
        found = percentiles(took)
        what = f"one event while {sizes.waiting} gangs wait for {waits_for}, {nodes} nodes"
        yield Figure(f"{what}, p50", names.COMPACT_FIRST, found["p50"], "ms", 1.0)
        yield Figure(f"{what}, p99", names.COMPACT_FIRST, found["p99"], "ms", 10.0)


def singles(sizes: Sizes) -> Iterator[Figure]:
    """Single pods, without groups and with many that wait."""
    nodes = sizes.nodes // 10
    fleets = [Fleet(nodes), Fleet(nodes)]
    for number in range(sizes.waiting):
        key = fleets[1].group(f"waits-{number}", 4)
        for fact in fleets[1].members(key, 3, cards(1)):
            fleets[1].see(fact)
    medians: list[list[float]] = [[], []]
    for turn in range(10):
        for which, fleet in enumerate(fleets):
            took = [
                fleet.pod(f"single-{turn}-{number}") * 1e6 for number in range(sizes.samples // 10)
            ]
            medians[which].append(statistics.median(took))
    alone, among = (statistics.median(one) for one in medians)
    yield Figure("single pod without groups", names.COMPACT_FIRST, alone, "µs", 1_000.0)
    ratio = among / alone
    what = f"single pod while {sizes.waiting} groups wait, compared"
    yield Figure(what, names.COMPACT_FIRST, ratio, "×", 1.05, peer="no group")


@click.command()
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--gang", default=512, show_default=True)
@click.option("--waiting", default=1_000, show_default=True)
@click.option("--samples", default=500, show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(nodes: int, gang: int, waiting: int, samples: int, output: str) -> None:
    """Time decisions on groups."""
    sizes = Sizes(nodes, gang, waiting, samples)
    found = []
    for part in (gangs, events, singles):
        for figure in part(sizes):
            found.append(figure)
            if output == "text":
                click.echo(str(figure))
    if output == "json":
        rows = [asdict(one) | {"met": one.is_met} for one in found]
        click.echo(json.dumps({"machine": machine(), "figures": rows}, indent=2))


if __name__ == "__main__":
    main()
