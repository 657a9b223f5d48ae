"""Eight processes that all believe they serve one domain."""

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from benchmarks.reading_server import serving_readings
from benchmarks.split_brain_allocator import run_split_brain_allocator
from dray.bus.jetstream import connect
from dray_sandbox.nats_server import ADMIN, start_nats
from dray_sandbox.processes import Runner
from dray_sandbox.tcp_ports import free_port

ALLOCATORS = 8
PODS = 24
BOUND_S = 60.0


@asynccontextmanager
async def split_brain_allocators(environments: list[Mapping[str, str]]) -> AsyncIterator[None]:
    """One process each, forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.split_brain_allocator"])
    running = [
        context.Process(target=run_split_brain_allocator, args=(one,), daemon=True)
        for one in environments
    ]
    try:
        for process in running:
            process.start()
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            await asyncio.to_thread(process.join)


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, within a bound."""
    async with asyncio.timeout(BOUND_S):
        while not await condition():  # type: ignore[misc]  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.fixture
async def served(tmp_path: Path, make_cluster):
    """A domain that eight processes serve, and the pages that tell of each."""
    runner = Runner(tmp_path / "logs")
    access = await start_nats(runner, tmp_path, sync_interval="2m")
    bus = await connect(access.url, name="c", user=ADMIN, password=access.passwords[ADMIN])
    made = make_cluster(bus)
    ports = [free_port() for _ in range(ALLOCATORS)]
    environments = [
        {
            **access.environment("allocator"),
            "DRAY_INSTANCE": f"allocator-{number}",
            "DRAY_HEALTH__PORT": str(port),
            "DRAY_LOG__LEVEL": "error",
        }
        for number, port in enumerate(ports)
    ]
    try:
        await made.open()
        async with serving_readings(bus), split_brain_allocators(environments):
            yield made, [f"http://127.0.0.1:{port}/metrics" for port in ports]
    finally:
        await made.close()
        await runner.stop_all()


async def test_they_make_progress_and_decide_nothing_twice(served, devices_of):
    cluster, pages = served
    async with aiohttp.ClientSession() as http:

        async def all_serve() -> bool:
            return all([await _value(http, page, "serving_domains") == 1 for page in pages])

        await until(all_serve)
        for number in range(4):
            await cluster.node(f"n{number}", cards=8)
        await asyncio.gather(*(cluster.submit(f"p{number}") for number in range(PODS)))

        async def all_decided() -> bool:
            return len(await cluster.decisions()) >= PODS

        await until(all_decided)
        decisions = await cluster.decisions()
        assert sorted(one.pod_uid for one in decisions) == sorted(f"p{n}" for n in range(PODS))
        given = devices_of(decisions)
        assert len(set(given)) == len(given) == PODS

        async def all_know() -> bool:
            """Everybody has folded everything: no append is on its way any more."""
            return all([await _value(http, page, "unconfirmed_records") == 0 for page in pages])

        await until(all_know)
        assert len(await cluster.decisions()) == PODS
        assert sum([await _value(http, page, "oversold_total") for page in pages]) == 0


async def _value(http: aiohttp.ClientSession, page: str, name: str) -> float:
    """One number of an allocator's metrics; -1 while it does not answer."""
    try:
        async with http.get(page) as response:
            lines = (await response.text()).splitlines()
    except (aiohttp.ClientError, OSError):
        return -1
    return next(
        (float(line.split()[-1]) for line in lines if line.startswith(f"dray_allocator_{name} ")),
        -1,
    )
