"""The agent's Prometheus metrics."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dray.telemetry import trace_id
from dray_node_agent.agent import NodeAgent
from dray_node_agent.kubelet.preparer import CompletedPreparation, Preparer
from dray_node_agent.node_state import NodeReporter
from dray_node_agent.slice_publisher import SlicePublisher

_LATENCIES_S = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def preparation_times(registry: CollectorRegistry) -> Callable[[CompletedPreparation], None]:
    """Register a histogram; the returned function records a preparation."""
    latency = Histogram(
        "dray_node_prepare_seconds",
        "Time from the kubelet's request to a claim's answer.",
        buckets=_LATENCIES_S,
        registry=registry,
    )

    def enter(prepared: CompletedPreparation) -> None:
        trace = trace_id(prepared.claim.traceparent)
        latency.observe(prepared.took_us / 1e6, {"trace_id": trace} if trace else None)

    return enter


class AgentCollector(Collector):
    """Computes the metrics from the agent's state at each scrape."""

    def __init__(
        self,
        agent: NodeAgent,
        preparer: Preparer,
        publisher: SlicePublisher,
        reporter: NodeReporter,
    ) -> None:
        self._agent = agent
        self._preparer = preparer
        self._publisher = publisher
        self._reporter = reporter

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        inventory = self._agent.inventory()
        gpus = list(inventory.published_gpus.values()) if inventory else []
        unhealthy = sum(1 for published in gpus if published.gpu.health_error)
        health = GaugeMetricFamily("dray_node_gpus", "GPUs of the node.", labels=["health"])
        health.add_metric(["healthy"], len(gpus) - unhealthy)
        health.add_metric(["unhealthy"], unhealthy)
        yield health
        yield GaugeMetricFamily(
            "dray_node_pool_generation",
            "Published generation of the pool.",
            value=self._agent.generation,
        )
        yield GaugeMetricFamily(
            "dray_node_claims_prepared",
            "Claims that are prepared on this node.",
            value=len(self._preparer.claims),
        )
        yield GaugeMetricFamily(
            "dray_node_fields_dropped",
            "Slice fields that the API server does not keep.",
            value=len(self._publisher.dropped),
        )
        yield CounterMetricFamily(
            "dray_node_prepare_failures",
            "Claims that could not be prepared.",
            value=self._preparer.failures,
        )
        yield CounterMetricFamily(
            "dray_node_events_dropped",
            "Timeline events dropped while the bus was unavailable.",
            value=self._reporter.dropped_events,
        )


def expose(
    registry: CollectorRegistry,
    agent: NodeAgent,
    preparer: Preparer,
    publisher: SlicePublisher,
    reporter: NodeReporter,
) -> None:
    """Add the agent's metrics to the page."""
    registry.register(AgentCollector(agent, preparer, publisher, reporter))
