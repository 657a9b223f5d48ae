"""Records the facts, decision logs and journals of a running bus."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api import json_codec
from dray.bus.gap_tracker import GapTracker
from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError, StreamState
from dray.bus.topology import FACTS_STREAM, INPUTS_STREAM
from dray.messages.base import Delivered, UndecodableMessageError, decode, subject_prefix
from dray.messages.decisions import log_stream
from dray.messages.facts import DomainObserved
from dray.recording.history import InputHistory
from dray.recording.lines import (
    FactLine,
    GapLine,
    Header,
    InputLine,
    Line,
    RecordLine,
    StreamLine,
    WholeLine,
)
from dray.runtime.backoff import Backoff

_ANYTHING = msgspec.json.Decoder[Any]()
_DOMAIN = f"{subject_prefix(DomainObserved)}."


class _Input(msgspec.Struct):
    redacted: bool = False


_INPUT = msgspec.json.Decoder(_Input)


@dataclass(slots=True)
class Counts:
    """Counts of the lines written so far."""

    facts: int = 0
    records: int = 0
    inputs: int = 0
    """Journal lines of services other than the allocator."""
    left_out: int = 0
    """Lines of an earlier release. They were left out because they are not redacted."""
    gaps: int = 0
    """How many times the recorder lagged, so that facts were replaced before it read them."""
    begun: bool = False
    """Whether the checkpoint is written, so that everything from now on comes after it."""

    events: int = 0
    """Facts, records and inputs since the recording began."""


class Recorder:
    """One recording. ``header`` is written with the domains and streams that are found.

    ``write`` gets the lines in order. ``counts`` is the progress.
    """

    def __init__(self, bus: Bus, header: Header, write: Callable[[Line], None]) -> None:
        self.counts = Counts()
        self._bus = bus
        self._header = header
        self._write = write
        self._checkpoint: list[Line] = []
        """Facts of the stream at the start, buffered until all are read."""
        self._gaps = GapTracker()
        self._whole = False
        self.following_inputs = False
        """Whether journal lines are written from now on."""
        self._epochs: dict[str, int] = {}
        self._followers: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Record until cancelled.

        Raises:
            StreamMissingError: there are no facts to record.
            UndecodableMessageError: something on the bus is not a dray message.
        """
        if await self._bus.state(FACTS_STREAM) is None:
            raise StreamMissingError(
                f"the stream {FACTS_STREAM} does not exist: nothing has been observed yet; "
                "does a claim-controller run?"
            )
        try:
            async with asyncio.TaskGroup() as self._followers:
                await self._follow(FACTS_STREAM, self._begin_facts, self._take_fact, forever=True)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _follow(
        self,
        stream: str,
        begin: Callable[[StreamState], Awaitable[int]],
        take: Callable[[Delivered], Awaitable[None]],
        *,
        forever: bool,
    ) -> None:
        """Take every message of a stream after the sequence from ``begin``, across disconnections.
        Begin again if the stream was re-created. End if it is missing, unless ``forever``."""
        created, position, backoff = "", 0, Backoff(0.05, 2.0)
        while True:
            try:
                state = await self._bus.state(stream)
                if state is None:
                    raise StreamMissingError(f"the stream {stream} is missing")
                if state.created != created:
                    created, position = state.created, await begin(state)
                async for delivered in self._bus.read(stream, start=position + 1):
                    backoff.reset()
                    position = delivered.sequence
                    await take(delivered)
            except StreamMissingError:
                if not forever:
                    return
                created = ""
            except BusUnavailableError:
                pass  # Continue at ``position``.
            await backoff.pause()

    async def _begin_facts(self, state: StreamState) -> int:
        self._gaps = GapTracker()
        self._whole = False
        if self.counts.begun:
            self._write(StreamLine(name=state.name, created=state.created))
            return 0
        self._checkpoint.clear()
        if state.first_sequence > state.last_sequence:
            self._checkpoint.append(WholeLine(sequence=state.last_sequence))
            await self._begin()
        return 0

    async def _take_fact(self, delivered: Delivered) -> None:
        missing = self._gaps.read(delivered.sequence, delivered.pending)
        if missing is not None:
            self._put(GapLine(first=missing[0], last=missing[1]))
            self.counts.gaps += self.counts.begun
            self._whole = False
        line = FactLine(
            sequence=delivered.sequence,
            subject=delivered.subject,
            time_unix_s=delivered.time_unix_s,
            payload=_payload(delivered),
        )
        self._put(line)
        self.counts.facts += 1
        self.counts.events += self.counts.begun
        # While the checkpoint is read, the first facts may come without a gap, later ones may not.
        at_hand = self.counts.begun or not delivered.pending
        if self._gaps.whole and at_hand and not self._whole:
            self._put(WholeLine(sequence=delivered.sequence))
            self._whole = True
        self._look_for_domain(line)
        if self._whole and not self.counts.begun and not delivered.pending:
            await self._begin()

    def _put(self, line: Line) -> None:
        if self.counts.begun:
            self._write(line)
        else:
            self._checkpoint.append(line)

    async def _begin(self) -> None:
        """Write the header and the checkpoint, and follow every log."""
        logs = [log_stream(domain, epoch) for domain, epoch in self._epochs.items()]
        states = [await self._bus.state(stream) for stream in (FACTS_STREAM, *logs)]
        self._write(
            msgspec.structs.replace(
                self._header,
                domains=tuple(self._epochs),
                streams={state.name: state.created for state in states if state is not None},
            )
        )
        for line in self._checkpoint:
            self._write(line)
        self._checkpoint.clear()
        self.counts.begun = True
        for domain, epoch in self._epochs.items():
            self._follow_log(domain, epoch)
        self._follow_inputs()

    def _look_for_domain(self, line: FactLine) -> None:
        """Follow the log of a new epoch as soon as it is announced."""
        if not line.subject.startswith(_DOMAIN):
            return
        fact = decode(bytes(line.payload), DomainObserved)
        if fact.deleted or fact.epoch <= self._epochs.get(fact.domain, 0):
            return
        self._epochs[fact.domain] = fact.epoch
        if self.counts.begun:
            self._follow_log(fact.domain, fact.epoch)

    def _follow_log(self, domain: str, epoch: int) -> None:
        last_before = 0

        async def begin(state: StreamState) -> int:
            nonlocal last_before
            last_before = state.last_sequence
            self._write(StreamLine(name=state.name, created=state.created))
            return 0

        async def take(delivered: Delivered) -> None:
            self._write(
                RecordLine(
                    domain=domain,
                    epoch=epoch,
                    sequence=delivered.sequence,
                    time_unix_s=delivered.time_unix_s,
                    payload=_payload(delivered),
                )
            )
            self.counts.records += 1
            self.counts.events += delivered.sequence > last_before

        self._start(self._follow(log_stream(domain, epoch), begin, take, forever=False))

    def _follow_inputs(self) -> None:
        """Record journal lines from now on; for journals with state, also earlier lines."""
        history, last_before = InputHistory(), 0

        async def begin(state: StreamState) -> int:
            nonlocal last_before
            # If the stream was created again meanwhile, all its messages are new.
            last_before = 0 if self.following_inputs else state.last_sequence
            if state.first_sequence > state.last_sequence:
                self.following_inputs = True
            return 0

        async def take(delivered: Delivered) -> None:
            line = InputLine(
                sequence=delivered.sequence,
                subject=delivered.subject,
                time_unix_s=delivered.time_unix_s,
                payload=_payload(delivered),
            )
            is_new = delivered.sequence > last_before
            is_redacted = _is_redacted(delivered.payload)
            if not is_new and is_redacted:
                history.add(line)
            if is_new or delivered.sequence == last_before or not delivered.pending:
                for earlier in history.take():
                    self._write(earlier)
                self.following_inputs = True
            if not is_redacted:
                self.counts.left_out += 1
            elif is_new:
                self._write(line)
                self.counts.inputs += 1
                self.counts.events += 1

        self._start(self._follow(INPUTS_STREAM, begin, take, forever=True))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._followers is not None, "only called while run() runs"
        self._followers.create_task(work)


def _is_redacted(payload: bytes) -> bool:
    try:
        return json_codec.decode(payload, _INPUT).redacted
    except msgspec.ValidationError:
        return False


def _payload(delivered: Delivered) -> msgspec.Raw:
    """The payload. It has to be JSON on one line to be part of a recording."""
    try:
        json_codec.decode(delivered.payload, _ANYTHING)
        if b"\n" in delivered.payload:
            raise msgspec.DecodeError("it has several lines")
    except msgspec.DecodeError as error:
        raise UndecodableMessageError(
            f"message {delivered.sequence} of {delivered.stream} ({delivered.subject}) can't be "
            f"recorded: {error}; was it written by another version of dray?"
        ) from error
    return msgspec.Raw(delivered.payload)
