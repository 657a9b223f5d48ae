"""Executions that rest: what wakes them, and what doesn't."""

import asyncio
from typing import Any

import pytest

from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, PODS, SLICES, Changed, Deleted, Listed, Resource, WatchEvent
from dray.runtime.clock import ManualClock
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.waiters import WatchWaiters
from dray_claim_controller.informers import Informers


class Rest:
    """Somebody who waits for the claim ``c`` and the pod ``p``, until 10 s have passed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.informers = Informers(MemoryKube(), ObjectCache())
        self.resting = WatchWaiters(self.informers, self.clock)

    def begin(self) -> None:
        self.task = asyncio.ensure_future(self.resting.until_changed(["c", "p"], 10))

    def hear(self, resource: Resource, event: WatchEvent) -> None:
        for listener in self.informers.listeners:
            listener(resource, event)

    async def over(self) -> bool:
        for _ in range(5):
            await asyncio.sleep(0)
        return self.task.done()


@pytest.fixture
async def rest() -> Any:
    made = Rest()
    made.begin()
    assert not await made.over()
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)
    assert not made.informers.listeners


def named(uid: str) -> Any:
    return {"metadata": {"uid": uid, "name": uid}}


@pytest.mark.parametrize(
    ("resource", "event"),
    [
        (CLAIMS, Changed(named("c"))),
        (CLAIMS, Deleted(named("c"))),
        (PODS, Changed(named("p"))),
        (PODS, Listed((), 1)),
    ],
)
async def test_a_change_of_what_is_waited_for_wakes(
    rest: Any, resource: Resource, event: WatchEvent
) -> None:
    rest.hear(resource, event)

    assert await rest.over()


async def test_changes_of_others_do_not(rest: Any) -> None:
    rest.hear(CLAIMS, Changed(named("other")))
    rest.hear(SLICES, Listed((), 1))
    rest.resting.wake("other")

    assert not await rest.over()


async def test_time_wakes(rest: Any) -> None:
    await rest.clock.advance(9)
    assert not await rest.over()
    await rest.clock.advance(1)
    assert await rest.over()


async def test_a_newer_order_of_the_pod_wakes(rest: Any) -> None:
    rest.resting.wake("p")

    assert await rest.over()
