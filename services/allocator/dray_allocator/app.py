"""The composition root: settings, adapters and loops."""

import asyncio
import time

from dray.bus import jetstream
from dray.runtime import logs
from dray.runtime.health import HealthPages
from dray.runtime.lifetime import serve
from dray.telemetry import spans
from dray_allocator.metrics import Metrics
from dray_allocator.settings import AllocatorSettings
from dray_allocator.shell import Shell
from dray_allocator.state import AllocatorState

SERVICE = "allocator"


async def run(settings: AllocatorSettings) -> None:
    """Serve until SIGTERM."""
    logs.configure(SERVICE, settings.instance, level=settings.log.level, format=settings.log.format)
    spans.configure(SERVICE, settings.instance)
    bus = await jetstream.connect(
        settings.nats.url,
        name=f"{SERVICE}/{settings.instance}",
        user=settings.nats.user,
        password=settings.nats.password.get_secret_value(),
    )
    state = AllocatorState(settings.rules(), stopwatch=_microseconds)
    health = HealthPages(settings.health.host, settings.health.port)
    shell = Shell(
        bus,
        state,
        Metrics(state, health.registry),
        lease_ttl_s=settings.allocator.lease_ttl,
        lease_renewal_s=settings.allocator.lease_renewal,
    )
    health.check("bus", lambda: None if bus.connected else "away; nothing is decided meanwhile")
    health.check("facts", lambda: shell.problem)
    await serve(
        health=health,
        close=[shell.stop, bus.close, _export_spans],
        allocator=shell.run,
    )


async def _export_spans() -> None:
    await asyncio.to_thread(spans.shutdown)


def _microseconds() -> int:
    return time.perf_counter_ns() // 1000
