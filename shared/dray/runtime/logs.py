"""Logs: JSON lines on stderr, with the current trace, without secrets."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO

import structlog

from dray.runtime.redaction import redacted
from dray.telemetry import traceparent

Event = MutableMapping[str, Any]


def configure(
    service: str,
    instance: str,
    *,
    level: str = "info",
    format: Literal["json", "console"] = "json",
    stream: TextIO | None = None,
) -> None:
    """Configure this process's logs, both of structlog and of the standard library."""
    identity = {"service": service, "instance": instance}

    def identify(_: Any, __: str, event: Event) -> Event:
        event.update(identity)
        return event

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        identify,
        _add_trace,
        _redact,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if format == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _add_trace(_: Any, __: str, event: Event) -> Event:
    """Adds ``trace_id`` and ``span_id`` of the current trace."""
    if (position := traceparent.current()) is not None:
        event["trace_id"] = position.trace_id
        event["span_id"] = position.span_id
    return event


def _redact(_: Any, __: str, event: Event) -> Event:
    """Hides secrets by key name."""
    hidden: Event = redacted(dict(event))
    return hidden
