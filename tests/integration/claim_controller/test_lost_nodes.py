"""A node is deleted or falls silent: the reasons of waiting pods follow it, in virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.integration.claim_controller.virtual import VirtualWorld, in_virtual_time

from dray.kube.ports import NODES

FOLLOWS_WITHIN_S = 2.0


async def is_deleted(world: VirtualWorld) -> None:
    await world.kube.delete(NODES, "node-1")


async def is_silent(world: VirtualWorld) -> None:
    ready = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting."}
    patch = {"status": {"conditions": [ready]}}
    await world.kube.patch(NODES, "node-1", patch, subresource="status")


@pytest.mark.parametrize(
    ("happens", "words", "status"),
    [
        (is_deleted, "has no node to allocate on", ("Failed", "NodeLost")),
        (is_silent, "not ready", ("Succeeded", "NodeNotReady")),
    ],
)
def test_reasons_and_bind_requests_follow_within_two_seconds(
    happens: Callable[[VirtualWorld], Awaitable[None]], words: str, status: tuple[str, str]
) -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        await world.pod("runs", shape=world.shape("100", "4Gi"))
        await world.until(lambda: world.bind_request("runs").get("reason") == "Bound", "it runs")
        await world.pod("waits", shape=world.shape("9000", "4Gi"))

        def explanation() -> Any:
            return world.bind_request("waits").get("explanation")

        await world.until(explanation, "a reason about the devices")
        assert words not in explanation()
        await world.clock.sleep(1.0)
        began_s = world.clock.monotonic_s()
        await happens(world)
        await world.until(lambda: words in explanation(), "another reason")

        def runs() -> tuple[str, str]:
            found = world.bind_request("runs")
            return found["phase"], found["reason"]

        await world.until(lambda: runs() == status, "the bound pod's BindRequest follows")
        assert world.clock.monotonic_s() - began_s <= FOLLOWS_WITHIN_S

    in_virtual_time(scenario)
