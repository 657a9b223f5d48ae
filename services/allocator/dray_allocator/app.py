"""The composition root: settings, adapters and loops."""

import asyncio
import gc
import time

from dray.bus import jetstream
from dray.bus.payload import payload_problem
from dray.bus.ports import Request
from dray.bus.topology import ALLOCATOR
from dray.messages.rpc import DUMP_SUBJECT
from dray.runtime import logs
from dray.runtime.health import HealthPages
from dray.runtime.lifetime import serve
from dray.telemetry import spans
from dray_allocator.service.metrics import AllocatorMetrics
from dray_allocator.service.replica import Replica
from dray_allocator.service.wire import answer_to
from dray_allocator.settings import AllocatorSettings
from dray_allocator.state.state import AllocatorState

SERVICE = "allocator"
_NEW_OBJECTS = 100_000
"""Made before rubbish is looked for. Facts live long and are millions of objects: looking through
them again and again took a third of the time of an allocator that starts."""


async def run(settings: AllocatorSettings) -> None:
    """Serve until SIGTERM."""
    gc.set_threshold(_NEW_OBJECTS, 20, 100)
    logs.configure(SERVICE, settings.instance, level=settings.log.level, format=settings.log.format)
    spans.configure(SERVICE, settings.instance)
    bus = await jetstream.connect(
        settings.nats.url,
        name=f"{SERVICE}/{settings.instance}",
        role=ALLOCATOR,
        user=settings.nats.user,
        password=settings.nats.password.get_secret_value(),
    )
    state = AllocatorState(settings.rules(), stopwatch=_microseconds)
    health = HealthPages(settings.health.host, settings.health.port)
    shell = Replica(
        bus,
        state,
        AllocatorMetrics(state, health.registry),
        lease_ttl_s=settings.allocator.lease_ttl,
        lease_renewal_s=settings.allocator.lease_renewal,
    )
    health.check("bus", lambda: bus.problem)
    health.report("bus-max-payload", lambda: payload_problem(bus.max_payload_bytes))
    health.check("facts", lambda: shell.problem)
    health.report("pools", lambda: shell.undecodable)

    async def answer(request: Request) -> bytes | None:
        return answer_to(state, request.payload)

    async def answers() -> None:
        # Every replica is asked, and one answers: each is a queue of its own.
        await bus.serve(DUMP_SUBJECT, answer, queue=settings.instance)

    await serve(
        health=health,
        close=[shell.stop, bus.close, _export_spans],
        allocator=shell.run,
        answers=answers,
    )


async def _export_spans() -> None:
    await asyncio.to_thread(spans.shutdown)


def _microseconds() -> int:
    return time.perf_counter_ns() // 1000
