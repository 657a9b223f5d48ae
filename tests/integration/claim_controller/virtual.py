"""The same cluster in virtual time, with an allocator: what takes minutes takes milliseconds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import prometheus_client
from tests.integration.claim_controller.world import Running, World
from tests.virtual_time import LoopClock, run_virtually

from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray.kube.ports import BIND_REQUESTS, EVENTS, NAMESPACES
from dray.runtime.clock import Clock
from dray_allocator.service.replica import Replica
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.domain import Reservation
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions
from dray_claim_controller.settings import ExecutionSettings, Lease, Publishing, Templates

REAL_INTERVALS: dict[str, Any] = {
    "lease": Lease(),
    "execution": ExecutionSettings(),
    "publishing": Publishing(),
    "templates": Templates(),
}


class VirtualWorld(World):
    """A world whose controllers have the settings that they have in a cluster."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__(
            MemoryKube(now_unix_s=clock.now_unix_s), MemoryBus(now_unix_s=clock.now_unix_s)
        )
        self.clock = clock
        self.allocators: list[AllocatorState] = []

    async def start(self, name: str = "one", *, clock: Clock | None = None, **more: Any) -> Running:
        return await super().start(name, clock=clock or self.clock, **{**REAL_INTERVALS, **more})

    def allocate(self, name: str = "allocator") -> AllocatorState:
        """Start a replica of the allocator; its state."""
        state = AllocatorState(AllocatorOptions(writer=name))
        metrics = AllocatorMetrics(state, prometheus_client.CollectorRegistry())
        shell = Replica(self.bus.peer(), state, metrics)
        self.helpers.append(asyncio.ensure_future(shell.run()))
        self.allocators.append(state)
        return state

    async def namespace(self, name: str) -> str:
        """A further namespace; its name."""
        await self.kube.create(NAMESPACES, {"metadata": {"name": name}})
        return name

    async def claim_of(self, pod: str, namespace: str = "default") -> str:
        """Wait for the pod's claim; its name."""
        claim = await self.until(lambda: self.claim(pod, namespace), f"the claim of {pod}")
        name: str = claim["metadata"]["name"]
        return name

    def reservations(self) -> dict[str, Reservation]:
        """What the logs reserve, by claim name."""
        return {one.name: one for state in self.allocators for one in state.reservations()}

    def bind_request(self, pod: str, namespace: str = "default") -> dict[str, Any]:
        """The status of the pod's BindRequest; empty: there is none."""
        found = self.kube.store.of(BIND_REQUESTS).get((namespace, pod)) or {}
        return found.get("status") or {}

    def events(self, pod: str) -> dict[str, str]:
        """What the events about a pod say, by reason."""
        found = self.kube.store.of(EVENTS).values()
        about = [one for one in found if one["involvedObject"]["name"] == pod]
        return {one["reason"]: one["message"] for one in about}


def in_virtual_time(scenario: Callable[[VirtualWorld], Awaitable[None]]) -> None:
    """Run a scenario in a world of one pool, claims and a controller that is ready."""

    async def main(clock: LoopClock) -> None:
        world = VirtualWorld(clock)
        await world.base()
        world.make_claims()
        await world.ready(await world.start())
        try:
            await scenario(world)
        finally:
            await world.close()

    run_virtually(main)
