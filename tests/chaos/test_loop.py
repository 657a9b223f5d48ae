"""Virtual time, and processes that are stopped and killed in it."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tools.simulation.loop import CURRENT, Process, StuckLoopError, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def start(loop: VirtualLoop, process: Process, work: Coroutine[Any, Any, Any]) -> Any:
    token = CURRENT.set(process)
    try:
        return loop.create_task(work)
    finally:
        CURRENT.reset(token)


async def _count(ticks: list[float]) -> None:
    while True:
        await asyncio.sleep(1.0)
        ticks.append(int(asyncio.get_running_loop().time()))


def test_an_hour_passes_at_once(loop: VirtualLoop) -> None:
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == pytest.approx(3600, abs=0.1)


def test_waiting_for_nothing_is_an_error_instead_of_a_hang(loop: VirtualLoop) -> None:
    forever = loop.create_future()
    with pytest.raises(StuckLoopError):
        loop.run_until_complete(forever)


def test_a_stopped_process_runs_nothing_and_then_goes_on_where_it_was(loop: VirtualLoop) -> None:
    ticks: list[float] = []
    process = Process("p")

    async def play() -> None:
        task = start(loop, process, _count(ticks))
        await asyncio.sleep(2.5)
        process.pause(loop)
        await asyncio.sleep(10)
        assert ticks == [1, 2]
        process.resume(loop)
        await asyncio.sleep(2)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    loop.run_until_complete(play())
    assert ticks[:3] == [1, 2, 12]


def test_a_process_can_be_stopped_while_its_work_is_ready(loop: VirtualLoop) -> None:
    ran: list[str] = []
    process = Process("p")

    async def note() -> None:
        ran.append("note")

    async def play() -> None:
        await asyncio.sleep(1)
        loop.call_soon(process.pause, loop)
        start(loop, process, note())
        await asyncio.sleep(1)
        assert ran == []
        process.resume(loop)
        await asyncio.sleep(1)

    loop.run_until_complete(play())
    assert ran == ["note"]


def test_a_killed_process_ends_with_all_that_it_began(loop: VirtualLoop) -> None:
    ticks: list[float] = []
    process = Process("p")

    async def two() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_count(ticks))
            group.create_task(_count(ticks))

    async def play() -> None:
        start(loop, process, two())
        await asyncio.sleep(1.5)
        process.pause(loop)
        process.kill(loop)
        await asyncio.sleep(5)

    loop.run_until_complete(play())
    assert ticks == [1, 1]
    assert not process.tasks
