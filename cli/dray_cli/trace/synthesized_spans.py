"""Synthesizes spans from messages and objects, for pods without recorded spans. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from dray.kube.convert_metadata import time_from
from dray.messages.decisions import PodDecision, Release, Waiting
from dray.messages.events import ClaimPrepared, ExecutionStep
from dray.reasons import in_words
from dray.telemetry import parse
from dray_cli.text import decided_lines, understood_text
from dray_cli.trace.inputs import Decision, TraceInputs
from dray_cli.trace.spans import UNFINISHED, Moment, SpanLink, TraceSpan

_LAST_STEPS = ("bound", "ungated", "failed", "stopped")


def spans_of(found: TraceInputs, now_unix_s: float) -> tuple[TraceSpan, ...]:
    """The pod's spans, with the names that the services use.

    Times of objects are exact to a second, those of messages to a microsecond.
    """
    return tuple(_SpanBuilder(found, now_unix_s).spans())


class _SpanBuilder:
    """Numbers the spans: 1, 2, …; the first is the root."""

    def __init__(self, found: TraceInputs, now_unix_s: float) -> None:
        self._found = found
        self._now_unix_s = now_unix_s
        position = parse(found.traceparent)
        self._trace_id = position.trace_id if position else ""
        self._ids = count(1)
        self._root = ""
        self._failed: list[SpanLink] = []
        self._placed: SpanLink | None = None
        """The newest decision that placed the pod."""
        self._waiting: list[Decision] = []

    def spans(self) -> Iterator[TraceSpan]:
        yield from self._admission()
        yield from self._claims()
        for decision in self._found.decisions:
            match decision.message:
                case Waiting():
                    yield self._failed_decision(decision, decision.message)
                case PodDecision():
                    yield from self._waited(decision.at_unix_s)
                    yield from self._decided(decision, decision.message)
                case Release():
                    yield self._rolled_back(decision, decision.message)
        if self._waiting and self._found.pod is None:
            # The pod is deleted: it waited at least until the last decision.
            yield from self._waited(self._waiting[-1].at_unix_s)
        elif self._waiting:
            yield from self._waited(self._now_unix_s, unfinished=True)
        elif not self._found.decisions:
            yield from self._explained()
        for prepared in self._found.prepared:
            yield self._prepared(prepared)

    def _admission(self) -> Iterator[TraceSpan]:
        found = self._found
        if found.requested is not None:
            end = found.requested_unix_s
            attributes = {
                "dray.template": found.requested.template,
                "dray.understood": understood_text(found.requested.understood),
            }
            began = end - found.requested.took_us / 1e6
            yield self._span("webhook", "admission", began, end, attributes)
        elif found.pod is not None:
            made = time_from(found.pod["metadata"].get("creationTimestamp"))
            yield self._span("kubernetes", "pod", made, made, _to_the_second())

    def _claims(self) -> Iterator[TraceSpan]:
        for claim in self._found.claims:
            metadata = claim["metadata"]
            # The time is cut to whole seconds, so it could be before the request that led to it.
            made = max(time_from(metadata.get("creationTimestamp")), self._found.requested_unix_s)
            attributes = {"dray.claim": metadata["name"], **_to_the_second()}
            yield self._span("kubernetes", "claim", made, made, attributes)

    def _failed_decision(self, decision: Decision, waiting: Waiting) -> TraceSpan:
        at = decision.at_unix_s
        attributes = {"dray.writer": decision.writer}
        why = in_words(waiting.reasons)
        span = self._span("allocator", "decision", at, at, attributes, status="error", reason=why)
        self._waiting.append(decision)
        self._failed.append(SpanLink(trace_id=span.trace_id, span_id=span.span_id))
        return span

    def _waited(self, until: float, *, unfinished: bool = False) -> Iterator[TraceSpan]:
        if not self._waiting:
            return
        moments = [
            _moment("waits", decision.at_unix_s, reasons=in_words(decision.message.reasons))
            for decision in self._waiting
            if isinstance(decision.message, Waiting)
        ]
        began = self._waiting[0].at_unix_s
        yield self._span(
            "allocator",
            "waiting",
            began,
            until,
            {},
            events=moments,
            links=self._failed,
            status=UNFINISHED if unfinished else "unset",
        )
        self._waiting = []

    def _decided(self, decision: Decision, pod: PodDecision) -> Iterator[TraceSpan]:
        attempt = max((claim.attempt for claim in pod.claims), default=0)
        attributes: dict[str, str | int] = {
            "k8s.node.name": pod.node,
            "dray.writer": decision.writer,
            "dray.attempt": attempt,
            "dray.considered_devices": pod.considered_devices,
            "dray.devices": "; ".join(decided_lines(pod)),
        }
        at = decision.at_unix_s
        span = self._span(
            "allocator", "decision", at - pod.took_us / 1e6, at, attributes, links=self._failed
        )
        yield span
        self._failed = []
        self._placed = SpanLink(trace_id=span.trace_id, span_id=span.span_id)
        steps = [step for step in self._found.steps if step.attempt == attempt]
        if steps:
            yield self._executed(at, steps)

    def _rolled_back(self, decision: Decision, release: Release) -> TraceSpan:
        """The roll-back, as the allocator saw it; the next decision is linked to the failed one."""
        name = "withdraw" if release.why == "withdrawn" else "void"
        links = [self._placed] if self._placed is not None else []
        self._failed += [link for link in links if link not in self._failed]
        at = decision.at_unix_s
        attributes: dict[str, str | int] = {
            "dray.attempt": release.attempt,
            "dray.writer": decision.writer,
        }
        return self._span("allocator", name, at, at, attributes, links=links)

    def _executed(self, decided_unix_s: float, steps: list[ExecutionStep]) -> TraceSpan:
        last = max(steps, key=lambda step: step.now_unix_s)
        failed = last.step == "failed"
        status = "error" if failed else "unset" if last.step in _LAST_STEPS else UNFINISHED
        return self._span(
            "claim-controller",
            "execute",
            decided_unix_s,
            last.now_unix_s,
            {"dray.attempt": last.attempt},
            status=status,
            reason=last.detail if failed else "",
            events=[_moment(step.step, step.now_unix_s, claim=step.claim) for step in steps],
        )

    def _explained(self) -> Iterator[TraceSpan]:
        """If no decision was found in a log, the BindRequest says why the pod waits."""
        status = (self._found.bind_request or {}).get("status") or {}
        if status.get("phase") == "Pending" and self._found.pod is not None:
            made = time_from(self._found.pod["metadata"].get("creationTimestamp"))
            why = {"dray.reasons": str(status.get("explanation", ""))}
            yield self._span("allocator", "waiting", made, self._now_unix_s, why, status=UNFINISHED)

    def _prepared(self, prepared: ClaimPrepared) -> TraceSpan:
        end = prepared.now_unix_s
        attributes = {
            "k8s.node.name": prepared.node,
            "dray.claim": prepared.name,
            "dray.cdi_devices": "; ".join(prepared.cdi_device_ids),
        }
        return self._span("node-agent", "prepare", end - prepared.took_us / 1e6, end, attributes)

    def _span(
        self,
        service: str,
        name: str,
        start_unix_s: float,
        end_unix_s: float,
        attributes: Mapping[str, str | int],
        *,
        status: str = "unset",
        reason: str = "",
        events: Iterable[Moment] = (),
        links: Iterable[SpanLink] = (),
    ) -> TraceSpan:
        span = TraceSpan(
            service=service,
            name=name,
            trace_id=self._trace_id,
            span_id=str(next(self._ids)),
            parent_id=self._root,
            start_unix_ns=int(start_unix_s * 1e9),
            end_unix_ns=int(max(start_unix_s, end_unix_s) * 1e9),
            attributes=dict(attributes),
            status=status,
            reason=reason,
            events=tuple(events),
            links=tuple(links),
        )
        self._root = self._root or span.span_id
        return span


def _moment(name: str, unix_s: float, **attributes: str) -> Moment:
    return Moment(name=name, unix_ns=int(unix_s * 1e9), attributes=dict(attributes))


def _to_the_second() -> dict[str, str]:
    return {"dray.precision": "1 s"}
