"""The allocator's metrics."""

import prometheus_client
from prometheus_client import CollectorRegistry

from dray.messages.decisions import AnyRecord, Decided, Waiting
from dray_allocator.state.state import AllocatorState

_LATENCIES_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


class AllocatorMetrics:
    """Counters of what was appended, and gauges of the state."""

    def __init__(self, state: AllocatorState, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._decisions = prometheus_client.Counter(
            "dray_allocator_decisions", "Pods decided", ["domain"], registry=registry
        )
        self._waits = prometheus_client.Counter(
            "dray_allocator_waits",
            "Recorded reasons to wait, per pod, by the kind of the first",
            ["domain", "reason"],
            registry=registry,
        )
        self._latency = prometheus_client.Histogram(
            "dray_allocator_decision_seconds",
            "Time one pod's decision took",
            registry=registry,
            buckets=_LATENCIES_S,
        )
        self.conflicts = prometheus_client.Counter(
            "dray_allocator_conflicts",
            "Appends that found another last sequence",
            registry=registry,
        )
        self.oversold = prometheus_client.Counter(
            "dray_allocator_oversold",
            "Devices allocated beyond their capacity",
            registry=registry,
        )
        self.undecodable = prometheus_client.Counter(
            "dray_allocator_undecodable", "Messages that could not be read", registry=registry
        )
        _gauge(
            registry, "undecodable_domains", "Domains left to others: a message of a newer release"
        ).set_function(
            lambda: sum(
                bool(state.undecodable_for(name))
                for name in (*state.domains, *state.unread_domains)
            )
        )
        _gauge(registry, "facts_position", "Last fact applied").set_function(
            lambda: state.facts.position
        )
        _gauge(registry, "waiting_pods", "Pods that a decision could help").set_function(
            lambda: sum(len(domain.queue.pending) for domain in state.domains.values())
        )
        _gauge(registry, "serving_domains", "Domains this replica serves").set_function(
            lambda: sum(domain.serving for domain in state.domains.values())
        )
        _gauge(registry, "unconfirmed_records", "Records appended, not read back").set_function(
            lambda: sum(len(domain.appended) for domain in state.domains.values())
        )

    def appended(self, record: AnyRecord) -> None:
        """A record is in the log."""
        if isinstance(record, Decided):
            self._decisions.labels(record.domain).inc(len(record.pods))
            for pod in record.pods:
                self._latency.observe(pod.took_us / 1e6)
        elif isinstance(record, Waiting):
            kind = record.reasons[0].kind if record.reasons else "none"
            self._waits.labels(record.domain, kind).inc(1 + len(record.peers))


def _gauge(registry: CollectorRegistry, name: str, text: str) -> prometheus_client.Gauge:
    return prometheus_client.Gauge(f"dray_allocator_{name}", text, registry=registry)
