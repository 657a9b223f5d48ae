"""A recording's lines in the order in which replay needs them: facts, and each log."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from dray.bus.topology import FACTS_STREAM
from dray.messages.base import Delivered
from dray.messages.decisions import AnyRecord, decode_record
from dray.recording.file import BadRecordingError
from dray.recording.lines import (
    FactLine,
    GapLine,
    Header,
    Line,
    RecordLine,
    StreamLine,
    WholeLine,
)


@dataclass(slots=True)
class FactTimeline:
    """The facts of one life of the facts stream."""

    lines: list[FactLine] = field(default_factory=list)
    _from: list[int] = field(default_factory=list)
    _to: list[int] = field(default_factory=list)
    """Ends of the covered spans; the last one may still be open."""

    def whole(self, sequence: int) -> None:
        """Every fact from ``sequence`` on is known."""
        if len(self._from) == len(self._to):
            self._from.append(sequence)

    def gap(self, first: int) -> None:
        """Facts are missing from ``first`` on."""
        if len(self._from) > len(self._to):
            self._to.append(first - 1)

    def covers(self, sequence: int) -> bool:
        """Whether the state after the fact of that sequence is known exactly."""
        if not self.lines or sequence > self.lines[-1].sequence:
            return False
        span = bisect_right(self._from, sequence) - 1
        return span >= 0 and (span >= len(self._to) or sequence <= self._to[span])

    def begins(self) -> int:
        """The sequence of the checkpoint with which the recording begins."""
        return self._from[0] if self._from else 0


@dataclass(slots=True)
class LogTimeline:
    """The decision log of one domain and epoch."""

    domain: str
    epoch: int
    facts: FactTimeline
    """The facts to whose sequences its records refer."""
    records: list[RecordLine] = field(default_factory=list)


def timeline(lines: Iterable[Line]) -> Sequence[LogTimeline]:
    """The logs of a recording, each with its facts.

    A log belongs to the facts stream that was read when the log's first record was read: if that
    stream is re-created, every domain gets a new epoch.
    """
    facts = FactTimeline()
    logs: dict[tuple[str, int], LogTimeline] = {}
    for line in lines:
        match line:
            case FactLine():
                facts.lines.append(line)
            case WholeLine(sequence=sequence):
                facts.whole(sequence)
            case GapLine(first=first):
                facts.gap(first)
            case RecordLine(domain=domain, epoch=epoch):
                log = logs.setdefault((domain, epoch), LogTimeline(domain, epoch, facts))
                log.records.append(line)
            case StreamLine(name=name) if name == FACTS_STREAM:
                facts = FactTimeline()
            case Header() | StreamLine():
                pass
    return tuple(logs.values())


def delivered(line: FactLine) -> Delivered:
    """The fact as the bus delivered it."""
    return Delivered(
        line.subject, bytes(line.payload), {}, FACTS_STREAM, line.sequence, line.time_unix_s
    )


def records(log: LogTimeline) -> Iterator[tuple[RecordLine, AnyRecord]]:
    """The records of a log.

    Raises:
        BadRecordingError: a payload is not a record that this version knows.
    """
    for line in log.records:
        try:
            yield line, decode_record(bytes(line.payload))
        except msgspec.MsgspecError as error:
            raise BadRecordingError(
                f"record {line.sequence} of {line.domain}, epoch {line.epoch}: {error}; "
                "was it recorded by another version of dray?"
            ) from error
