"""What people see of a replica: metrics, and spans of decisions.

Spans are made for sampled pods only: what was decided, and how long the pod waited. A decision that
placed nothing (the pod waits, or another replica appended first) is a failed span of its own; the
span of the decision that places the pod links to it. Waiting pods are read from the headers of the
log, so that another replica that takes over also links to them.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from time import time_ns
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry

from dray.messages.decisions import (
    AnyRecord,
    Decided,
    DecidedGroup,
    GroupDecision,
    PodDecision,
    Record,
    Released,
    Waiting,
    log_subject,
)
from dray.reasons import in_words
from dray.telemetry import Span, is_sampled, start
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

_TRACEPARENT: Final = "traceparent"
"""The header that carries a decision's position to the claim-controller."""
_MOST_PODS: Final = 10_000
_MOST_MOMENTS: Final = 32
"""Per pod: reasons that change often must not make a span grow without bound."""

_LATENCIES_S: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)

Attributes = dict[str, str | int | float | bool]


class AllocatorMetrics:
    """Counters of what was appended, and gauges of the state."""

    def __init__(self, state: AllocatorState, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._state = state
        self._decisions = prometheus_client.Counter(
            "dray_allocator_decisions", "Pods decided", ["domain"], registry=registry
        )
        self._waits = prometheus_client.Counter(
            "dray_allocator_waits",
            "Recorded waits of pods, by the kind of the first reason",
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
            "Appends refused because the log had another last sequence",
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
            registry,
            "undecodable_domains",
            "Domains left to other replicas: a message of a newer release",
        ).set_function(
            lambda: sum(
                bool(state.undecodable_for(name))
                for name in (*state.domains, *state.unread_domains)
            )
        )
        _gauge(registry, "facts_position", "Last fact applied").set_function(
            lambda: state.facts.position
        )
        _gauge(
            registry, "waiting_pods", "Pods that wait in the domains that this replica serves"
        ).set_function(
            lambda: sum(
                len(domain.queue.pending) for domain in state.domains.values() if domain.serving
            )
        )
        _gauge(
            registry,
            "active_pods",
            "Pods that this replica has not tried yet, without those that fit nowhere",
        ).set_function(
            lambda: sum(_active_pods(state, one) for one in state.domains.values() if one.serving)
        )
        _gauge(registry, "serving_domains", "Domains this replica serves").set_function(
            lambda: sum(domain.serving for domain in state.domains.values())
        )
        _gauge(
            registry, "unconfirmed_records", "Records appended but not read back yet"
        ).set_function(lambda: sum(len(domain.appended) for domain in state.domains.values()))

    def appended(self, record: AnyRecord) -> None:
        """Count a record that is in the log now, unless its pool was deleted meanwhile."""
        if record.domain not in self._state.domains:
            return
        if isinstance(record, Decided):
            self._decisions.labels(record.domain).inc(len(record.pods))
            for pod in record.pods:
                self._latency.observe(pod.took_us / 1e6)
        elif isinstance(record, Waiting):
            kind = record.reasons[0].kind if record.reasons else "none"
            self._waits.labels(record.domain, kind).inc(1 + len(record.peers))

    def remove(self, domain: str) -> None:
        """Remove the series of a domain that this replica no longer follows."""
        for counter in (self._decisions, self._waits):
            counter.remove_by_labels({"domain": domain})


@dataclass(slots=True)
class _Wait:
    """A sampled pod that could not be placed so far."""

    began_unix_ns: int
    failed: list[str] = field(default_factory=list)
    """Traceparents of the failed decisions."""
    moments: list[tuple[int, str]] = field(default_factory=list)
    """Time (nanoseconds since 1970) and reasons of each."""


class Traces:
    """Sampled pods that wait, as one replica knows them."""

    def __init__(self) -> None:
        self._waits: OrderedDict[str, _Wait] = OrderedDict()
        self._placed: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Per claim: its pod, and the traceparent of the decision that placed it."""

    def folded(self, record: AnyRecord, headers: Mapping[str, str], at_unix_s: float) -> None:
        """Take in a record that was read from the log."""
        if isinstance(record, Waiting):
            position = headers.get(_TRACEPARENT, "")
            if position != record.traceparent and is_sampled(position):
                at_unix_ns = int(at_unix_s * 1e9)
                self._remember(record.pod_uid, position, at_unix_ns, in_words(record.reasons))
        elif isinstance(record, Decided):
            self._decided_by(record, headers.get(_TRACEPARENT, ""))
        elif isinstance(record, Released):
            self._released(record, at_unix_s)

    def _decided_by(self, record: Decided, position: str) -> None:
        if not self._waits and not is_sampled(position):
            return
        for pod in record.pods:
            self._waits.pop(pod.pod_uid, None)
            for claim in pod.claims if is_sampled(position) else ():
                self._placed[claim.uid] = (pod.pod_uid, position)
        while len(self._placed) > _MOST_PODS:
            self._placed.popitem(last=False)

    def _released(self, record: Released, at_unix_s: float) -> None:
        """Remember a decision that was released: the next one links to it."""
        for release in record.releases:
            if release.why == "committed" or release.claim_uid not in self._placed:
                continue
            pod_uid, position = self._placed.pop(release.claim_uid)
            if release.why != "deleted":
                why = f"attempt {release.attempt} was {release.why}"
                self._remember(pod_uid, position, int(at_unix_s * 1e9), why)

    @contextmanager
    def appending(self, record: AnyRecord) -> Iterator[str]:
        """Span around a record's append; yields the ``traceparent`` to send, or an empty string."""
        if isinstance(record, Waiting):
            with ExitStack() as stack:
                positions = [
                    stack.enter_context(self._waiting(one))
                    for one in record.by_pod()
                    if is_sampled(one.traceparent)
                ]
                # A record about several pods belongs to no single trace.
                yield positions[0] if positions and not record.peers else _unsampled(record)
        elif isinstance(record, Decided) and (sampled := _sampled(record)):
            with self._decided(record, sampled) as position:
                yield position
        else:
            yield _unsampled(record)

    @contextmanager
    def _waiting(self, record: Waiting) -> Iterator[str]:
        why = in_words(record.reasons)
        attributes = _attributes(record, record.namespace, record.name)
        with start("decision", record.traceparent, attributes, kind="producer") as span:
            span.fail(why)
            if span.recording:
                self._remember(record.pod_uid, span.traceparent, time_ns(), why)
            yield span.traceparent

    @contextmanager
    def _decided(self, record: Decided, sampled: list[PodDecision]) -> Iterator[str]:
        with ExitStack() as stack:
            of_group = []
            if (group := sampled[0].group) is not None:
                of_group = [stack.enter_context(_group_span(record, group, sampled))]
            spans = [stack.enter_context(self._placing(record, pod, of_group)) for pod in sampled]
            # A record about several pods belongs to no single trace.
            yield spans[0].traceparent if len(record.pods) == 1 else ""

    @contextmanager
    def _placing(
        self, record: Decided, pod: PodDecision, of_group: Sequence[str]
    ) -> Iterator[Span]:
        """``of_group``: the position of the decision on its group, if there is one."""
        wait = self._waits.get(pod.pod_uid)
        failed = wait.failed if wait is not None else ()
        with start(
            "decision",
            pod.traceparent,
            _attributes(record, pod.namespace, pod.name) | _choice(pod),
            kind="producer",
            links=(*failed, *of_group),
            began_unix_ns=time_ns() - pod.took_us * 1000,
        ) as span:
            try:
                yield span
            except BaseException as error:
                if span.recording:
                    self._remember(pod.pod_uid, span.traceparent, time_ns(), str(error))
                raise
        if wait is not None:
            _record_wait(wait, pod)
            self._waits.pop(pod.pod_uid, None)

    def _remember(self, pod_uid: str, position: str, at_unix_ns: int, why: str) -> None:
        wait = self._waits.setdefault(pod_uid, _Wait(at_unix_ns))
        if position not in wait.failed and len(wait.failed) < _MOST_MOMENTS:
            wait.failed.append(position)
            wait.moments.append((at_unix_ns, why))
        while len(self._waits) > _MOST_PODS:
            self._waits.popitem(last=False)


def _group_position(uid: str) -> str:
    """Where the trace of a PodGroup begins: one trace for all decisions on it, by any replica."""
    digest = sha256(uid.encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"


@contextmanager
def _group_span(
    record: Decided, group: GroupDecision, pods: Sequence[PodDecision]
) -> Iterator[str]:
    """A span of the group's own trace, linked to the traces of its sampled pods."""
    attributes: Attributes = {
        "k8s.namespace.name": group.group.namespace,
        "dray.group": group.group.name,
        "dray.group.pods": group.size,
        "dray.group.decision": group.id,
        "dray.domain": record.domain,
        "dray.nodes": len({pod.node for pod in record.pods}),
    }
    if isinstance(record, DecidedGroup):
        attributes |= {"dray.part": record.part, "dray.parts": record.parts}
    with start(
        "group decision",
        _group_position(group.uid),
        attributes,
        links=[pod.traceparent for pod in pods],
        began_unix_ns=time_ns() - sum(pod.took_us for pod in record.pods) * 1000,
    ) as span:
        yield span.traceparent


def _record_wait(wait: _Wait, pod: PodDecision) -> None:
    """Record the span of the time waited, with an event for each change of reasons."""
    attributes: Attributes = {
        "k8s.namespace.name": pod.namespace,
        "k8s.pod.name": pod.name,
        "dray.decisions_failed": len(wait.failed),
    }
    with start(
        "waiting",
        pod.traceparent,
        attributes,
        links=wait.failed,
        began_unix_ns=wait.began_unix_ns,
    ) as span:
        for at_unix_ns, why in wait.moments:
            span.event("waits", {"dray.reasons": why}, unix_ns=at_unix_ns)


def _attributes(record: Record, namespace: str, pod: str) -> Attributes:
    """Attributes by OpenTelemetry's conventions for Kubernetes and messaging, and dray's own."""
    return {
        "k8s.namespace.name": namespace,
        "k8s.pod.name": pod,
        "dray.domain": record.domain,
        "messaging.system": "nats",
        "messaging.operation.type": "send",
        "messaging.operation.name": "append",
        "messaging.destination.name": log_subject(record.domain, record.epoch),
    }


def _choice(pod: PodDecision) -> Attributes:
    return {
        "k8s.node.name": pod.node,
        "dray.claims": ",".join(claim.name for claim in pod.claims),
        "dray.attempt": max((claim.attempt for claim in pod.claims), default=0),
        "dray.devices": sum(len(claim.allocation.devices) for claim in pod.claims),
        "dray.considered_devices": pod.considered_devices,
        "dray.took_us": pod.took_us,
    }


def _sampled(record: Decided) -> list[PodDecision]:
    """The sampled pods of a record."""
    return [pod for pod in record.pods if is_sampled(pod.traceparent)]


def _unsampled(record: AnyRecord) -> str:
    """The traceparent of an unsampled pod, unchanged."""
    if isinstance(record, Waiting) and not record.peers:
        return record.traceparent
    if isinstance(record, Decided) and len(record.pods) == 1:
        return record.pods[0].traceparent
    return ""


def _active_pods(state: AllocatorState, domain: SchedulingDomain) -> int:
    groups = domain.groups.active_groups()
    return len(domain.queue.active_pods()) + sum(map(state.facts.groups.size, groups))


def _gauge(registry: CollectorRegistry, name: str, text: str) -> prometheus_client.Gauge:
    return prometheus_client.Gauge(f"dray_allocator_{name}", text, registry=registry)
