"""The costs of an allocator that serves many pools: ``python -m benchmarks.many_pools``.

Measures the CPU time per fact of a new claim, and per fact of the same claim once it is allocated,
with one pool and with many; the facts concern one pool. Also measures the time in which the leases
of all pools are renewed at once on a real nats-server that syncs every write; a replica renews a
quarter at a time. Exits with 1 if that takes more than a tenth of the leases' duration.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import click
from msgspec.structs import replace

from benchmarks.machine import machine
from dray.api.claims import AllocatedDevice, Allocation, Claim, ClaimSpec, DeviceRequest
from dray.api.devices import DeviceId
from dray.api.names import DEVICE_CLASS, DRIVER, GPU_REQUEST
from dray.bus import jetstream
from dray.bus.ports import Bus
from dray.bus.topology import ALLOCATOR, CLAIM_CONTROLLER, STREAMS
from dray.messages.decisions import Opened, domain_lease
from dray.messages.facts import ClaimObserved, DomainObserved, Fact, Synced, Tick
from dray_allocator.core.handle import handle
from dray_allocator.settings import Allocator
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import Continue, Event, FactSeen, RecordSeen, Serve
from dray_sandbox.nats_server import NatsAccess, start_nats
from dray_sandbox.processes import Runner

_LEASE_S = Allocator().lease_ttl
_SPEC = ClaimSpec((DeviceRequest(GPU_REQUEST, DEVICE_CLASS),))


class Replica:
    """A replica that serves some pools."""

    def __init__(self, pools: int) -> None:
        self._state = AllocatorState()
        self._facts = 0
        for name in (f"pool-{number}" for number in range(pools)):
            self.see(DomainObserved(revision=1, domain=name, epoch=1))
            opened = Opened(domain=name, epoch=1, writer="c", facts_sequence=0, now_unix_s=0.0)
            self._do(RecordSeen(name, 1, 1, opened))
            self._do(Serve(name, 1, 1))
        self.see(Synced(revision=1, instance="c"))
        self.see(Tick(revision=1, now_unix_s=1.0))

    def see(self, fact: Fact) -> None:
        """Apply the next fact."""
        self._facts += 1
        self._do(FactSeen(self._facts, fact))

    def _do(self, event: Event) -> None:
        handle(self._state, event)
        while self._state.unfinished:
            handle(self._state, Continue())


def _claims(count: int) -> list[Claim]:
    return [
        Claim(f"uid-{number}", "ns", f"claim-{number}", 1, "pool-0", _SPEC, "", "")
        for number in range(count)
    ]


def _allocated(claim: Claim) -> Claim:
    share = AllocatedDevice(GPU_REQUEST, DeviceId(DRIVER, "node", claim.name))
    return replace(claim, allocation=Allocation((share,)), resource_version=2)


def _cpu_us(replica: Replica, claims: Iterable[Claim], count: int) -> float:
    began_s = time.process_time()
    for claim in claims:
        replica.see(ClaimObserved(revision=claim.resource_version, claim=claim))
    return (time.process_time() - began_s) * 1e6 / count


async def _renewal_s(pools: int) -> float:
    """The time in which the leases of all pools are renewed."""
    with tempfile.TemporaryDirectory() as name:
        runner = Runner(Path(name) / "logs")
        try:
            access = await start_nats(
                runner, Path(name), sync_interval="always", name="nats-server"
            )
            owner = await _connect(access, CLAIM_CONTROLLER)
            for spec in STREAMS:
                await owner.ensure(spec)
            bus = await _connect(access, ALLOCATOR)
            leases = [domain_lease(f"pool-{number}") for number in range(pools)]
            for _ in range(2):
                began_s = time.monotonic()
                outcomes = await bus.acquire_all(leases, "one", ttl_s=_LEASE_S)
                assert outcomes == [True] * pools
                took_s = time.monotonic() - began_s
            await bus.close()
            await owner.close()
            return took_s
        finally:
            await runner.stop_all()


async def _connect(access: NatsAccess, role: str) -> Bus:
    given = access.environment(role)
    return await jetstream.connect(
        given["DRAY_NATS__URL"],
        name="bench",
        user=given.get("DRAY_NATS__USER", ""),
        password=given.get("DRAY_NATS__PASSWORD", ""),
        ca_file=None,
        replicas=1,
    )


@click.command(help=__doc__)
@click.option("--pools", default=1000, show_default=True)
@click.option("--claims", default=1000, show_default=True)
def main(pools: int, claims: int) -> None:
    """Measure and print."""
    click.echo(machine())
    for count in (1, pools):
        replica, made = Replica(count), _claims(claims)
        new_us = _cpu_us(replica, made, claims)
        allocated_us = _cpu_us(replica, map(_allocated, made), claims)
        click.echo(
            f"{count:5} pools: {new_us:6.0f} us per new claim, {allocated_us:6.0f} us allocated"
        )
    took_s, most_s = asyncio.run(_renewal_s(pools)), _LEASE_S / 10
    click.echo(f"{pools:5} leases renewed at once: {took_s:.3f} s  (at most {most_s:g})")
    sys.exit(1 if took_s > most_s else 0)


if __name__ == "__main__":
    main()
