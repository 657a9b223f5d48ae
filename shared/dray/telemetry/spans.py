"""Spans, for sampled traces only, exported in batches."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from dray.telemetry import traceparent as positions
from dray.telemetry.processors import from_environment

Attributes = Mapping[str, str | int | float | bool]

_KINDS: Final = {
    "internal": SpanKind.INTERNAL,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
}


class Span(Protocol):
    """A service's part of a trace; pass ``traceparent`` on."""

    @property
    def traceparent(self) -> str:
        """This span's position in the form of W3C Trace Context."""

    @property
    def recording(self) -> bool:
        """Whether the span is recorded: False if the trace is not sampled."""

    def set(self, name: str, value: str | int | float | bool) -> None:
        """Set an attribute."""

    def event(
        self, name: str, attributes: Attributes | None = None, *, unix_ns: int | None = None
    ) -> None:
        """Add an event within it, now or at ``unix_ns``."""

    def fail(self, reason: str) -> None:
        """Mark it as failed."""


class _Unsampled:
    """Records nothing and passes the traceparent on unchanged."""

    __slots__ = ("traceparent",)
    recording = False

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def set(self, name: str, value: str | int | float | bool) -> None:
        """Nothing."""

    def event(
        self, name: str, attributes: Attributes | None = None, *, unix_ns: int | None = None
    ) -> None:
        """Nothing."""

    def fail(self, reason: str) -> None:
        """Nothing."""


class _Recording:
    """A span of the SDK."""

    __slots__ = ("_span", "traceparent")
    recording = True

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = str(
            positions.Traceparent(
                trace.format_trace_id(context.trace_id),
                trace.format_span_id(context.span_id),
                sampled=True,
            )
        )

    def set(self, name: str, value: str | int | float | bool) -> None:
        """An attribute."""
        self._span.set_attribute(name, value)

    def event(
        self, name: str, attributes: Attributes | None = None, *, unix_ns: int | None = None
    ) -> None:
        """Add an event within the span, now or at ``unix_ns``."""
        self._span.add_event(name, dict(attributes or {}), unix_ns)

    def fail(self, reason: str) -> None:
        """Mark the span as failed."""
        self._span.set_status(Status(StatusCode.ERROR, reason))


class Telemetry:
    """This process's tracer; without an exporter every trace counts as unsampled."""

    def __init__(self, service: str, instance: str, processors: Sequence[SpanProcessor]) -> None:
        resource = Resource.create({"service.name": service, "service.instance.id": instance})
        # The webhook decided whether to sample: every trace that arrives sampled is recorded.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False
        )
        self._records = bool(processors)
        for processor in processors:
            self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("dray")

    @contextlib.contextmanager
    def start(
        self,
        name: str,
        traceparent: str,
        attributes: Attributes | None = None,
        *,
        kind: str = "internal",
        links: Sequence[str] = (),
        began_unix_ns: int | None = None,
    ) -> Iterator[Span]:
        """See the module's ``start``."""
        parent = positions.parse(traceparent) if traceparent else None
        if parent is None or not parent.sampled or not self._records:
            with _current(parent):
                yield _Unsampled(traceparent)
            return
        with self._recording(
            name,
            trace.set_span_in_context(trace.NonRecordingSpan(_context(parent))),
            attributes,
            kind,
            links=links,
            began_unix_ns=began_unix_ns,
        ) as span:
            yield span

    @contextlib.contextmanager
    def begin(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        sampled: bool,
        kind: str = "internal",
    ) -> Iterator[Span]:
        """See the module's ``begin``."""
        if not sampled or not self._records:
            with self.start(name, positions.new_traceparent(sampled)) as unsampled:
                yield unsampled
            return
        with self._recording(name, Context(), attributes, kind) as span:
            yield span

    @contextlib.contextmanager
    def _recording(
        self,
        name: str,
        context: Context,
        attributes: Attributes | None,
        kind: str,
        *,
        links: Sequence[str] = (),
        began_unix_ns: int | None = None,
    ) -> Iterator[Span]:
        span = self._tracer.start_span(
            name,
            context=context,
            kind=_KINDS[kind],
            attributes=dict(attributes or {}),
            links=[trace.Link(_context(p)) for p in map(positions.parse, links) if p is not None],
            start_time=began_unix_ns,
        )
        recording = _Recording(span)
        with _ended(span), _current(positions.parse(recording.traceparent)):
            yield recording

    def shutdown(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()


@contextlib.contextmanager
def _ended(span: trace.Span) -> Iterator[None]:
    """Ends the span; marks it as failed if an error passes through."""
    try:
        yield
    except BaseException as error:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error) or type(error).__name__))
        raise
    finally:
        span.end()


_telemetry: Telemetry | None = None


def configure(service: str, instance: str) -> Telemetry:
    """Make this process's tracer, and the one that ``start`` uses.

    It exports to the exporters of ``processors.from_environment``.
    """
    global _telemetry
    _telemetry = Telemetry(service, instance, from_environment())
    return _telemetry


def shutdown() -> None:
    """Export the remaining spans, and drop the tracer."""
    global _telemetry
    if _telemetry is not None:
        _telemetry.shutdown()
        _telemetry = None


@contextlib.contextmanager
def start(
    name: str,
    traceparent: str,
    attributes: Attributes | None = None,
    *,
    kind: str = "internal",
    links: Sequence[str] = (),
    began_unix_ns: int | None = None,
) -> Iterator[Span]:
    """A span named ``name`` under ``traceparent``. Creates nothing if that is unsampled.

    Pass on ``span.traceparent``. Within the span, logs contain the trace's ids. ``links`` are
    traceparents of spans that caused this span without being its parents. ``began_unix_ns`` is for
    spans that are known only after they began; without it, the span begins now.
    """
    if _telemetry is None or not positions.is_sampled(traceparent):
        with _current(positions.parse(traceparent) if traceparent else None):
            yield _Unsampled(traceparent)
        return
    with _telemetry.start(
        name, traceparent, attributes, kind=kind, links=links, began_unix_ns=began_unix_ns
    ) as span:
        yield span


@contextlib.contextmanager
def begin(
    name: str,
    attributes: Attributes | None = None,
    *,
    sampled: bool,
    kind: str = "internal",
) -> Iterator[Span]:
    """The first span of a new trace. ``sampled`` also applies to all later spans of the trace. It
    is passed on even if this process has no exporter."""
    if _telemetry is None or not sampled:
        traceparent = positions.new_traceparent(sampled)
        with _current(positions.parse(traceparent)):
            yield _Unsampled(traceparent)
        return
    with _telemetry.begin(name, attributes, sampled=sampled, kind=kind) as span:
        yield span


@contextlib.contextmanager
def _current(position: positions.Traceparent | None) -> Iterator[None]:
    token = positions.enter(position)
    try:
        yield
    finally:
        positions.leave(token)


def _context(position: positions.Traceparent) -> SpanContext:
    return SpanContext(
        trace_id=int(position.trace_id, 16),
        span_id=int(position.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if position.sampled else TraceFlags.DEFAULT),
    )
