"""Allocators that share a fleet: ``python -m benchmarks.replicas``.

Allocators are separate processes on a real nats-server, with pools of 8 nodes with eight cards
each. This process stands in for the rest: it creates pods with a claim, reads every decision log,
and commits the decisions. These figures are measured one after the other:

joined    from the readiness of one more allocator until it serves its share of the pools
taken     from the kill of one (SIGKILL) until the others have decided in every pool that it served
cpu       milliseconds of CPU time of all allocators per claim, by the number of allocators, each
          with the load that one had; and ("one load") all of them with the load that one had

Every decision is checked: no claim is decided twice, no device exceeds its capacity, and no claim
is left out.
"""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
from msgspec.structs import replace

from benchmarks import decision
from benchmarks.allocators import NATS, Bench, bench
from benchmarks.machine import machine
from dray.api import names
from dray.api.devices import DeviceClass
from dray.api.pods import Node, Policy, Pool
from dray.messages.base import Message
from dray.messages.decisions import ClaimDecision, Decided, decode_record, log_stream
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    DomainObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    SliceObserved,
    Synced,
    Tick,
)

NODES = 8
_WITHIN_S = 60.0
_IN_FLIGHT = 192
"""Undecided claims at a time for each allocator, so that it always has work."""
_TOGETHER = 64
_TFLOPS = 312


class WrongError(Exception):
    """A claim was decided twice, or a device was allocated twice."""


@dataclass(slots=True)
class Fleet:
    """The pools of a bench, and all decisions in them."""

    made: Bench
    pools: tuple[str, ...]
    claims: dict[str, Any] = field(default_factory=dict)
    """The current claims, by uid."""
    decided: dict[str, str] = field(default_factory=dict)
    """The allocator that decided, by claim."""
    used: Counter[str] = field(default_factory=Counter)
    """Allocated TFLOPS, by device."""
    writers: dict[str, str] = field(default_factory=dict)
    """The last writer, by pool."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def open(self) -> None:
        """Publish the configuration, logs and nodes; then the facts are complete."""
        for pool in self.pools:
            await self.made.open_log(pool)
        await self.made.publish(_facts(self.pools))

    async def read(self, pool: str) -> None:
        """Read every record of a pool's log, and commit the decisions."""
        async for delivered in self.made.bus.read(log_stream(pool, 1)):
            record = decode_record(delivered.payload)
            self.writers[pool] = record.writer
            if isinstance(record, Decided):
                claims = [claim for pod in record.pods for claim in pod.claims]
                committed = [self._commit(claim, record.writer) for claim in claims]
                await self.made.publish(committed)
            async with self.changed:
                self.changed.notify_all()

    def _commit(self, claim: ClaimDecision, writer: str) -> ClaimObserved:
        if claim.uid in self.decided:
            raise WrongError(f"claim {claim.uid} was decided twice")
        self.decided[claim.uid] = writer
        for share in claim.allocation.devices:
            device = str(share.id)
            self.used[device] += int(share.consumed["virtual_tflops"])
            if self.used[device] > _TFLOPS:
                raise WrongError(f"{device} was sold for {self.used[device]} TFLOPS")
        known = replace(self.claims[claim.uid], allocation=claim.allocation)
        return ClaimObserved(revision=2, claim=known)

    async def submit(self, pods: Sequence[tuple[str, str]]) -> None:
        """Publish pods, given by pool and uid, each with a claim."""
        facts: list[Message] = []
        for pool, uid in pods:
            claim_fact, pod_fact = decision.pod_facts(uid)
            claim = self.claims[f"claim-{uid}"] = replace(claim_fact.claim, pool=pool)
            facts.append(ClaimObserved(revision=1, claim=claim))
            facts.append(PodObserved(revision=1, pod=replace(pod_fact.pod, pool=pool)))
        await self.made.publish(facts)

    async def until(self, *uids: str) -> None:
        """Wait until these pods are decided."""
        async with asyncio.timeout(_WITHIN_S), self.changed:
            await self.changed.wait_for(lambda: all(f"claim-{uid}" in self.decided for uid in uids))

    async def round(self, name: str) -> dict[str, str]:
        """Let one pod be decided in every pool; returns who decided, by pool."""
        uids = {pool: f"{name}-{pool}" for pool in self.pools}
        await self.submit(tuple(uids.items()))
        await self.until(*uids.values())
        return {pool: self.decided[f"claim-{uid}"] for pool, uid in uids.items()}

    async def load(self, name: str, claims: int, in_flight: int) -> None:
        """Submit pods to all pools in turn, with ``in_flight`` undecided ones at any time."""
        uids = [f"{name}-{number}" for number in range(claims)]
        for first in range(0, claims, _TOGETHER):
            ahead = range(first, min(claims, first + _TOGETHER))
            await self.submit([(self.pools[n % len(self.pools)], uids[n]) for n in ahead])
            await self.until(*uids[: max(0, ahead.stop - in_flight)])
        await self.until(*uids)


def _facts(pools: tuple[str, ...]) -> Iterator[Message]:
    yield DeviceClassObserved(revision=1, device_class=DeviceClass(names.DEVICE_CLASS))
    policy = Policy("policy", "u", placement="CompactFirst", version=1)
    yield PolicyObserved(revision=1, policy=policy)
    for pool in pools:
        yield PoolObserved(revision=1, pool=Pool(pool, f"u-{pool}", template="policy"))
        yield DomainObserved(revision=1, domain=pool, epoch=1)
        for number in range(NODES):
            name = f"{pool}-node-{number}"
            yield SliceObserved(revision=1, slice=decision.slice_of(name))
            made = Node(name, f"u-{name}", pool, cpu_milli=64_000, memory_bytes=2**39, pods=1_000)
            yield NodeObserved(revision=1, node=made)
    yield Synced(revision=1, instance="c")
    yield Tick(revision=1, now_unix_s=1.0)


async def measure(pools: int, replicas: int, claims: int) -> list[dict[str, Any]]:
    """Rows: one per number of replicas, and one for the kill."""
    async with bench() as made, asyncio.TaskGroup() as group:
        fleet = Fleet(made, tuple(f"pool-{number}" for number in range(pools)))
        await fleet.open()
        readers = [group.create_task(fleet.read(pool)) for pool in fleet.pools]
        rows = []
        for count in range(1, replicas + 1):
            rows.append({"replicas": count, "pools": pools, **await _joined(fleet, count)})
            rows[-1]["cpu_ms"] = await _loaded(fleet, count, claims, _IN_FLIGHT * count)
            if count > 1:
                rows[-1]["cpu_ms_one_load"] = await _loaded(fleet, count, claims, _IN_FLIGHT)
        rows.append({"replicas": replicas, "pools": pools, **await _taken(fleet, replicas)})
        missing = fleet.claims.keys() - fleet.decided.keys()
        if missing:
            raise WrongError(f"nobody decided about {sorted(missing)}")
        for reader in readers:
            reader.cancel()
        return rows


async def _joined(fleet: Fleet, count: int) -> dict[str, Any]:
    """Start one more allocator; measure seconds from its readiness until it serves its share."""
    name = f"allocator-{count}"
    most = -(-len(fleet.pools) // count)
    share = len(fleet.pools) - (count - 1) * most
    await fleet.made.start(name)
    began, turns = time.monotonic(), 0
    while True:
        turns += 1
        served = Counter((await fleet.round(f"join-{count}-{turns}")).values())
        if served[name] >= share and max(served.values()) <= most:
            return {"joined_s": time.monotonic() - began, "served": dict(served)}
        if time.monotonic() - began > _WITHIN_S:
            raise WrongError(f"{name} serves {served[name]} of {len(fleet.pools)} pools")


async def _loaded(fleet: Fleet, count: int, claims: int, in_flight: int) -> float:
    """Milliseconds of CPU time of all allocators, per claim."""
    await fleet.load(f"warm-{count}-{in_flight}", claims // 10, in_flight)
    before = _cpu_s(fleet)
    await fleet.load(f"load-{count}-{in_flight}", claims, in_flight)
    return (_cpu_s(fleet) - before) * 1000 / claims


def _cpu_s(fleet: Fleet) -> float:
    return sum(cpu_s for name, cpu_s in fleet.made.cpu_s().items() if name != NATS)


async def _taken(fleet: Fleet, replicas: int) -> dict[str, Any]:
    """Kill an allocator that serves several pools; measure seconds until others decide in all of
    them."""
    victim = f"allocator-{replicas}"
    before = await fleet.round("before")
    began = time.monotonic()
    await fleet.made.runner.kill(victim)
    after = await fleet.round("after")
    taken_s = time.monotonic() - began
    orphans = [pool for pool, writer in before.items() if writer == victim]
    return {"taken_s": taken_s, "orphans": len(orphans), "served": dict(Counter(after.values()))}


@click.command()
@click.option("--pools", default=16, show_default=True)
@click.option("--replicas", default=4, show_default=True)
@click.option("--claims", default=2_000, show_default=True, help="Per number of replicas.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(pools: int, replicas: int, claims: int, output: str) -> None:
    """Measure replicas that share a fleet."""
    load = os.getloadavg()[0]
    rows = asyncio.run(measure(pools, replicas, claims))
    growth = rows[replicas - 1]["cpu_ms"] / rows[0]["cpu_ms"]
    if output == "json":
        found = {"machine": machine(), "load": load, "rows": rows, "growth": growth}
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{machine()}, load {load:.1f}\n")
    for row in rows:
        click.echo("  ".join(f"{name} {_as_text(value)}" for name, value in row.items()))
    click.echo(f"\nCPU per claim with {replicas} by that with 1: {growth:.2f}")


def _as_text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
