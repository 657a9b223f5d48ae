"""An allocator that starts with nothing: ``python -m benchmarks.from_nothing``.

The stream of a real nats-server has the facts of a fleet in use: nodes with eight cards, their
slices and health, claims that hold shares of the cards, and (``--pods``) the pods that run on them.
One more pod waits. Then one allocator is started as a separate process. Times from then are

ready     until it is ready: every fact is folded
decided   until the decision about the waiting pod is in the log

CPU time is that of the process, as the kernel counts it, until it was ready and until the decision.
"""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import click
from msgspec.structs import replace

from benchmarks import decision
from benchmarks.allocators import Bench, bench
from benchmarks.machine import machine
from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray.messages.decisions import Decided, decode_record, log_stream
from dray.messages.facts import ClaimObserved, Fact, InventoryObserved, NodeObserved, PodObserved

POOL = decision.POOL
CARDS = decision.GPUS_PER_NODE
_ALLOCATOR = "allocator"
_WITHIN_S = 300.0


def facts(nodes: int, claims: int, *, pods: bool) -> Iterator[Fact]:
    """The content of the stream, in the order of a claim-controller that lists everything."""
    yield from decision.pool_facts()
    *fleet, synced, tick = decision.fleet_facts(nodes)
    running = _running_on(nodes, claims if pods else 0)
    for fact in fleet:
        if isinstance(fact, NodeObserved):
            name, uids = fact.node.name, running.get(fact.node.name, ())
            used = replace(fact.node, used_pods=len(uids))
            yield NodeObserved(revision=1, node=used, counted_pods=tuple(uids))
            yield InventoryObserved(revision=1, node=name, driver=names.DRIVER)
        else:
            yield fact
    for number in range(claims):
        yield from _running(number, nodes, pods=pods)
    yield from decision.pod_facts("pod-that-waits")
    yield synced
    yield tick


def _running_on(nodes: int, pods: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for number in range(pods):
        found.setdefault(_node_of(number, nodes), []).append(f"pod-{number}")
    return found


def _node_of(number: int, nodes: int) -> str:
    return f"node-{number // CARDS % nodes}"


def _running(number: int, nodes: int, *, pods: bool) -> Iterator[Fact]:
    """A claim that holds a share of a card, and the pod that runs there."""
    claim_fact, pod_fact = decision.pod_facts(f"pod-{number}")
    node = _node_of(number, nodes)
    device = DeviceId(names.DRIVER, node, f"{node}-gpu-{number % CARDS}")
    consumed = {"virtual_tflops": "10", "virtual_vram": "1Gi"}
    share = AllocatedDevice(names.GPU_REQUEST, device, f"share-{number}", consumed)
    claim = replace(claim_fact.claim, allocation=Allocation((share,), node))
    yield ClaimObserved(revision=2, claim=claim)
    if pods:
        yield PodObserved(revision=2, pod=replace(pod_fact.pod, node=node, phase="Running"))


async def measure(nodes: int, claims: int, *, pods: bool, times: int) -> list[dict[str, Any]]:
    """Rows of seconds. The allocator is started ``times`` times, each time with a new log."""
    async with bench(sync_interval="2m") as made:
        await made.open_log(POOL)
        count = await made.publish(facts(nodes, claims, pods=pods))
        head = {"nodes": nodes, "claims": claims, "pods": claims if pods else 0, "facts": count}
        return [{**head, **await _started(made)} for _ in range(times)]


async def _started(made: Bench) -> dict[str, float]:
    began = time.monotonic()
    async with asyncio.timeout(_WITHIN_S):
        decided = asyncio.create_task(_decided(made))
        await made.start(_ALLOCATOR)
        ready_s, ready_cpu_s = time.monotonic() - began, made.cpu_s()[_ALLOCATOR]
        await decided
    found = {
        "ready_s": ready_s,
        "ready_cpu_s": ready_cpu_s,
        "decided_s": time.monotonic() - began,
        "cpu_s": made.cpu_s()[_ALLOCATOR],
        "most_mib": made.most_mib(_ALLOCATOR),
    }
    await made.runner.stop(_ALLOCATOR)
    return found


async def _decided(made: Bench) -> None:
    async for delivered in made.bus.read(log_stream(POOL, 1)):
        if isinstance(decode_record(delivered.payload), Decided):
            return


@click.command()
@click.option("--nodes", default=10_000, show_default=True, help="Of eight cards each.")
@click.option("--claims", default=100_000, show_default=True)
@click.option("--pods", is_flag=True, help="The pods of the claims are there, too.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(nodes: int, claims: int, pods: bool, output: str) -> None:
    """Measure how long an allocator takes from its start to its readiness."""
    load = os.getloadavg()[0]
    rows = asyncio.run(measure(nodes, claims, pods=pods, times=1))
    if output == "json":
        click.echo(json.dumps({"machine": machine(), "load": load, "rows": rows}, indent=2))
        return
    click.echo(f"{machine()}, load {load:.1f}\n")
    for row in rows:
        click.echo("  ".join(f"{name} {value:.6g}" for name, value in row.items()))


if __name__ == "__main__":
    main()
