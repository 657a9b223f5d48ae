"""The only door to OpenTelemetry: one trace per pod, decided at the webhook.

``configure`` once at the composition root; ``start`` around a service's part of a pod's
story; ``new_traceparent`` where a story begins. Unsampled traces cost a string comparison.
"""

from dray.telemetry.spans import Span, Telemetry, configure, shutdown, start
from dray.telemetry.traceparent import Traceparent, is_sampled, new_traceparent, parse

__all__ = [
    "Span",
    "Telemetry",
    "Traceparent",
    "configure",
    "is_sampled",
    "new_traceparent",
    "parse",
    "shutdown",
    "start",
]
