"""The loop that reads the GPUs."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from dray_node_agent.agent import NodeAgent
from dray_node_agent.decisions.gpus import GpuSnapshot
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.gpus.reader import GpuReader
from dray_node_agent.gpus.source import GpusUnavailableError

BOUND_S = 60.0


class HungGpuSource:
    """GPUs whose driver answers nobody, until it does."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    def listen(self, on_event: Callable[[], None]) -> None:
        """None happens."""

    def read(self) -> GpuSnapshot:
        self.answers.wait(BOUND_S)
        return GpuSnapshot(())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - a condition elsewhere
            await asyncio.sleep(0.01)


async def test_cards_that_do_not_answer_are_a_problem_until_they_do() -> None:
    gpus, node = HungGpuSource(), SimpleNamespace(name="n", poll=0.01)
    reader = GpuReader(gpus, deadline_s=0.05)
    agent = NodeAgent(node=node, gpus=reader, publisher=None, reporter=None)  # type: ignore[arg-type]
    agent.on_state(NodeState("n"))
    watching = asyncio.create_task(agent.watch_gpus())
    await until(lambda: "have not answered" in agent.gpus_problem)
    assert agent.inventory() is None
    gpus.answers.set()
    await until(lambda: agent.gpus_problem == "")
    assert agent.inventory() is not None
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_an_error_of_the_driver_says_what_could_not_be_done() -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no text")

    reader = GpuReader(
        SimpleNamespace(
            listen=lambda _: None,
            read=refuse,
            read_usage=refuse,
            set_time_slice=refuse,
            close=refuse,
        )
    )
    for call, problem in (
        (reader.read, "could not read the GPUs: no text"),
        (reader.read_usage, "could not read the use of the GPUs: no text"),
        (lambda: reader.set_time_slice("GPU-1", 2), "could not set the time slice of GPU-1"),
        (reader.close, "could not release the driver: no text"),
    ):
        with pytest.raises(GpusUnavailableError, match=problem):
            await call()


class EventGpuSource(HungGpuSource):
    """GPUs with events."""

    def listen(self, on_event: Callable[[], None]) -> None:
        self.on_event = on_event


def test_an_event_after_the_end_of_the_agent_is_lost() -> None:
    gpus = EventGpuSource()
    gpus.answers.set()
    asyncio.run(GpuReader(gpus).read())
    gpus.on_event()
