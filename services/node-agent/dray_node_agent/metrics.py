"""What Prometheus reads of the agent."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dray_node_agent.agent import NodeAgent
from dray_node_agent.following import Reporter
from dray_node_agent.kubelet.preparing import Preparer
from dray_node_agent.publishing import Publisher


class AgentCollector(Collector):
    """Reads the agent's state when asked; nothing is counted twice."""

    def __init__(
        self, agent: NodeAgent, preparer: Preparer, publisher: Publisher, reporter: Reporter
    ) -> None:
        self._agent = agent
        self._preparer = preparer
        self._publisher = publisher
        self._reporter = reporter

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        stock = self._agent.stock()
        cards = list(stock.offers.values()) if stock else []
        sick = sum(1 for offer in cards if offer.card.trouble)
        health = GaugeMetricFamily("dray_node_cards", "Cards of the node.", labels=["health"])
        health.add_metric(["well"], len(cards) - sick)
        health.add_metric(["sick"], sick)
        yield health
        yield GaugeMetricFamily(
            "dray_node_pool_generation", "Generation published.", value=self._agent.generation
        )
        yield GaugeMetricFamily(
            "dray_node_claims_prepared", "Claims held.", value=len(self._preparer.claims)
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
            "Timeline events dropped while the bus was away.",
            value=self._reporter.dropped_events,
        )


def expose(
    registry: CollectorRegistry,
    agent: NodeAgent,
    preparer: Preparer,
    publisher: Publisher,
    reporter: Reporter,
) -> None:
    """Add the agent's metrics to the page."""
    registry.register(AgentCollector(agent, preparer, publisher, reporter))
