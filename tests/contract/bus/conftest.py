"""One suite over the bus in memory and over a real nats-server."""

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest

from dray.bus.jetstream import JetStreamBus, connect
from dray.bus.memory import MemoryBus
from dray.bus.ports import Bus

BOUND_S = 60.0


class World(Protocol):
    """A server of some kind, and what may befall it."""

    async def bus(self) -> Bus: ...
    async def purge(self, stream: str) -> None: ...
    async def down(self) -> None: ...
    async def up(self, *, empty: bool = False) -> None: ...


class MemoryWorld:
    """Peers of one in-memory server."""

    def __init__(self) -> None:
        self._first = MemoryBus()
        self._buses: list[MemoryBus] = []

    async def bus(self) -> Bus:
        self._buses.append(self._first.peer())
        return self._buses[-1]

    async def purge(self, stream: str) -> None:
        self._first.server.named(stream).purge()

    async def down(self) -> None:
        for bus in self._buses:
            bus.disconnect()

    async def up(self, *, empty: bool = False) -> None:
        if empty:
            self._first.server.lose_everything()
        for bus in self._buses:
            bus.reconnect()

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


class NatsWorld:
    """The server from the wheel: killed without warning, started on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._store = directory / "store"
        self._port = -1
        self._process: asyncio.subprocess.Process | None = None
        self._buses: list[JetStreamBus] = []
        self.configuration = ""
        """What the server has in a file from its next start."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    async def bus(self) -> Bus:
        self._buses.append(await connect(self.url, name="contract"))
        return self._buses[-1]

    async def purge(self, stream: str) -> None:
        session = self._buses[0]._connection.session()
        await session.request(f"$JS.API.STREAM.PURGE.{stream}", b"", timeout_s=5)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def down(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> None:
        assert self._process is not None
        await self._process.wait()
        self._process = None

    async def up(self, *, empty: bool = False) -> None:
        if empty:
            shutil.rmtree(self._store)
        ports = self._directory / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        file = self._directory / "nats-server.conf"
        file.write_text(self.configuration)
        self._process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("nats-server")),
            *("--addr", "127.0.0.1", "--port", str(self._port), "--jetstream"),
            *("--store_dir", str(self._store), "--ports_file_dir", str(ports)),
            *("--config", str(file)),
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(BOUND_S):
            while not (files := list(ports.glob("*.ports"))) or not files[0].read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        self._port = int(json.loads(files[0].read_text())["nats"][0].rpartition(":")[2])

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()
        if self._process is not None:
            await self.down()


@pytest.fixture(params=["memory", "jetstream"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made = MemoryWorld() if request.param == "memory" else NatsWorld(tmp_path)
    await made.up()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def nats_world(tmp_path: Path) -> AsyncIterator[NatsWorld]:
    made = NatsWorld(tmp_path)
    await made.up()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def bus(world: World) -> Bus:
    return await world.bus()


Eventually = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]


@pytest.fixture
def eventually() -> Eventually:
    async def wait(condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not await condition():  # noqa: ASYNC110 - a condition elsewhere
                await asyncio.sleep(0.02)

    return wait
