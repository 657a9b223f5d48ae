"""A day in fast motion: ``python -m benchmarks.day``.

Pods with GPUs arrive and leave all day, in the simulation of dray's services on a virtual clock:
the real code on the bus and the API server in memory, without faults. After each hour it prints
what the services keep: per service the objects that its tasks can reach and their bytes, and the
bytes of the streams. It fails if the last hour is more than 10 % above the first: something grows
for ever. Streams with a limit in bytes and days of age (events, recordings, dead letters) are not
counted.
"""

import asyncio
import gc
import json
import random
import sys
import types
from collections.abc import Iterable
from typing import Any, Final

import click

from benchmarks.machine import machine
from dray.bus.memory_store import MemoryServer, MemoryStream
from dray.bus.topology import STREAMS
from dray.kube.memory_store import MemoryStore
from dray.kube.ports import PODS
from tools.simulation.cluster import DEDICATED, SHARED, TEAM, admit, create_cluster, gpu_pod
from tools.simulation.loop import Process, VirtualLoop
from tools.simulation.processes import POOL_OF_NODE
from tools.simulation.run import Size, simulate
from tools.simulation.trace import SimulationTrace
from tools.simulation.world import SimulatedWorld

SERVICES: Final = ("cc-1", "cc-2", "alloc-1", "alloc-2", "agent-n1")
MOST_GROWTH: Final = 1.1
HOUR_S: Final = 3600.0
_LIFE_S: Final = 20.0
_OUTSIDE: Final = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    type,
    MemoryServer,
    MemoryStore,
    MemoryStream,
    Process,
    SimulatedWorld,
    SimulationTrace,
    VirtualLoop,
)
"""What is not the service's own: code, the servers, and the simulation."""
_LIMITED: Final = {spec.name for spec in STREAMS if spec.max_bytes is not None}


def kept_by(tasks: Iterable[Any]) -> tuple[int, int]:
    """Number and bytes of the objects that the tasks can reach."""
    seen: set[int] = set()
    size_bytes = 0
    waiting: list[Any] = list(tasks)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _OUTSIDE):
            continue
        seen.add(id(one))
        size_bytes += sys.getsizeof(one)
        waiting += gc.get_referents(one)
    return len(seen), size_bytes


def measure(world: SimulatedWorld) -> dict[str, float]:
    """What is kept now."""
    gc.collect()
    found: dict[str, float] = {}
    for name in SERVICES:
        process = world.processes[name].process
        count, size_bytes = kept_by(process.tasks if process is not None else ())
        found |= {f"{name} objects": count, f"{name} bytes": size_bytes}
    states = (stream.state for stream in world.bus.server.streams.values())
    sizes = {state.name: state.bytes for state in states if state.name not in _LIMITED}
    return found | {"streams": len(sizes), "stream bytes": sum(sizes.values())}


class Day:
    """Submits pods, and deletes them once they have succeeded."""

    def __init__(self, world: SimulatedWorld, *, hours: int, pods: int) -> None:
        self._world = world
        self._hours = hours
        self._pods = pods
        self._draw = random.Random(world.seed)
        self.rows: list[dict[str, float]] = []

    async def run(self) -> None:
        """All hours."""
        number = 0
        for hour in range(1, self._hours + 1):
            while number < self._pods * hour / self._hours:
                await self._submit(number)
                number += 1
                await asyncio.sleep(self._hours * HOUR_S / self._pods)
                await self._delete_ended()
            # Pods of the hour end, and logs are trimmed.
            await asyncio.sleep(10 * _LIFE_S)
            await self._delete_ended()
            await asyncio.sleep(_LIFE_S)
            self.rows.append({"hour": hour, "pods": number, **measure(self._world)})
            click.echo(f"hour {hour} of {self._hours}: {number} pods", err=True)

    async def _submit(self, number: int) -> None:
        pod = gpu_pod(
            f"pod-{number}",
            self._draw.choice((DEDICATED, SHARED)),
            tflops=self._draw.choice((30, 100, 156)),
            vram_gib=self._draw.choice((4, 10, 40)),
            count=self._draw.choice((1, 1, 1, 2)),
            life_s=_LIFE_S * self._draw.random(),
        )
        await self._world.kube.create(PODS, admit(self._world.kube, pod), TEAM)

    async def _delete_ended(self) -> None:
        for (namespace, name), pod in list(self._world.kube.store.of(PODS).items()):
            if pod["status"].get("phase") == "Succeeded":
                await self._world.kube.delete(PODS, name, namespace)


def growth(rows: list[dict[str, float]]) -> dict[str, float]:
    """By figure, the last hour's as a ratio of the first's."""
    first, last = rows[0], rows[-1]
    return {
        name: last[name] / max(first[name], 1) for name in first if name not in ("hour", "pods")
    }


@click.command(help=__doc__)
@click.option("--hours", default=24, show_default=True)
@click.option("--pods", default=100_000, show_default=True, help="In all hours.")
@click.option("--seed", default=1, show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(hours: int, pods: int, seed: int, output: str) -> None:
    """Run the day, print, and fail if something grew."""
    days: list[Day] = []

    async def script(world: SimulatedWorld, _: Size) -> list[str]:
        world.disable_call_faults()
        await create_cluster(world.kube, POOL_OF_NODE)
        for name in world.processes:
            world.start(name)
        await asyncio.sleep(60)
        days.append(Day(world, hours=hours, pods=pods))
        await days[0].run()
        return []

    outcome = simulate(seed, keep=0, script=script)
    rows = days[0].rows
    ratios = growth(rows)
    grown = sorted(name for name, ratio in ratios.items() if ratio > MOST_GROWTH)
    if output == "json":
        click.echo(json.dumps({"machine": machine(), "rows": rows, "growth": ratios}, indent=2))
    else:
        click.echo(f"{machine()}, {outcome.bound} pods bound\n")
        click.echo(f"{'':20} {'first hour':>14} {'last hour':>14} {'ratio':>8}")
        for name, ratio in sorted(ratios.items()):
            click.echo(f"{name:20} {rows[0][name]:14.0f} {rows[-1][name]:14.0f} {ratio:8.3f}")
        if grown:
            click.echo(f"\ngrew: {', '.join(grown)}")
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
