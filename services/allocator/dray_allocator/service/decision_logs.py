"""The decision logs of a replica on the bus: read, and appended to.

Appends overlap, in the order of the calls.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final
from uuid import uuid4

import msgspec
import structlog

from dray.api.errors import DrayError
from dray.bus.ports import Bus, BusUnavailableError, StaleSequenceError, StreamMissingError
from dray.messages.base import Delivered, Outgoing, UndecodableMessageError, encode
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    Waiting,
    decode_record,
    log_stream,
    log_subject,
)
from dray.runtime.backoff import Backoff
from dray_allocator.service.telemetry import AllocatorMetrics, Traces
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    AppendFailed,
    Event,
    LogLost,
    LogShortened,
    RecordSeen,
    RecordUndecodable,
)

_REFUSED_S: Final = 1.0
"""Pause before a record that the bus refused is decided again."""


class DecisionLogs:
    """The logs of one replica.

    ``dispatch`` gives the core an event and the id of its message. ``give_up`` stops serving a
    domain until its log is read again; ``hurry`` starts the next turn of leases soon.
    """

    def __init__(
        self,
        bus: Bus,
        state: AllocatorState,
        metrics: AllocatorMetrics,
        dispatch: Callable[[Event, str], Awaitable[None]],
        *,
        give_up: Callable[[str], None],
        hurry: Callable[[], None],
    ) -> None:
        instance = state.options.writer
        self._bus = bus
        self._state = state
        self._metrics = metrics
        self._dispatch = dispatch
        self._give_up = give_up
        self._hurry = hurry
        self._source = f"/allocator/{instance}"
        self._log = structlog.get_logger()
        self._traces = Traces()
        self._own = OwnRecords()
        self._identities = (f"{instance}.{uuid4().hex}.{n}" for n in count(1))
        self._last: dict[str, str] = {}
        """Per domain, the identity of the last append."""
        self._refused_s: dict[str, float] = {}
        """Per domain, when one of its records was refused last, by the loop's clock."""

    def forget(self, domain: str) -> None:
        """Forget the records of a domain whose log is no longer read, or read again."""
        self._own.forget(domain)

    async def follow(self, domain: str, epoch: int, start: int) -> None:
        """Read a log until cancelled."""
        stream = log_stream(domain, epoch)
        backoff = Backoff(0.05, 2.0)
        created, lost = "", False
        undecodable = 0
        """Sequence of the first record that can't be decoded; nothing from there on is folded."""
        while True:
            try:
                state = await self._bus.state(stream)
                created = created or (state.created if state is not None else "")
                if lost and (state is None or state.created != created):
                    await backoff.pause()
                    continue
                if lost:
                    lost, undecodable = False, 0
                    self._give_up(domain)
                    await self._dispatch(LogShortened(domain, epoch), "")
                is_there = state is not None and state.last_sequence >= start
                async for delivered in self._bus.read(stream, start=start if is_there else 1):
                    if 0 < undecodable <= delivered.sequence:
                        continue
                    try:
                        record = self._own.record_of(domain, epoch, delivered)
                    except UndecodableMessageError as error:
                        undecodable = delivered.sequence
                        self._metrics.undecodable.inc()
                        await self._dispatch(RecordUndecodable(domain, epoch, str(error)), "")
                        self._hurry()
                        continue
                    self._traces.folded(record, delivered.headers, delivered.time_unix_s)
                    more = delivered.pending > 0
                    seen = RecordSeen(domain, epoch, delivered.sequence, record, more)
                    await self._dispatch(seen, delivered.id)
            except StreamMissingError as error:
                self._log.error("a decision log is lost", stream=stream, why=str(error))
                lost = True
                await self._dispatch(LogLost(domain, epoch), "")
            except DrayError as error:
                self._log.warning("a log can't be read", stream=stream, why=str(error))
            await backoff.pause()

    def chain(self, effect: Append) -> tuple[str, str]:
        """The append's identity, and that of the append before it. Called in the order of the
        effects."""
        after = self._last.get(effect.domain, "") if effect.chained else ""
        identity = self._last[effect.domain] = next(self._identities)
        return identity, after

    async def append(self, effect: Append, identity: str, after: str, cause: str) -> None:
        """Append a record. ``cause``: the id of the message that led to it."""
        record = effect.record
        try:
            with self._traces.appending(record) as traceparent:
                message = _outgoing(
                    record, self._source, traceparent, identity=identity, cause=cause
                )
                self._own.written(effect.expected_last + 1, message.payload, record)
                await self._bus.append(
                    message, expected_last=effect.expected_last, identity=identity, after=after
                )
        except StaleSequenceError as error:
            self._metrics.conflicts.inc()
            await self._failed(effect, str(error))
        except BusUnavailableError as error:
            await self._failed(effect, str(error))
        except StreamMissingError as error:
            self._log.error("a decision log is lost", domain=effect.domain, why=str(error))
            await self._dispatch(LogLost(effect.domain, effect.epoch), "")
        except DrayError as error:
            self._log.error("a record is refused", domain=effect.domain, why=str(error))
            self._refused_s[effect.domain] = asyncio.get_running_loop().time()
            await self._failed(effect, str(error))
        else:
            self._metrics.appended(record)

    async def _failed(self, effect: Append, reason: str) -> None:
        """Forget the appends built on the failed one, once per term of serving; then read and serve
        again.

        After a refusal this waits ``_REFUSED_S``. Appends built on the refused one wait as well.
        """
        if (refused_s := self._refused_s.get(effect.domain)) is not None:
            await asyncio.sleep(refused_s + _REFUSED_S - asyncio.get_running_loop().time())
        domain = self._state.domains.get(effect.domain)
        if domain is None or domain.term != effect.term:
            return
        self._log.warning("an append failed; reading the log again", why=reason)
        self._give_up(effect.domain)
        await self._dispatch(AppendFailed(effect.domain, effect.epoch, reason), "")


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
        """The record that was read; raises the same errors as the function ``record_of``."""
        written = self._written.get(domain, {}).pop((epoch, delivered.sequence), None)
        if written is not None and written[0] == delivered.payload:
            return written[1]
        return record_of(delivered)

    def forget(self, domain: str) -> None:
        """Forget a domain whose log is no longer read."""
        self._written.pop(domain, None)


def _outgoing(
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
        # Without it, records of the same moment would share an id made from their key.
        identity=identity,
    )
    return message.to(log_subject(record.domain, record.epoch))
