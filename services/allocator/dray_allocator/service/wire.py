"""Messages of the bus as events of the core, and its effects as messages."""

from collections.abc import Container

import msgspec

from dray.messages.base import (
    Delivered,
    Outgoing,
    UndecodableMessageError,
    decode,
    encode,
    subject_prefix,
)
from dray.messages.decisions import AnyRecord, Decided, Waiting, decode_record, log_subject
from dray.messages.facts import FACTS, Fact
from dray.messages.rpc import Dump, DumpReply
from dray_allocator.core.dump import served_page
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.undecodable import UndecodableFact, undecodable

_FACTS: dict[tuple[str, ...], type[Fact]] = {
    tuple(subject_prefix(fact).split(".")): fact for fact in FACTS
}


def fact_of(delivered: Delivered, drivers: Container[str]) -> Fact | UndecodableFact | None:
    """The fact; its subject and pools if this release can't decode it; None for an unknown type.

    ``drivers``: those whose devices dray allocates.
    """
    kind = _FACTS.get(tuple(delivered.subject.split(".", 4)[:4]))
    if kind is None:
        return None
    try:
        return decode(delivered, kind)
    except UndecodableMessageError as error:
        return undecodable(kind, delivered.subject, delivered.payload, str(error), drivers)


def decoded_fact(delivered: Delivered, drivers: Container[str]) -> Fact | None:
    """As ``fact_of``, for readers that need every fact; None if no decision depends on it.

    Raises:
        UndecodableMessageError: a decision may depend on a fact that can't be decoded.
    """
    fact = fact_of(delivered, drivers)
    if not isinstance(fact, UndecodableFact):
        return fact
    if fact.stops:
        raise UndecodableMessageError(fact.why)
    return None


def record_of(delivered: Delivered) -> AnyRecord:
    """The record.

    Raises:
        UndecodableMessageError: this version can't decode it.
    """
    try:
        return decode_record(delivered.payload)
    except msgspec.MsgspecError as error:
        raise UndecodableMessageError(
            f"record {delivered.sequence} of {delivered.stream} can't be decoded: {error}; "
            "was it written by another version of dray?"
        ) from error


class OwnRecords:
    """Records that this replica appended, until they are read back: they need no decoding."""

    def __init__(self) -> None:
        self._written: dict[str, dict[tuple[int, int], tuple[bytes, AnyRecord]]] = {}
        """Per domain, by epoch and sequence."""

    def written(self, sequence: int, payload: bytes, record: AnyRecord) -> None:
        """Remember a record before its append; ``sequence`` is the expected one."""
        written = self._written.setdefault(record.domain, {})
        written[record.epoch, sequence] = payload, record

    def record_of(self, domain: str, epoch: int, delivered: Delivered) -> AnyRecord:
        """The record that was read; raises as ``record_of``."""
        written = self._written.get(domain, {}).pop((epoch, delivered.sequence), None)
        if written is not None and written[0] == delivered.payload:
            return written[1]
        return record_of(delivered)

    def forget(self, domain: str) -> None:
        """Forget a domain whose log is no longer read."""
        self._written.pop(domain, None)


def answer_to(state: AllocatorState, request: bytes) -> bytes | None:
    """The encoded DumpReply to an encoded Dump; None if another replica serves the domain."""
    try:
        asked = msgspec.json.decode(request, type=Dump)
    except msgspec.MsgspecError as error:
        reply = DumpReply(domain="", error=f"the question can't be read: {error}")
        return msgspec.json.encode(reply)
    answer = served_page(state, asked)
    return msgspec.json.encode(answer) if answer is not None else None


def outgoing(
    record: AnyRecord, source: str, traceparent: str, *, identity: str = "", cause: str = ""
) -> Outgoing:
    """The record as a message on its log's subject.

    ``identity`` is the append's and the message's id; ``cause`` is the id of the message that led
    to it.
    """
    correlation_id = ""
    if isinstance(record, Waiting) and not record.peers:
        correlation_id = record.request_id
    elif isinstance(record, Decided) and len(record.pods) == 1:
        correlation_id = record.pods[0].request_id
    message = encode(
        record,
        source=source,
        correlation_id=correlation_id,
        causation_id=cause,
        traceparent=traceparent,
        # Records of one moment would otherwise share an id made of their key.
        identity=identity,
    )
    return message.to(log_subject(record.domain, record.epoch))
