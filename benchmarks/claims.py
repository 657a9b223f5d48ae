"""Claims per second, bus to decision log: ``python -m benchmarks.claims``.

Uses a real nats-server as ``make demo`` starts it, which writes every append to the disk before it
acknowledges it (``sync_interval: always``); one allocator, a process as in a stack; and a pool of
nodes with eight cards. While the allocator is stopped (SIGSTOP), the facts of all pods and claims
are published. Then it continues, and reads, decides and appends as fast as it can. These figures
are measured from that moment until the log has the last decision:

claims/s   claims per second of wall time, for pods with one claim each
CPU µs     CPU time of the allocator and of the nats-server per claim; other work affects it less
yard       a thousand additions at the same time, in µs: the speed of the machine

The decisions are not executed: facts about allocated claims, which follow later, do not count.
"""

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from benchmarks.decision import GPUS_PER_NODE, OPENED, POOL, fleet_facts, pod_facts, pool_facts
from benchmarks.machine import add_a_thousand, machine
from benchmarks.reading_server import serving_readings
from dray import telemetry
from dray.bus.jetstream import connect
from dray.bus.ports import Bus
from dray.bus.topology import STREAMS, log_spec
from dray.messages.base import Message, encode
from dray.messages.decisions import Decided, decode_record, log_stream, log_subject
from dray.messages.facts import Fact
from dray_sandbox.nats_server import ADMIN, NatsAccess, start_nats
from dray_sandbox.probes import answers
from dray_sandbox.processes import ProcessSpec, Runner
from dray_sandbox.tcp_ports import free_port

ALLOCATOR, NATS = "allocator", "nats-server"
TARGET = 6_000
AT_ONCE = 512
READY_WITHIN_S = 300.0
DONE_WITHIN_S = 300.0
QUIET_S = 1.0
LOG = log_stream(POOL, 1)


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one run."""

    placement: str
    gpus: int
    claims: int
    sampled: float
    wall_s: float = 0.0
    per_second: float = 0.0
    records: int = 0
    allocator_cpu_us: float = 0.0
    """Per claim, like the next field."""
    nats_cpu_us: float = 0.0
    yard_us: float = 0.0


@click.command()
@click.option("--gpus", default=100_000, show_default=True)
@click.option("--claims", default=20_000, show_default=True)
@click.option("--placement", "placements", multiple=True, default=("CompactFirst",))
@click.option("--sampled", default=0.01, show_default=True, help="Share of traced pods.")
@click.option("--sync", default="always", show_default=True, help="nats-server's sync_interval.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(
    gpus: int, claims: int, placements: tuple[str, ...], sampled: float, sync: str, output: str
) -> None:
    """Measure how fast one allocator decides on this machine."""
    load = os.getloadavg()[0]
    runs = [asyncio.run(measure(one, gpus, claims, sampled, sync)) for one in placements]
    if output == "json":
        rows = [asdict(run) for run in runs]
        click.echo(json.dumps({"machine": machine(), "load": load, "rows": rows}, indent=2))
        return
    click.echo(f"{machine()}, load {load:.1f}, sync_interval {sync}\n")
    for run in runs:
        verdict = "ok" if run.per_second >= TARGET else "MISSED"
        click.echo(
            f"  {run.placement}, {run.gpus:,} GPUs, {run.claims:,} claims, {run.sampled:.1%} "
            f"sampled: {run.per_second:,.0f} claims/s, target ≥ {TARGET:,}: {verdict}\n"
            f"    in {run.records:,} records; CPU µs per claim: allocator "
            f"{run.allocator_cpu_us:.0f}, nats-server {run.nats_cpu_us:.0f}; yard {run.yard_us:.0f}"
        )


async def measure(placement: str, gpus: int, claims: int, sampled: float, sync: str) -> Run:
    """Measure one server and one allocator with all claims at once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runner = Runner(folder / "logs")
        try:
            access = await start_nats(runner, folder, sync_interval=sync, name=NATS)
            password = access.passwords[ADMIN]
            bus = await connect(access.url, name="benchmark", user=ADMIN, password=password)
            try:
                await _open(bus, placement, gpus // GPUS_PER_NODE)
                async with serving_readings(bus):
                    await runner.start(_allocator(access, folder / "spans.jsonl"))
                    begins = await _last(bus) + 1
                    await _publish(bus, pod_facts("warm-up"))
                    await _read(bus, begins, 1)
                    runner.pause(ALLOCATOR)
                    await _publish(bus, _pods(claims, sampled))
                    return await _timed(bus, runner, Run(placement, gpus, claims, sampled))
            finally:
                await bus.close()
        finally:
            await runner.stop_all()


async def _open(bus: Bus, placement: str, nodes: int) -> None:
    """Create the streams, open a log, and publish the facts of a whole pool."""
    for spec in (*STREAMS, log_spec(POOL, 1)):
        await bus.ensure(spec)
    opened = encode(OPENED, source="/benchmark").to(log_subject(POOL, 1))
    await bus.append(opened, expected_last=0)
    await _publish(bus, [*pool_facts(placement), *fleet_facts(nodes)])


async def _publish(bus: Bus, facts: Iterable[Message]) -> None:
    """Publish in order, some at once."""
    batch: list[Message] = []
    for fact in facts:
        batch.append(fact)
        if len(batch) == AT_ONCE:
            await _publish_at_once(bus, batch)
            batch.clear()
    await _publish_at_once(bus, batch)


async def _publish_at_once(bus: Bus, facts: list[Message]) -> None:
    await asyncio.gather(*(bus.publish(encode(fact, source="/benchmark")) for fact in facts))


def _pods(count: int, sampled: float) -> Iterable[Fact]:
    every = round(1 / sampled) if sampled else 0
    for number in range(count):
        is_sampled = bool(every) and number % every == 0
        yield from pod_facts(f"pod-{number}", telemetry.new_traceparent(sampled=is_sampled))


def _allocator(access: NatsAccess, spans: Path) -> ProcessSpec:
    port = free_port()
    environment = {
        "DRAY_INSTANCE": ALLOCATOR,
        "DRAY_HEALTH__HOST": "127.0.0.1",
        "DRAY_HEALTH__PORT": str(port),
        "DRAY_LOG__LEVEL": "warning",
        "DRAY_TRACE_FILE": str(spans),
        **access.environment(ALLOCATOR),
    }
    return ProcessSpec(
        name=ALLOCATOR,
        argv=(sys.executable, "-m", "dray_allocator"),
        environment=environment,
        ready=answers(f"http://127.0.0.1:{port}/readyz"),
        ready_within_s=READY_WITHIN_S,
    )


async def _timed(bus: Bus, runner: Runner, run: Run) -> Run:
    """Measure from the allocator's continuation to the last decision in the log."""
    begins = await _last(bus) + 1
    pids = runner.pids()
    before = {name: _cpu_s(pids[name]) for name in (ALLOCATOR, NATS)}
    began_unix_s = time.time()
    runner.resume(ALLOCATOR)
    yard_us = await _settled(bus, begins - 1)
    used = {name: _cpu_s(pids[name]) - before[name] for name in before}
    records, ended_unix_s = await _read(bus, begins, run.claims)
    wall_s = ended_unix_s - began_unix_s
    return replace(
        run,
        wall_s=wall_s,
        per_second=run.claims / wall_s,
        records=records,
        allocator_cpu_us=used[ALLOCATOR] / run.claims * 1e6,
        nats_cpu_us=used[NATS] / run.claims * 1e6,
        yard_us=yard_us,
    )


async def _last(bus: Bus) -> int:
    state = await bus.state(LOG)
    return state.last_sequence if state is not None else 0


async def _settled(bus: Bus, before: int) -> float:
    """Wait until the log has grown and grows no more; returns the yard meanwhile, in µs. Reading
    the log would cost the server time."""
    yards: list[float] = []
    async with asyncio.timeout(DONE_WITHIN_S):
        while True:
            seen = await _last(bus)
            await asyncio.sleep(QUIET_S)
            yards.append(min(timeit.repeat(add_a_thousand, number=1, repeat=5)) * 1e6)
            if before < seen == await _last(bus):
                return statistics.median(yards)


async def _read(bus: Bus, begins: int, claims: int) -> tuple[int, float]:
    """The number of records until all claims are decided, and when the log had the last one."""
    decided = records = 0
    async with asyncio.timeout(DONE_WITHIN_S):
        async with contextlib.aclosing(bus.read(LOG, start=begins)) as reading:
            async for delivered in reading:
                record = decode_record(delivered.payload)
                records += 1
                if isinstance(record, Decided):
                    decided += sum(len(pod.claims) for pod in record.pods)
                if decided >= claims:
                    return records, delivered.time_unix_s
    raise AssertionError("reading a stream ends with a time-out, or not at all")


def _cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
