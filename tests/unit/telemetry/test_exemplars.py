"""Exemplars: a latency names the trace that it was of, to scrapers that take OpenMetrics."""

import asyncio
from types import SimpleNamespace

import aiohttp
import prometheus_client
import pytest

from dray.runtime.health import HealthPages
from dray_claim_controller.metrics import ControllerMetrics
from dray_node_agent.metrics import preparation_times

TRACE = "0123456789abcdef0123456789abcdef"
SAMPLED, UNSAMPLED = f"00-{TRACE}-0123456789abcdef-01", f"00-{TRACE}-0123456789abcdef-00"
OPEN_METRICS = {"Accept": "application/openmetrics-text"}


def observe_step(registry: prometheus_client.CollectorRegistry, traceparent: str) -> None:
    execution = SimpleNamespace(traceparent=traceparent, decided_unix_s=1.0)
    ControllerMetrics(registry).step(SimpleNamespace(step="bound", reason="", execution=execution))


def observe_preparation(registry: prometheus_client.CollectorRegistry, traceparent: str) -> None:
    claim = SimpleNamespace(traceparent=traceparent)
    preparation_times(registry)(SimpleNamespace(claim=claim, took_us=5000))


def page(registry: prometheus_client.CollectorRegistry, headers: dict[str, str]) -> str:
    async def read() -> str:
        server = HealthPages()
        server.registry = registry
        await server.start()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{server.port}/metrics", headers=headers) as answer,
            ):
                return await answer.text()
        finally:
            await server.stop()

    return asyncio.run(read())


@pytest.mark.parametrize("observe", [observe_step, observe_preparation])
def test_the_trace_of_a_sampled_pod_is_an_exemplar(observe) -> None:
    registry = prometheus_client.CollectorRegistry()
    observe(registry, SAMPLED)

    assert f'# {{trace_id="{TRACE}"}}' in page(registry, OPEN_METRICS)
    assert TRACE not in page(registry, {})  # the older format has none


@pytest.mark.parametrize("observe", [observe_step, observe_preparation])
def test_a_pod_without_a_trace_has_no_exemplar(observe) -> None:
    registry = prometheus_client.CollectorRegistry()
    observe(registry, UNSAMPLED)

    assert TRACE not in page(registry, OPEN_METRICS)
