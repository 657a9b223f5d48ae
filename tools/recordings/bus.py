"""A simulated bus: a facts stream with the last fact per subject, and fenced logs."""

from dataclasses import dataclass, field

import msgspec

from dray.bus.topology import FACTS_STREAM
from dray.messages.base import encode
from dray.messages.decisions import (
    AnyRecord,
    Opened,
    decode_record,
    encode_record,
    log_stream,
)
from dray.messages.facts import DomainObserved, Fact
from dray.recording.lines import FactLine, Header, Line, RecordLine, StreamLine, WholeLine

START_UNIX_S = 1_700_000_000.0


@dataclass(slots=True)
class RecordedLog:
    """A decision log; every append names its predecessor."""

    epoch: int
    records: list[AnyRecord] = field(default_factory=list)
    last: object = None


class SimulatedBus:
    """The content of the bus, and a recorder's lines from ``begin_recording`` on."""

    def __init__(self) -> None:
        self.now_unix_s = START_UNIX_S
        self.facts: list[Fact] = []
        self.replaced: dict[int, int] = {}
        """Sequence of a fact, and of the one that replaced it."""
        self.logs: dict[str, RecordedLog] = {}
        self.lines: list[Line] = []
        self._stored_unix_s: list[float] = []
        self._newest: dict[str, int] = {}
        self._recording = False

    def publish(self, fact: Fact) -> None:
        """Publish a fact, which replaces the last one of its object."""
        self.facts.append(fact)
        self._stored_unix_s.append(self.now_unix_s)
        sequence = len(self.facts)
        subject = encode(fact, source="", now_unix_s=0.0).subject
        if subject in self._newest:
            self.replaced[self._newest[subject]] = sequence
        self._newest[subject] = sequence
        if self._recording:
            self.lines.append(self.fact_line(sequence))

    def fact_line(self, sequence: int) -> FactLine:
        """A recorder's line of a fact."""
        message = encode(self.facts[sequence - 1], source="", now_unix_s=0.0)
        raw = msgspec.Raw(message.payload)
        stored = self._stored_unix_s[sequence - 1]
        return FactLine(sequence=sequence, subject=message.subject, time_unix_s=stored, payload=raw)

    def store(self, domain: str, record: AnyRecord) -> None:
        """Add a record to its log."""
        log = self.logs[domain]
        log.records.append(decode_record(encode_record(record)))
        if self._recording:
            self.lines.append(self.record_line(domain, len(log.records)))

    def record_line(self, domain: str, sequence: int) -> RecordLine:
        """A recorder's line of a record."""
        log = self.logs[domain]
        raw = msgspec.Raw(encode_record(log.records[sequence - 1]))
        return RecordLine(
            domain=domain,
            epoch=log.epoch,
            sequence=sequence,
            time_unix_s=self.now_unix_s,
            payload=raw,
        )

    def begin_recording(self) -> None:
        """Write a recorder's first lines: the current facts and the logs."""
        self._recording = True
        streams = {log_stream(name, log.epoch): "" for name, log in self.logs.items()}
        self.lines.append(
            Header(
                dray="simulated",
                domains=tuple(self.logs),
                streams={FACTS_STREAM: "", **streams},
                recorded_unix_s=self.now_unix_s,
            )
        )
        left = [n for n in range(1, len(self.facts) + 1) if n not in self.replaced]
        self.lines += [self.fact_line(sequence) for sequence in left]
        self.lines.append(WholeLine(sequence=len(self.facts)))
        for name, log in self.logs.items():
            self.lines += [self.record_line(name, n + 1) for n in range(len(log.records))]

    def open(self, domain: str, epoch: int) -> None:
        """Create a new epoch's log, then announce it."""
        self.logs[domain] = RecordedLog(epoch)
        if self._recording:
            self.lines.append(StreamLine(name=log_stream(domain, epoch), created=""))
        opened = Opened(
            domain=domain,
            epoch=epoch,
            writer="claim-controller",
            facts_sequence=len(self.facts),
            now_unix_s=self.now_unix_s,
        )
        self.store(domain, opened)
        self.publish(DomainObserved(revision=epoch, domain=domain, epoch=epoch))
