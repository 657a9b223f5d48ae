"""The messages and objects of one pod, read once from bus and Kubernetes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from dray.api import names
from dray.api.errors import PermanentError
from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import EVENTS_STREAM
from dray.kube.convert_metadata import annotation, time_from
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    PODS,
    POOLS,
    Kube,
    NotFoundError,
    Object,
    Resource,
)
from dray.messages.base import Delivered, UndecodableMessageError, ce_type, decode
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    PodDecision,
    Release,
    Released,
    Waiting,
    decode_record,
    log_stream,
)
from dray.messages.events import ClaimPrepared, ExecutionStep, PodRequested

_READ_TIMEOUT_S = 10.0
"""Time-out for reading the streams to their ends; what was read by then is used."""

_EPOCHS = 32
"""Decisions are read from at most this many logs, the newest ones."""


class NothingKnownError(PermanentError):
    """Neither Kubernetes nor the bus knows the pod."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One record of the log about the pod: chosen devices, or reasons to wait."""

    message: PodDecision | Waiting | Release
    writer: str
    at_unix_s: float


@dataclass(slots=True)
class TraceInputs:
    """Everything found; times of messages are those of the streams."""

    namespace: str
    name: str
    pod: Object | None = None
    claims: list[Object] = field(default_factory=list)
    bind_request: Object | None = None
    requested: PodRequested | None = None
    requested_unix_s: float = 0.0
    decisions: list[Decision] = field(default_factory=list)
    steps: list[ExecutionStep] = field(default_factory=list)
    prepared: list[ClaimPrepared] = field(default_factory=list)
    log_begins_unix_s: float = 0.0
    """When the first record that is left of a trimmed log was stored; 0: nothing is missing."""

    @property
    def missing(self) -> str:
        """Which decisions about the pod are no longer kept, and what remains; empty: none."""
        metadata = {} if self.pod is None else self.pod["metadata"]
        created_unix_s = time_from(metadata.get("creationTimestamp")) or self.requested_unix_s
        if self.log_begins_unix_s <= created_unix_s:
            return ""
        begins = datetime.fromtimestamp(self.log_begins_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return (
            f"the decision log of pool {self.pool} begins at {begins} UTC: older decisions about "
            "the pod are no longer kept (DRAY_LOGS__KEEP_FOR); the last one is in its claims and "
            "its BindRequest, as long as the pod exists"
        )

    @property
    def uid(self) -> str:
        """The pod's UID; empty if only its request is known."""
        return str(self.pod["metadata"]["uid"]) if self.pod else ""

    @property
    def request_id(self) -> str:
        """The admission request's UID, which is older than the pod's."""
        if self.pod is not None:
            return annotation(self.pod, names.REQUEST_ID)
        return self.requested.request_id if self.requested else ""

    @property
    def pool(self) -> str:
        """The pod's pool: the name of its decision logs."""
        if self.pod is not None:
            return annotation(self.pod, names.GPUPOOL)
        return self.requested.pool if self.requested else ""

    @property
    def traceparent(self) -> str:
        """The beginning of its trace; empty for a pod that dray did not admit."""
        if self.pod is not None:
            return annotation(self.pod, names.TRACEPARENT)
        return self.requested.traceparent if self.requested else ""


async def read_inputs(kube: Kube, bus: Bus | None, namespace: str, name: str) -> TraceInputs:
    """Read everything; without a bus (or if it does not answer), what Kubernetes knows.

    Raises:
        NothingKnownError: there is no such pod, and no message about one.
    """
    found = TraceInputs(namespace, name, pod=await _get(kube, PODS, name, namespace))
    if found.pod is not None:
        await _read_objects(kube, found)
    silent = "no message of the last 24 h is about one of that name"
    if bus is not None:
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await _read_events(bus, found)
                await _read_logs(kube, bus, found)
        except (TimeoutError, BusUnavailableError) as error:
            # What was read so far is still true.
            why = bus.problem or str(error) or f"no end within {_READ_TIMEOUT_S:g} s"
            silent = f"the bus was not read, and may have messages about it: {why}"
    if found.pod is None and found.requested is None:
        unread = "the bus was not reached, and may have messages about it (--nats)"
        raise NothingKnownError(
            f"pod {namespace}/{name} is not in the cluster, and "
            f"{unread if bus is None else silent}; was it another namespace (-n)?"
        )
    return found


async def _read_objects(kube: Kube, found: TraceInputs) -> None:
    assert found.pod is not None
    for status in found.pod.get("status", {}).get("resourceClaimStatuses") or ():
        if claim_name := status.get("resourceClaimName"):
            claim = await _get(kube, CLAIMS, claim_name, found.namespace)
            found.claims += [claim] if claim is not None else []
    known = await _get(kube, BIND_REQUESTS, found.name, found.namespace)
    if known is not None and known.get("spec", {}).get("podUID") == found.uid:
        found.bind_request = known


async def _get(kube: Kube, resource: Resource, name: str, namespace: str = "") -> Object | None:
    try:
        return await kube.get(resource, name, namespace)
    except NotFoundError:
        return None


async def _read_events(bus: Bus, found: TraceInputs) -> None:
    """Events are few per pod and come in order: the request first."""
    async for delivered in _to_the_end(bus, EVENTS_STREAM):
        kind = delivered.headers.get("ce-type", "")
        try:
            if kind == ce_type(PodRequested):
                _add_request(found, decode(delivered, PodRequested), delivered.time_unix_s)
            elif kind == ce_type(ExecutionStep):
                step = decode(delivered, ExecutionStep)
                found.steps += [step] if _is_step_of(found, step) else []
            elif kind == ce_type(ClaimPrepared):
                prepared = decode(delivered, ClaimPrepared)
                found.prepared += [prepared] if _is_claim_of(found, prepared) else []
        except UndecodableMessageError:
            continue  # of another version; the others are still useful


def _add_request(found: TraceInputs, requested: PodRequested, at_unix_s: float) -> None:
    """Add a request. If the pod is deleted, only the newest request of its name is shown."""
    if found.pod is not None:
        if requested.request_id != found.request_id:
            return
    elif (requested.namespace, requested.name) != (found.namespace, found.name):
        return
    else:
        found.steps, found.prepared = [], []
    found.requested, found.requested_unix_s = requested, at_unix_s


def _is_step_of(found: TraceInputs, step: ExecutionStep) -> bool:
    if found.pod is not None:
        return step.pod_uid == found.uid
    return found.requested is not None and (step.namespace, step.name) == (
        found.namespace,
        found.name,
    )


def _is_claim_of(found: TraceInputs, prepared: ClaimPrepared) -> bool:
    if found.pod is not None:
        return prepared.claim_uid in {claim["metadata"]["uid"] for claim in found.claims}
    claims = {claim for step in found.steps for claim in step.claim.split(",")}
    return prepared.namespace == found.namespace and prepared.name in claims


async def _read_logs(kube: Kube, bus: Bus, found: TraceInputs) -> None:
    pool = await _get(kube, POOLS, found.pool) if found.pool else None
    newest = ((pool or {}).get("status") or {}).get("decisionLog", {}).get("epoch", 0)
    is_first = True
    # The first epoch of a pool that was created again may be its creation time in seconds.
    for epoch in range(max(1, int(newest) - _EPOCHS + 1), int(newest) + 1):
        async for delivered in _to_the_end(bus, log_stream(found.pool, epoch)):
            if is_first and delivered.sequence > 1:
                found.log_begins_unix_s = delivered.time_unix_s
            is_first = False
            try:
                record = decode_record(delivered.payload)
            except msgspec.MsgspecError:
                continue  # of another version
            found.decisions += [
                Decision(one, record.writer, delivered.time_unix_s)
                for one in _messages_of(record)
                if _is_about(found, one)
            ]


def _messages_of(record: AnyRecord) -> tuple[PodDecision | Waiting | Release, ...]:
    match record:
        case Decided(pods=pods):
            return pods
        case Waiting():
            return tuple(record.by_pod())
        case Released(releases=releases):
            return tuple(one for one in releases if one.why in ("voided", "withdrawn"))
    return ()


def _is_about(found: TraceInputs, message: PodDecision | Waiting | Release) -> bool:
    if isinstance(message, Release):
        decided = [one.message for one in found.decisions if isinstance(one.message, PodDecision)]
        claims = [claim for pod in decided for claim in pod.claims]
        return any((one.uid, one.attempt) == (message.claim_uid, message.attempt) for one in claims)
    if found.uid:
        return message.pod_uid == found.uid
    return bool(message.request_id) and message.request_id == found.request_id


async def _to_the_end(bus: Bus, stream: str) -> AsyncIterator[Delivered]:
    """Every message that the stream has now; none if there is no stream."""
    state = await bus.state(stream)
    if state is None or state.last_sequence < max(state.first_sequence, 1):
        return
    try:
        async with aclosing(bus.read(stream)) as messages:  # type: ignore[type-var]
            async for delivered in messages:
                yield delivered
                if delivered.pending == 0 or delivered.sequence >= state.last_sequence:
                    return
    except StreamMissingError:
        return
