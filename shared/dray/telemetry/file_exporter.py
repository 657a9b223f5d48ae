"""Spans as JSON lines in a file that several processes append to."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import format_span_id, format_trace_id


class FileExporter(SpanExporter):
    """Writes one line per span. Each line is one write, so lines of several processes don't mix."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append the spans."""
        lines = (json.dumps(_line_of(span), separators=(",", ":"), default=str) for span in spans)
        self._file.write("".join(f"{line}\n" for line in lines).encode())
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the file."""
        self._file.close()


def _line_of(span: ReadableSpan) -> dict[str, Any]:
    """A span as the content of its line. Times are nanoseconds since 1970."""
    context = span.get_span_context()
    return {
        "service": span.resource.attributes.get("service.name"),
        "instance": span.resource.attributes.get("service.instance.id"),
        "name": span.name,
        "kind": span.kind.name.lower(),
        "trace_id": format_trace_id(context.trace_id) if context else "",
        "span_id": format_span_id(context.span_id) if context else "",
        "parent_id": format_span_id(span.parent.span_id) if span.parent else "",
        "start_unix_ns": span.start_time,
        "end_unix_ns": span.end_time,
        "status": span.status.status_code.name.lower(),
        "reason": span.status.description or "",
        "attributes": dict(span.attributes or {}),
        "events": [
            {
                "name": event.name,
                "unix_ns": event.timestamp,
                "attributes": dict(event.attributes or {}),
            }
            for event in span.events
        ],
        "links": [
            {
                "trace_id": format_trace_id(link.context.trace_id),
                "span_id": format_span_id(link.context.span_id),
            }
            for link in span.links
        ],
    }
