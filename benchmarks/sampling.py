"""The cost of tracing for the allocator: ``python -m benchmarks.sampling``.

Core and shell on the in-memory bus decide the same pods, in turn without tracing and with a share
of them sampled; each pair gives a ratio. Spans go to a file, one write each, which costs more than
OTLP's batches. CPU time is compared as well: other work on the machine affects it less.
"""

import asyncio
import contextlib
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.decision import GPUS_PER_NODE, OPENED, POOL, fleet_facts, pod_facts, pool_facts
from benchmarks.machine import machine
from dray import telemetry
from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS, log_spec
from dray.messages.base import encode
from dray.messages.decisions import AnyRecord, Decided, log_subject
from dray.runtime import logs
from dray.telemetry.processors import ENDPOINT_VARIABLES, FILE_VARIABLE
from dray_allocator.service.replica import Replica
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions


@dataclass(frozen=True, slots=True)
class Run:
    """One run of all pods, in seconds."""

    wall_s: float
    cpu_s: float


@click.command()
@click.option("--pairs", default=12, show_default=True, help="Runs of each kind.")
@click.option("--pods", default=400, show_default=True, help="Pods per run.")
@click.option("--nodes", default=16, show_default=True, help="Nodes of eight GPUs.")
@click.option("--ratio", default=0.01, show_default=True, help="Share of sampled pods.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(pairs: int, pods: int, nodes: int, ratio: float, output: str) -> None:
    """Compare the allocator's throughput with and without sampling on this machine."""
    logs.configure("bench", "bench", level="warning", format="console")
    off, sampled = measure(pairs, pods, nodes, ratio)
    result = {
        "machine": machine(),
        "gpus": nodes * GPUS_PER_NODE,
        "podsPerRun": pods,
        "pairs": pairs,
        "sampled": ratio,
        "podsPerSecondOff": pods / statistics.median(run.wall_s for run in off),
        "podsPerSecondSampled": pods / statistics.median(run.wall_s for run in sampled),
        "throughputRatio": _ratio([run.wall_s for run in off], [run.wall_s for run in sampled]),
        "cpuRatio": _ratio([run.cpu_s for run in off], [run.cpu_s for run in sampled]),
    }
    if output == "json":
        click.echo(json.dumps(result, indent=2))
        return
    click.echo(f"{result['machine']}\n")
    click.echo(f"  {pairs} pairs of {pods} pods on {result['gpus']} GPUs, interleaved")
    click.echo(f"  off              {result['podsPerSecondOff']:8.0f} pods/s")
    click.echo(f"  {ratio:<6.1%} sampled   {result['podsPerSecondSampled']:8.0f} pods/s")
    click.echo(f"  throughput, sampled to off, median of pairs:  {result['throughputRatio']:.3f}")
    click.echo(f"  the same by CPU time:                         {result['cpuRatio']:.3f}")


def measure(pairs: int, pods: int, nodes: int, ratio: float) -> tuple[list[Run], list[Run]]:
    """``pairs`` runs without tracing, and as many with ``ratio`` of the pods sampled."""
    off: list[Run] = []
    sampled: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_decide(pods, nodes, 0.0))  # warm up
        for number in range(pairs):
            # The second run finds a warmer machine: take turns.
            order = (0.0, ratio) if number % 2 else (ratio, 0.0)
            for share in order:
                with _tracing(Path(folder) / "spans.jsonl", on=share > 0):
                    run = asyncio.run(_decide(pods, nodes, share))
                (sampled if share > 0 else off).append(run)
    return off, sampled


def _ratio(off: list[float], sampled: list[float]) -> float:
    """The share of the throughput that is left."""
    return statistics.median(a / b for a, b in zip(off, sampled, strict=True))


@contextlib.contextmanager
def _tracing(path: Path, *, on: bool) -> Iterator[None]:
    for name in ENDPOINT_VARIABLES:
        os.environ.pop(name, None)
    if not on:
        yield
        return
    os.environ[FILE_VARIABLE] = str(path)
    telemetry.configure("allocator", "bench")
    try:
        yield
    finally:
        telemetry.shutdown()
        del os.environ[FILE_VARIABLE]


async def _decide(pods: int, nodes: int, share: float) -> Run:
    """Measure from the first pod's fact to the last decision in the log."""
    bus = await _bus(nodes)
    state = AllocatorState(AllocatorOptions(writer="bench"))
    metrics = _Metrics(state)
    serving = asyncio.create_task(Replica(bus, state, metrics).run())
    await _until(lambda: POOL in state.domains and state.ready(state.domains[POOL]))
    facts = [
        encode(fact, source="/bench")
        for number in range(pods)
        for fact in pod_facts(f"pod-{number}", _traceparent(number, share))
    ]
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    for message in facts:
        await bus.publish(message)
    await _until(lambda: metrics.decided == pods)
    run = Run(time.perf_counter() - wall, time.process_time() - cpu)
    serving.cancel()
    await asyncio.wait([serving])
    return run


class _Metrics(AllocatorMetrics):
    """Counts the decisions that are in the log."""

    decided = 0

    def appended(self, record: AnyRecord) -> None:
        super().appended(record)
        self.decided += isinstance(record, Decided)


async def _until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.001)


async def _bus(nodes: int) -> MemoryBus:
    bus = MemoryBus()
    for spec in (*STREAMS, log_spec(POOL, 1)):
        await bus.ensure(spec)
    opened = encode(OPENED, source="/bench").to(log_subject(POOL, 1))
    await bus.append(opened, expected_last=0)
    for fact in (*pool_facts(), *fleet_facts(nodes)):
        await bus.publish(encode(fact, source="/bench"))
    return bus


def _traceparent(number: int, share: float) -> str:
    """Every n-th pod is sampled, the same ones in every run."""
    every = round(1 / share) if share else 0
    return telemetry.new_traceparent(sampled=bool(every) and number % every == 0)


if __name__ == "__main__":
    main()
