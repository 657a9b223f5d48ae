"""A day in virtual time: ``python -m benchmarks.day``.

Pods with GPUs are created and deleted all day, in the simulation of dray's services on a virtual
clock: the real code of all four services, on the in-memory bus and API server, without faults.
After each hour it prints what is kept: per service, the number and bytes of the objects that it can
reach; the bytes of the streams; the open file descriptors and the resident memory of the whole
process. It fails if a figure after the last hour differs by more than 10 % (and 64 KiB) from the
figure after the first hour, because then something grows for ever. Streams with a limit in bytes
(events, recordings, dead letters) and caches with a limit are not counted, but their memory is
resident.
"""

import asyncio
import gc
import itertools
import json
import os
import random
import resource
import sys
import tempfile
import time
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.day_cluster import DayCluster, Pace
from benchmarks.machine import machine
from dray.bus.memory_store import MemoryServer, MemoryStream
from dray.bus.topology import STREAMS
from dray.kube.convert import time_from
from dray.kube.memory_store import MemoryStore
from dray.kube.ports import EVENTS, PODS
from dray_allocator.scoring.fragmentation.nodes import PoolNodes
from tools.simulation.cluster import DEDICATED, SHARED, TEAM, create_cluster, gpu_pod
from tools.simulation.loop import Process, VirtualLoop
from tools.simulation.processes import POOL_OF_NODE
from tools.simulation.run import Size, simulate
from tools.simulation.trace import SimulationTrace
from tools.simulation.world import SimulatedWorld

MOST_CHANGE: Final = 0.1
_LEAST_BYTES: Final = 2**16
"""A smaller difference does not count: hash tables grow in steps."""
_EVENTS_KEPT_S: Final = 3600.0
"""kube-apiserver's default of ``--event-ttl``."""
_IN_MEMORY: Final = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""The folder of the node-agents' files, so that their writes wait for no disk."""
_REQUESTS: Final = tuple(
    itertools.product((DEDICATED, SHARED), (30, 100, 156), (4, 10, 40), (1, 1, 1, 2))
)
"""Pool, TFLOPS, GiB and number of GPUs. The first hour has all of them."""
_OUTSIDE: Final = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    type,
    DayCluster,
    MemoryServer,
    MemoryStore,
    MemoryStream,
    Process,
    SimulatedWorld,
    SimulationTrace,
    VirtualLoop,
)
"""Objects that do not belong to the service: code, the servers, and the simulation."""
_BOUNDED: Final = (PoolNodes,)
"""Caches that fill for longer than an hour, up to a limit that a test checks: PoolNodes numbers the
states of nodes that it has seen."""
_LIMITED: Final = {spec.name for spec in STREAMS if spec.max_bytes is not None}


def kept_by(tasks: Iterable[Any]) -> tuple[int, int]:
    """Number and bytes of the objects that the tasks can reach, without caches with a limit."""
    seen: set[int] = set()
    size_bytes = 0
    waiting: list[Any] = list(tasks)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (*_OUTSIDE, *_BOUNDED)):
            continue
        seen.add(id(one))
        size_bytes += sys.getsizeof(one)
        waiting += gc.get_referents(one)
    return len(seen), size_bytes


def measure(world: SimulatedWorld, cluster: DayCluster) -> dict[str, float]:
    """What is kept now."""
    gc.collect()
    found: dict[str, float] = {}
    for name in cluster.services:
        count, size_bytes = kept_by(cluster.roots(name))
        found |= {f"{name} objects": count, f"{name} bytes": size_bytes}
    states = (stream.state for stream in world.bus.server.streams.values())
    sizes = {state.name: state.bytes for state in states if state.name not in _LIMITED}
    return found | {
        "streams": len(sizes),
        "stream bytes": sum(sizes.values()),
        "file descriptors": len(os.listdir("/proc/self/fd")),
        "resident bytes": resident_bytes(),
    }


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Day:
    """Submits pods, and deletes them once they have succeeded."""

    def __init__(
        self, world: SimulatedWorld, cluster: DayCluster, pace: Pace, *, hours: int, pods: int
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._pace = pace
        self._hours = hours
        self._pods = pods
        self._draw = random.Random(world.seed)
        self._requests = list(_REQUESTS)
        self._draw.shuffle(self._requests)
        self.rows: list[dict[str, float]] = []

    async def run(self) -> None:
        """Run all hours."""
        number = 0
        for hour in range(1, self._hours + 1):
            while number < self._pods * hour / self._hours:
                await self._submit(number)
                number += 1
                await asyncio.sleep(self._hours * self._pace.hour_s / self._pods)
                await self._delete_ended()
            await asyncio.sleep(self._pace.settling_s - self._pace.life_s)
            await self._delete_ended()
            await asyncio.sleep(self._pace.life_s)
            left = len(self._world.kube.store.of(PODS))
            row = {"hour": hour, "pods": number, "pods left": left, "cpu s": time.process_time()}
            self.rows.append(row | measure(self._world, self._cluster))
            click.echo(json.dumps(self.rows[-1]), err=True)

    async def _submit(self, number: int) -> None:
        pool, tflops, vram_gib, count = self._requests[number % len(self._requests)]
        life_s = self._pace.life_s * self._draw.random()
        pod = gpu_pod(
            f"pod-{number}", pool, tflops=tflops, vram_gib=vram_gib, count=count, life_s=life_s
        )
        await self._world.kube.create(PODS, await self._cluster.admit(pod), TEAM)

    async def _delete_ended(self) -> None:
        store = self._world.kube.store
        for (namespace, name), pod in list(store.of(PODS).items()):
            if pod["status"].get("phase") == "Succeeded":
                await self._world.kube.delete(PODS, name, namespace)
        store.events.clear()
        self._forget_events()

    def _forget_events(self) -> None:
        """Drop old events, as the API server does. Events are in the order of their creation."""
        events = self._world.kube.store.of(EVENTS)
        before_unix_s = self._world.loop.now_unix_s() - _EVENTS_KEPT_S
        while events:
            key, event = next(iter(events.items()))
            if time_from(event["metadata"]["creationTimestamp"]) >= before_unix_s:
                return
            del events[key]


_NOT_COMPARED: Final = ("hour", "pods", "pods left", "cpu s")


def growth(rows: list[dict[str, float]]) -> dict[str, float]:
    """By figure, the ratio of the last hour to the first."""
    first, last = rows[0], rows[-1]
    return {name: last[name] / max(first[name], 1) for name in first if name not in _NOT_COMPARED}


def changes(rows: list[dict[str, float]]) -> list[str]:
    """Figures that differ too much between the first and the last hour."""
    first, last = rows[0], rows[-1]
    return [
        name
        for name, ratio in sorted(growth(rows).items())
        if abs(ratio - 1) > MOST_CHANGE
        and not (name.endswith("bytes") and abs(last[name] - first[name]) < _LEAST_BYTES)
    ]


@click.command(help=__doc__)
@click.option("--hours", default=24, show_default=True)
@click.option("--pods", default=100_000, show_default=True, help="In all hours.")
@click.option("--seed", default=1, show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(hours: int, pods: int, seed: int, output: str) -> None:
    """Run the day, print, and fail if something grew."""
    with tempfile.TemporaryDirectory(prefix="dray-day-", dir=_IN_MEMORY) as folder:
        days, bound = run_day(hours, pods, Path(folder), seed=seed)
    ratios, changed = growth(days.rows), changes(days.rows)
    if output == "json":
        report = {"machine": machine(), "rows": days.rows, "growth": ratios}
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo(f"{machine()}, {bound} pods bound, {time.process_time():.0f} s of CPU time\n")
        click.echo(f"{'':20} {'first hour':>14} {'last hour':>14} {'ratio':>8}")
        for name, ratio in sorted(ratios.items()):
            first, last = days.rows[0][name], days.rows[-1][name]
            click.echo(f"{name:20} {first:14.0f} {last:14.0f} {ratio:8.3f}")
        if changed:
            click.echo(f"\nchanged: {', '.join(changed)}")
    sys.exit(1 if changed else 0)


def run_day(
    hours: int, pods: int, folder: Path, *, seed: int = 1, pace: Pace | None = None
) -> tuple[Day, int]:
    """Run a day; returns it, and the number of bound pods. Raises AssertionError for a violated
    invariant."""
    pace = pace or Pace()
    clusters: list[DayCluster] = []
    days: list[Day] = []

    async def script(world: SimulatedWorld, _: Size) -> list[str]:
        world.disable_call_faults()
        world.has_latency = False
        await create_cluster(world.kube, POOL_OF_NODE)
        for name in world.processes:
            world.start(name)
        await asyncio.sleep(60)
        days.append(Day(world, clusters[0], pace, hours=hours, pods=pods))
        await days[0].run()
        return [*world.invariants.violations, *world.alarms(), *world.unexpected_exits]

    outcome = simulate(
        seed,
        keep=0,
        prepare=lambda world: clusters.append(DayCluster(world, folder, pace)),
        script=script,
    )
    assert not outcome.failures, outcome.failures[:5]
    return days[0], outcome.bound


if __name__ == "__main__":
    main()
