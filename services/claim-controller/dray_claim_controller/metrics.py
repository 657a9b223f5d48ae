"""What /metrics says of the claim-controller."""

from collections.abc import Callable

import prometheus_client
from prometheus_client import CollectorRegistry

from dray_claim_controller.execution.progress import Progress


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

    def step(self, progress: Progress) -> None:
        """Count a step."""
        self._steps.labels(progress.step, progress.reason).inc()

    def gauge(self, name: str, purpose: str, read: Callable[[], float]) -> None:
        """A gauge that ``read`` is asked for."""
        prometheus_client.Gauge(name, purpose, registry=self._registry).set_function(read)
