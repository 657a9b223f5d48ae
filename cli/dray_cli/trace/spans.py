"""A trace as this verb sees it, independent of its source. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

Value = str | int | float | bool
UNFINISHED = "unfinished"
"""Status of a span that is still running: its end is set to the current time."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened within a span."""

    name: str
    unix_ns: int
    attributes: dict[str, Value] = {}


class SpanLink(msgspec.Struct, frozen=True, kw_only=True):
    """A span from which another one follows without being part of it."""

    trace_id: str
    span_id: str


class TraceSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One service's part of a trace; the fields are those of the lines of a trace file."""

    service: str
    name: str
    trace_id: str
    span_id: str
    start_unix_ns: int
    end_unix_ns: int
    instance: str = ""
    kind: str = "internal"
    parent_id: str = ""
    status: str = "unset"
    reason: str = ""
    """Why the status is ``error``."""
    attributes: dict[str, Value] = {}
    events: tuple[Moment, ...] = ()
    links: tuple[SpanLink, ...] = ()


@dataclass(frozen=True, slots=True)
class PodTrace:
    """All that is known of one pod's trace."""

    namespace: str
    pod: str
    trace_id: str
    spans: tuple[TraceSpan, ...]
    source: str
    """Where the spans are from, in words."""
    recorded: bool
    """Whether services recorded the spans; otherwise they are reconstructed from messages and
    objects."""
    gone: bool = False
    """Whether the pod is no longer in the cluster: then none of its spans is still running."""

    @property
    def start_unix_ns(self) -> int:
        """When it began; 0 without spans."""
        return min((span.start_unix_ns for span in self.spans), default=0)

    @property
    def duration_ns(self) -> int:
        """From the first span's start to the last one's end."""
        last = max((span.end_unix_ns for span in self.spans), default=0)
        return last - self.start_unix_ns

    @property
    def prepared(self) -> bool:
        """Whether the trace is complete: the devices are prepared on the node."""
        return any(span.name == "prepare" and span.status != "error" for span in self.spans)


def in_tree_order(spans: Sequence[TraceSpan]) -> Iterator[tuple[int, TraceSpan]]:
    """Every span after its parent, with its depth; siblings by time.

    A span whose parent is unknown (its service recorded nothing) is at the top level.
    """
    known = {span.span_id for span in spans}
    children: dict[str, list[TraceSpan]] = {}
    for span in sorted(spans, key=lambda span: (span.start_unix_ns, span.span_id)):
        parent = span.parent_id if span.parent_id in known - {span.span_id} else ""
        children.setdefault(parent, []).append(span)
    stack = [(0, span) for span in reversed(children.pop("", []))]
    while stack:
        depth, span = stack.pop()
        yield depth, span
        stack += [(depth + 1, child) for child in reversed(children.pop(span.span_id, []))]


def with_waiting(spans: Sequence[TraceSpan], now_unix_ns: int) -> tuple[TraceSpan, ...]:
    """Add a span for the current wait, which nobody could record yet because it is not over.

    The allocator records it when the pod is placed; until then there are only the decisions
    that failed.
    """
    # A placed pod is still executed, even if a late answer says that a decision failed.
    placed = [
        span.end_unix_ns
        for span in spans
        if span.name in ("decision", "execute", "prepare") and span.status != "error"
    ]
    failed = sorted(
        (
            span
            for span in spans
            if span.name == "decision"
            and span.status == "error"
            and span.end_unix_ns > max(placed, default=0)
        ),
        key=lambda span: span.end_unix_ns,
    )
    if not failed:
        return tuple(spans)
    waiting = TraceSpan(
        service=failed[0].service,
        name="waiting",
        trace_id=failed[0].trace_id,
        span_id="waiting",
        parent_id=failed[0].parent_id,
        start_unix_ns=failed[0].start_unix_ns,
        end_unix_ns=now_unix_ns,
        status=UNFINISHED,
        events=tuple(
            Moment(name="waits", unix_ns=one.end_unix_ns, attributes={"dray.reasons": one.reason})
            for one in failed
        ),
        links=tuple(SpanLink(trace_id=one.trace_id, span_id=one.span_id) for one in failed),
    )
    return (*spans, waiting)


def with_prepared(
    spans: Sequence[TraceSpan], synthesized: Sequence[TraceSpan]
) -> tuple[TraceSpan, ...]:
    """Add ``prepare`` spans from messages to spans that have none.

    Nobody writes the trace on a claim that kube-scheduler allocates. The node-agent knows only the
    claim, so it records no span.
    """
    first = min(spans, key=lambda span: span.start_unix_ns)
    return (
        *spans,
        *(
            msgspec.structs.replace(
                span, span_id=f"synthesized-{span.span_id}", parent_id=first.span_id
            )
            for span in synthesized
            if span.name == "prepare"
        ),
    )
