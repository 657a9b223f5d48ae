"""Allocators as separate processes on a real nats-server, and stand-ins for the rest."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import aiohttp

from benchmarks.control_plane_meter import process_cpu_s
from benchmarks.reading_server import serving_readings
from dray.bus.jetstream import connect
from dray.bus.ports import Bus
from dray.bus.topology import STREAMS, log_spec
from dray.messages.base import Message, encode
from dray.messages.decisions import Opened, log_subject
from dray_sandbox.nats_server import ADMIN, NatsAccess, start_nats
from dray_sandbox.processes import ProcessSpec, Runner
from dray_sandbox.tcp_ports import free_port

NATS = "nats-server"
_TOGETHER = 128
_READY_WITHIN_S = 300.0


@dataclass(slots=True)
class Bench:
    """A nats-server with its streams, and the allocators that were started on it."""

    runner: Runner
    access: NatsAccess
    bus: Bus
    http: aiohttp.ClientSession

    async def publish(self, every: Iterable[Message]) -> int:
        """Publish facts to their stream, in order; returns their number."""
        ahead, count = iter(every), 0
        while batch := [encode(fact, source="/bench") for fact in islice(ahead, _TOGETHER)]:
            await asyncio.gather(*(self.bus.publish(message) for message in batch))
            count += len(batch)
        return count

    async def open_log(self, domain: str) -> None:
        """Create the decision log of a domain, with its first record."""
        await self.bus.ensure(log_spec(domain, 1))
        opened = Opened(domain=domain, epoch=1, writer="c", facts_sequence=0, now_unix_s=0.0)
        message = encode(opened, source="/bench").to(log_subject(domain, 1))
        await self.bus.append(message, expected_last=0)

    async def start(self, name: str, settings: Mapping[str, str] | None = None) -> None:
        """Start an allocator; returns when it is ready."""
        port = free_port()
        page = f"http://127.0.0.1:{port}/readyz"
        environment = {
            **self.access.environment("allocator"),
            "DRAY_INSTANCE": name,
            "DRAY_HEALTH__PORT": str(port),
            "DRAY_LOG__LEVEL": "warning",
            **(settings or {}),
        }
        argv = (sys.executable, "-m", "dray_allocator")
        program = ProcessSpec(
            name, argv, environment, lambda: self._answers(page), _READY_WITHIN_S, order=20
        )
        await self.runner.start(program)

    async def _answers(self, page: str) -> bool:
        try:
            async with self.http.get(page) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    def cpu_s(self) -> dict[str, float]:
        """CPU time of every program so far, in seconds."""
        return {name: process_cpu_s(pid) for name, pid in self.runner.pids().items()}

    def most_mib(self, name: str) -> int:
        """The most memory that a program has used so far."""
        status = Path(f"/proc/{self.runner.pids()[name]}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) // 1024


@asynccontextmanager
async def bench(*, sync_interval: str = "always") -> AsyncIterator[Bench]:
    """A separate nats-server. It and everything that was started on it end with the block."""
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder) / "logs")
        try:
            access = await start_nats(runner, Path(folder), sync_interval=sync_interval, name=NATS)
            password = access.passwords[ADMIN]
            bus = await connect(access.url, name="bench", user=ADMIN, password=password)
            try:
                async with aiohttp.ClientSession() as http:
                    for spec in STREAMS:
                        await bus.ensure(spec)
                    async with serving_readings(bus):
                        yield Bench(runner, access, bus, http)
            finally:
                await bus.close()
        finally:
            await runner.stop_all()
