"""How long a leader leads whose API server says nothing."""

import asyncio

from dray.kube.memory import MemoryKube
from dray.kube.ports import Resource
from dray.runtime.clock import SystemClock
from dray_claim_controller.leader.election import Election, Timing

BOUND_S = 60.0


async def test_a_leader_steps_down_though_its_api_server_only_falls_silent() -> None:
    """It would not refuse anything: its answer comes after half a minute, or never."""
    kube, leads, has_ended = MemoryKube(), asyncio.Event(), asyncio.Event()

    async def term() -> None:
        leads.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    async def say_nothing(resource: Resource, name: str) -> None:
        await asyncio.Event().wait()

    timing = Timing(lease_s=0.3, renew_s=0.2, retry_s=0.05)
    election = Election(kube, SystemClock(), name="l", namespace="n", identity="me", timing=timing)
    standing = asyncio.create_task(election.run(term))
    async with asyncio.timeout(BOUND_S):
        await leads.wait()
        kube.before["get"] = say_nothing
        await has_ended.wait()
    assert not election.leading
    standing.cancel()
    await asyncio.wait([standing])
