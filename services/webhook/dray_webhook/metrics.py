"""The webhook's metrics, except those of its reviews."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dray.bus.backlog import Backlog
from dray_webhook.service.tls import ServerTls


class WebhookCollector(Collector):
    """Computes the metrics at each scrape. ``events``: the events that are not published yet."""

    def __init__(self, events: Backlog, tls: ServerTls) -> None:
        self._events = events
        self._tls = tls

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        yield GaugeMetricFamily(
            "dray_webhook_events_waiting",
            "pod.requested events not yet published.",
            value=len(self._events),
        )
        yield CounterMetricFamily(
            "dray_webhook_events_dropped",
            "pod.requested events dropped.",
            value=self._events.dropped,
        )
        yield GaugeMetricFamily(
            "dray_webhook_certificate_expiry_timestamp_seconds",
            "When the served certificate expires, in seconds since 1970.",
            value=self._tls.expires_at.timestamp(),
        )


def expose(registry: CollectorRegistry, events: Backlog, tls: ServerTls) -> None:
    """Add the metrics to the page."""
    registry.register(WebhookCollector(events, tls))
