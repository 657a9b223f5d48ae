"""A trace as lines of text and as data. Pure."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dray_cli.gpu_names import GpuNames
from dray_cli.text import styled, wrapped
from dray_cli.trace.spans import UNFINISHED, PodTrace, SpanLink, TraceSpan, Value, in_tree_order

_HIDDEN = ("k8s.namespace.name", "k8s.pod.name", "messaging.", "exception.")
"""Attributes that the head already shows, or that only a backend needs."""
_NO_NAMES = GpuNames()
_LONGEST_TEXT = 160
_INDENT = 12
"""Indentation of details, in columns."""


def lines(trace: PodTrace, *, width: int = 80, names: GpuNames = _NO_NAMES) -> list[str]:
    """Head, then per span: offset, duration, name, service, bar; details below it.

    No line is wider than ``width`` columns, except for longer words.
    """
    rows = list(in_tree_order(trace.spans))
    service_width = max((len(span.service) for _, span in rows), default=0)
    name_width = max((2 * depth + len(span.name) for depth, span in rows), default=0)
    bar_width = max(10, width - service_width - name_width - 29)
    result = [*wrapped("\n".join(head(trace)), width).split("\n"), ""]
    for depth, span in rows:
        name = f"{'  ' * depth}{span.name}"
        row = (
            f"{milliseconds(span.start_unix_ns - trace.start_unix_ns):>10} "
            f"{milliseconds(span.end_unix_ns - span.start_unix_ns):>10}  "
            f"{name:<{name_width}}  {span.service:<{service_width}}  "
            f"|{bar(trace, span, bar_width)}|"
        )
        result.append(styled(row, fg="red") if span.status == "error" else row)
        for line in details(trace, span):
            result += wrapped(f"{'':{_INDENT}}{'  ' * depth}{names.shortened(line)}", width).split(
                "\n"
            )
    return result


def bar(trace: PodTrace, span: TraceSpan, width: int) -> str:
    """The span's part of the whole time; never empty, even for a very short span."""
    whole = max(1, trace.duration_ns)
    left = math.floor((span.start_unix_ns - trace.start_unix_ns) * width / whole)
    right = math.ceil((span.end_unix_ns - trace.start_unix_ns) * width / whole)
    left = min(left, width - 1)
    length = max(1, min(right, width) - left)
    mark = "▒" if span.status in ("error", UNFINISHED) else "█"
    return f"{'':{left}}{mark * length}{'':{width - left - length}}"


def as_json(trace: PodTrace) -> dict[str, Any]:
    """The trace as data: durations in milliseconds, spans in the order of the tree."""
    return {
        "namespace": trace.namespace,
        "pod": trace.pod,
        "traceId": trace.trace_id,
        "recorded": trace.recorded,
        "source": trace.source,
        "prepared": trace.prepared,
        "gone": trace.gone,
        "durationMs": trace.duration_ns / 1e6,
        "spans": [_span_as_json(trace, span) for _, span in in_tree_order(trace.spans)],
    }


def head(trace: PodTrace) -> Iterator[str]:
    """Two lines: the pod and how far its trace came, and the trace's source."""
    state = "so far; not prepared yet" if not trace.gone else "are known; it was never prepared"
    if trace.prepared:
        state = "from admission to prepared"
    if trace.gone:
        state += ", and is gone now"
    yield f"Pod {trace.namespace}/{trace.pod}: {milliseconds(trace.duration_ns)} {state}"
    source = "recorded in" if trace.recorded else "from"
    yield f"trace {trace.trace_id or '(none)'}, {source} {trace.source}"


def details(trace: PodTrace, span: TraceSpan) -> Iterator[str]:
    """A span's attributes, failure, events and links, a line each."""
    shown = {
        name.removeprefix("dray.").removeprefix("understood."): value
        for name, value in span.attributes.items()
        if not name.startswith(_HIDDEN)
    }
    if shown:
        yield _pairs(shown)
    if span.status == "error":
        yield f"failed: {_short(span.reason)}"
    for moment in span.events:
        since = milliseconds(moment.unix_ns - trace.start_unix_ns)
        values = " ".join(_short(str(value)) for value in moment.attributes.values())
        yield f"· {since} {moment.name} {values}".rstrip()
    for link in span.links:
        yield f"→ {_link(trace, link)}"


def _link(trace: PodTrace, link: SpanLink) -> str:
    for span in trace.spans:
        if span.span_id == link.span_id:
            since = milliseconds(span.start_unix_ns - trace.start_unix_ns)
            return f"follows {span.name} of {span.service} at {since}"
    return f"follows span {link.span_id} of trace {link.trace_id}"


def _span_as_json(trace: PodTrace, span: TraceSpan) -> dict[str, Any]:
    def since_ms(unix_ns: int) -> float:
        return (unix_ns - trace.start_unix_ns) / 1e6

    return {
        "service": span.service,
        "instance": span.instance,
        "name": span.name,
        "kind": span.kind,
        "spanId": span.span_id,
        "parentId": span.parent_id,
        "startMs": since_ms(span.start_unix_ns),
        "durationMs": (span.end_unix_ns - span.start_unix_ns) / 1e6,
        "status": span.status,
        "reason": span.reason,
        "attributes": span.attributes,
        "events": [
            {"name": moment.name, "ms": since_ms(moment.unix_ns), "attributes": moment.attributes}
            for moment in span.events
        ],
        "links": [{"traceId": link.trace_id, "spanId": link.span_id} for link in span.links],
    }


def _pairs(attributes: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={_short(str(value))}" for name, value in attributes.items())


def _short(text: str) -> str:
    one_line = text.replace("\n", "; ")
    return one_line if len(one_line) <= _LONGEST_TEXT else f"{one_line[: _LONGEST_TEXT - 1]}…"


def milliseconds(duration_ns: int) -> str:
    """The duration in milliseconds, or in seconds if it is at least 10 s."""
    if duration_ns >= 10_000_000_000:
        return f"{duration_ns / 1e9:.1f} s"
    return f"{duration_ns / 1e6:.1f} ms"
