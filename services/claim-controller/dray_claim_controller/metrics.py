"""The claim-controller's metrics."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dray.api.quantities import parse_quantity
from dray.kube.ports import POOLS
from dray.telemetry import trace_id
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.progress import Progress
from dray_claim_controller.facts.pool_capacity import pool_totals

_LATENCIES_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_AMOUNTS = ("total", "virtual", "free")


class ControllerMetrics:
    """Counters that steps raise, and gauges that are read when somebody asks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._steps = prometheus_client.Counter(
            "dray_execution_steps",
            "Steps of executions, by step and reason.",
            ["step", "reason"],
            registry=registry,
        )
        self._latency = prometheus_client.Histogram(
            "dray_execution_seconds",
            "Time from a pod's decision to a step of its execution.",
            ["step"],
            buckets=_LATENCIES_S,
            registry=registry,
        )

    def step(self, progress: Progress) -> None:
        """Count a step, and how long after the decision it was done."""
        self._steps.labels(progress.step, progress.reason).inc()
        execution = progress.execution
        if (decided_unix_s := execution.decided_unix_s) is not None:
            trace = trace_id(execution.traceparent)
            self._latency.labels(progress.step).observe(
                max(0.0, time.time() - decided_unix_s), {"trace_id": trace} if trace else None
            )

    def show_pools(
        self, cache: ObjectCache, members: Callable[[], Mapping[str, Iterable[str]]]
    ) -> None:
        """Show capacity and use of pools; ``members`` are their nodes, while leading."""
        self._registry.register(_PoolCollector(cache, members))

    def gauge(self, name: str, purpose: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value ``read`` returns."""
        prometheus_client.Gauge(name, purpose, registry=self._registry).set_function(read)


class _PoolCollector(Collector):
    """The status of each pool, read for each request; nothing while not leading."""

    def __init__(
        self, cache: ObjectCache, members: Callable[[], Mapping[str, Iterable[str]]]
    ) -> None:
        self._cache = cache
        self._members = members

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        gauges = {
            name: GaugeMetricFamily(f"dray_pool_{name}", text, labels=["pool", *labels])
            for name, text, labels in (
                ("nodes", "Nodes of the pool.", ()),
                ("gpus", "GPUs of the pool.", ("health",)),
                ("gpus_in_use", "GPUs that are in use, partly or fully.", ("use",)),
                ("waiting_pods", "Pods that wait for GPUs of the pool.", ()),
                ("tflops", "TFLOPS of the pool: total, virtual (the budget), free.", ("amount",)),
                ("vram_bytes", "Memory of the pool: the same amounts.", ("amount",)),
                (
                    "fragmentation_ratio",
                    "Share of the free TFLOPS that lies on GPUs which are partly used.",
                    (),
                ),
            )
        }
        for pool, nodes in self._members().items():
            status = self._cache.plain[POOLS.plural].get(pool, {}).get("status") or {}
            for name, labels, value in _values(status):
                gauges[name].add_metric([pool, *labels], value)
            totals = pool_totals(self._cache, sorted(nodes))
            gauges["gpus_in_use"].add_metric([pool, "part"], totals.used - totals.full)
            gauges["gpus_in_use"].add_metric([pool, "all"], totals.full)
            gauges["fragmentation_ratio"].add_metric([pool], totals.fragmentation)
        return gauges.values()


def _values(status: Mapping[str, Any]) -> Iterator[tuple[str, list[str], float]]:
    """Metric, further labels, and value."""
    yield "nodes", [], status.get("nodes", 0)
    unhealthy = status.get("unhealthy", 0)
    yield "gpus", ["healthy"], status.get("gpus", 0) - unhealthy
    yield "gpus", ["unhealthy"], unhealthy
    yield "waiting_pods", [], status.get("waitingPods", 0)
    for name, field in (("tflops", "tflops"), ("vram_bytes", "vram")):
        for amount in _AMOUNTS:
            text = (status.get(field) or {}).get(amount)
            if text is not None:
                yield name, [amount], parse_quantity(text).nano / 1e9
