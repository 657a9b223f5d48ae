"""The only adapter to OpenTelemetry: one trace per pod; the webhook decides whether to sample it.

Call ``configure`` once at the composition root. ``begin`` starts a trace, ``start`` starts a
service's span in it. An unsampled trace costs one string comparison.
"""

from dray.telemetry.spans import Span, Telemetry, begin, configure, shutdown, start
from dray.telemetry.traceparent import (
    Traceparent,
    is_sampled,
    new_traceparent,
    parse,
    trace_id,
)

__all__ = [
    "Span",
    "Telemetry",
    "Traceparent",
    "begin",
    "configure",
    "is_sampled",
    "new_traceparent",
    "parse",
    "shutdown",
    "start",
    "trace_id",
]
