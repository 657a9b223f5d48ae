"""The node-agents of many nodes in one process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dray.bus.memory import MemoryBus
from dray.bus.ports import BusUnavailableError
from dray.kube.memory import MemoryKube
from dray.recording.journal import Journal
from dray.runtime.health import HealthPages
from dray_node_agent.settings import NodeAgentSettings, NodeGroup
from dray_sandbox import agents


class Recorded(MemoryBus):
    """A bus that says when it is connected."""

    def __init__(self, connected: list["Recorded"]) -> None:
        super().__init__()
        self._buses = connected

    def start(self) -> None:
        self._buses.append(self)

    async def close(self) -> None:
        self._buses.remove(self)


@dataclass
class Ran:
    """What ``agents.run`` started, while an agent's loops do nothing."""

    connected: list[Recorded] = field(default_factory=list)
    journals: list[Journal | None] = field(default_factory=list)
    running: list[HealthPages] = field(default_factory=list)
    """Of the agents whose loop runs."""
    loops: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    pages: list[HealthPages] = field(default_factory=list)
    """Each agent's checks, by their order."""
    health: HealthPages = field(default_factory=HealthPages)
    problem: str | None = None
    """Of every agent."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    ran = Ran()

    async def bus(*_: object, wait_s: float | None) -> Recorded:
        assert wait_s is None
        return Recorded(ran.connected)

    async def kube(*_: object, **__: object) -> MemoryKube:
        return MemoryKube()

    def assemble(*arguments: Any) -> dict[str, Any]:
        pages: HealthPages = arguments[5]
        pages.check("agent", lambda: ran.problem)
        ran.pages.append(pages)
        ran.journals.append(arguments[6])

        async def loop() -> None:
            ran.running.append(pages)
            await asyncio.Event().wait()

        return {"loop": loop, "containers": loop}

    async def serve(*, health: HealthPages, close: Sequence[Any], **loops: Any) -> None:
        ran.health = health
        ran.loops = {name: asyncio.create_task(loop()) for name, loop in loops.items()}
        try:
            await asyncio.gather(*ran.loops.values())
        finally:
            for step in close:
                with contextlib.suppress(BusUnavailableError):  # as it logs it
                    await step()

    monkeypatch.setattr(agents, "connect_bus", bus)
    monkeypatch.setattr(agents, "assemble", assemble)
    monkeypatch.setattr("dray.kube.api.connect", kube)
    monkeypatch.setattr("dray.runtime.lifetime.serve", serve)
    return ran


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(folder: Path, count: int, *, record: bool = False) -> AsyncIterator[None]:
    nodes = [
        NodeGroup(
            name=f"n{number}",
            state_dir=folder / f"s{number}",
            plugins_dir=folder / "p",
            registry_dir=folder / "r",
            cdi_dir=folder / "c",
        )
        for number in range(count)
    ]
    settings = NodeAgentSettings(
        node=nodes[0],
        record=record,
        kube={"kubeconfig": "unused"},
        nats={"url": "nats://unused:1"},
    )
    task = asyncio.create_task(agents.run(settings, nodes))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("record", [False, True])
async def test_each_agent_has_a_journal_if_asked_and_its_connection_is_closed(
    ran: Ran, tmp_path: Path, record: bool
) -> None:
    async with running(tmp_path, 2, record=record):
        await eventually(lambda: len(ran.running) == 2 and ran.health.ready)
        assert {"watches", "starts", "n0-loop", "n1-loop"} == set(ran.loops)
        assert [one is not None for one in ran.journals] == [record, record]
        assert len(ran.connected) == 2
    assert not ran.connected


async def test_a_few_agents_start_at_a_time_and_the_process_is_ready_after_the_last(
    ran: Ran, tmp_path: Path
) -> None:
    ran.problem = "not registered"
    async with running(tmp_path, agents.STARTING_AT_ONCE + 1):
        await eventually(lambda: len(ran.running) == agents.STARTING_AT_ONCE)
        await asyncio.sleep(0.3)
        assert len(ran.connected) == len(ran.running) == agents.STARTING_AT_ONCE
        assert not ran.health.ready
        ran.problem = None
        assert not ran.health.ready  # the last one has not begun
        await eventually(lambda: ran.health.ready)
        assert len(ran.connected) == len(ran.running) == agents.STARTING_AT_ONCE + 1


async def test_an_agent_that_is_never_ready_holds_up_the_others_for_a_time_only(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_LOOKS", 3)
    ran.problem = "not registered"
    async with running(tmp_path, 3 * agents.STARTING_AT_ONCE):
        await eventually(lambda: len(ran.running) == 3 * agents.STARTING_AT_ONCE)
        assert not ran.health.ready


async def test_an_error_while_one_agent_is_closed_keeps_no_other_from_it(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Journal] = []

    async def flush(journal: Journal) -> None:
        flushed.append(journal)
        raise BusUnavailableError("away")

    monkeypatch.setattr(Journal, "flush", flush)
    async with running(tmp_path, 3, record=True):
        await eventually(lambda: len(ran.connected) == 3)
    assert len(flushed) == 3
    assert not ran.connected
