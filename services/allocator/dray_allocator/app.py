"""The composition root: settings, adapters and loops."""

import asyncio
import time

from dray.bus import jetstream
from dray.bus.payload import payload_problem
from dray.bus.ports import Request
from dray.bus.topology import ALLOCATOR
from dray.messages.rpc import DUMP_SUBJECT, SCORES_SUBJECT
from dray.runtime import logs
from dray.runtime.garbage import collect_seldom
from dray.runtime.health import HealthPages
from dray.runtime.lifetime import serve
from dray.telemetry import spans
from dray_allocator.core.dump import answer_to
from dray_allocator.placement.scores import reply_with_scores
from dray_allocator.service.replica import Replica
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.settings import AllocatorSettings
from dray_allocator.state.state import AllocatorState

_SERVICE = "allocator"


async def run(settings: AllocatorSettings) -> None:
    """Serve until SIGTERM."""
    collect_seldom()
    logs.configure(
        _SERVICE, settings.instance, level=settings.log.level, format=settings.log.format
    )
    spans.configure(_SERVICE, settings.instance)
    bus = await jetstream.connect(
        settings.nats.url,
        name=f"{_SERVICE}/{settings.instance}",
        role=ALLOCATOR,
        user=settings.nats.user,
        password=settings.nats.password.get_secret_value(),
        ca_file=settings.nats.ca_file,
    )
    state = AllocatorState(settings.options(), stopwatch=_microseconds)
    health = HealthPages(settings.health.host, settings.health.port)
    replica = Replica(
        bus,
        state,
        AllocatorMetrics(state, health.registry),
        lease_ttl_s=settings.allocator.lease_ttl,
        lease_renewal_s=settings.allocator.lease_renewal,
    )
    health.check("bus", lambda: bus.problem)
    health.report("bus-max-payload", lambda: payload_problem(bus.max_payload_bytes))
    health.check("facts", lambda: replica.problem)
    health.report("pools", lambda: replica.undecodable)

    async def dump(request: Request) -> bytes | None:
        return answer_to(state, request.payload)

    async def scores(request: Request) -> bytes | None:
        return reply_with_scores(state, request.payload)

    async def answers() -> None:
        # Each replica has its own queue, so every replica gets the request. Only the replica that
        # has the data answers.
        await asyncio.gather(
            bus.serve(DUMP_SUBJECT, dump, queue=settings.instance),
            bus.serve(SCORES_SUBJECT, scores, queue=settings.instance),
        )

    await serve(
        health=health,
        close=[replica.stop, bus.close, _export_spans],
        allocator=replica.run,
        answers=answers,
    )


async def _export_spans() -> None:
    await asyncio.to_thread(spans.shutdown)


def _microseconds() -> int:
    return time.perf_counter_ns() // 1000
