"""The pages of one process."""

from collections.abc import AsyncIterator

import aiohttp
import prometheus_client
import pytest

from dray.runtime.health import HealthPages


@pytest.fixture
async def pages() -> AsyncIterator[HealthPages]:
    made = HealthPages()
    await made.start()
    yield made
    await made.stop()


async def get(pages: HealthPages, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{pages.port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_a_turning_loop_is_healthy(pages: HealthPages) -> None:
    assert (await get(pages, "/healthz"))[0] == 200


async def test_readiness_lists_each_check(pages: HealthPages) -> None:
    problems = {"bus": "not connected"}
    pages.check("bus", lambda: problems.get("bus"))
    pages.check("cache", lambda: None)
    status, body = await get(pages, "/readyz")
    assert status == 503
    assert '"bus": "not connected"' in body
    assert '"cache": "ok"' in body
    assert not pages.ready
    problems.clear()
    assert (await get(pages, "/readyz"))[0] == 200
    assert pages.ready


async def test_a_reported_problem_leaves_the_process_ready(pages: HealthPages) -> None:
    pages.report("bus", lambda: "away")
    status, body = await get(pages, "/readyz")
    assert status == 200
    assert '"degraded": {"bus": "away"}' in body


async def test_a_draining_process_is_healthy_and_not_ready(pages: HealthPages) -> None:
    pages.drain()
    assert (await get(pages, "/readyz"))[0] == 503
    assert (await get(pages, "/healthz"))[0] == 200


async def test_metrics_are_this_process_own(pages: HealthPages) -> None:
    counter = prometheus_client.Counter("dray_things", "Things", registry=pages.registry)
    counter.inc(3)
    status, body = await get(pages, "/metrics")
    assert status == 200
    assert "dray_things_total 3.0" in body
