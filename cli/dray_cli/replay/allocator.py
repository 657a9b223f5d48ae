"""Decides the allocator's records again, each from the facts that its writer had applied.

Facts and records of one log determine every decision in it, so each log is replayed by itself.
A record is compared only if the recording has the facts step by step; others are only folded.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from dray.api.json_codec import canonical
from dray.messages.decisions import AnyRecord, Decided, Opened
from dray.recording.file import BadRecordingError
from dray.recording.lines import Line, RecordLine
from dray_allocator.core.handle import handle, recompute, scores_before
from dray_allocator.service.facts_consumer import decoded_fact
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen
from dray_allocator.values.options import AllocatorOptions
from dray_cli.replay.difference import Divergence
from dray_cli.replay.other_logs import OtherLogs
from dray_cli.replay.other_versions import version_errors
from dray_cli.replay.outcome import ReplayOutcome, ReplayTally
from dray_cli.replay.timeline import LogTimeline, delivered, records, timeline
from dray_cli.scores import FoundScores


def replay_records(lines: Sequence[Line], outcome: ReplayOutcome) -> None:
    """Decide every record again; stops at the first that differs.

    Raises:
        BadRecordingError: settings in a record, or a fact, don't fit this version.
    """
    tally = outcome.services["allocator"]
    logs = timeline(lines)
    for log in logs:
        others = [other for other in logs if other.domain != log.domain]
        _Replay(log, tally, OtherLogs(others)).run()
        if tally.divergence is not None:
            break


def recorded_scores(lines: Sequence[Line], namespace: str, name: str) -> FoundScores | None:
    """The scores at the pod's last decision in a recording; None if there is no decision.

    Raises:
        BadRecordingError: settings in a record, or a fact, don't fit this version.
    """
    found: list[FoundScores] = []
    for log in timeline(lines):
        replay = _Replay(log, ReplayTally(), OtherLogs([]))

        def look(line: RecordLine, record: AnyRecord, replay: _Replay = replay) -> bool:
            found.extend(replay.scores(line, record, (namespace, name)))
            return True

        replay.run(look)
    return found[-1] if found else None


class _Replay:
    """One log and the state that follows from it."""

    def __init__(self, log: LogTimeline, outcome: ReplayTally, elsewhere: OtherLogs) -> None:
        self._elsewhere = elsewhere
        self._log = log
        self._state = AllocatorState(_first_options(log))
        self._outcome = outcome
        self._ahead = iter(log.facts.lines)
        self._next = next(self._ahead, None)
        self._waiting: list[tuple[RecordLine, AnyRecord]] = []
        """Records read, but not folded yet."""

    def run(self, visit: Callable[[RecordLine, AnyRecord], bool] | None = None) -> None:
        """Fold the log until its end, or until ``visit`` returns False. ``visit`` gets each record
        before it is folded; the default compares records until one differs."""
        for line, record in records(self._log):
            self._fold_facts(record.facts_sequence)
            self._fold_records()
            if not (visit or self._compare)(line, record):
                return
            self._waiting.append((line, record))

    def scores(
        self, line: RecordLine, record: AnyRecord, of: tuple[str, str]
    ) -> Iterator[FoundScores]:
        """The scores of the pod with the namespace and name ``of``, if the record decides it."""
        if not isinstance(record, Decided) or not self._is_open():
            return
        self._state.options = _options_of(line, record)
        when = f"when it was decided (record {line.sequence} of pool {line.domain})"
        for decision in record.pods:
            if (decision.namespace, decision.name) == of:
                scores = scores_before(self._state, record, decision.pod_uid)
                yield FoundScores(scores, decision.node, when)

    def _fold_facts(self, up_to: int) -> None:
        while self._next is not None and self._next.sequence <= up_to:
            line = self._next
            with version_errors(f"fact {line.sequence}"):
                fact = decoded_fact(delivered(line), self._state.options.drivers)
            if fact is not None:
                handle(self._state, FactSeen(line.sequence, fact, more=True))
            self._next = next(self._ahead, None)

    def _fold_records(self) -> None:
        """Fold the waiting records, if the facts have announced their log."""
        if not self._is_open():
            return
        for line, record in self._waiting:
            seen = RecordSeen(line.domain, line.epoch, line.sequence, record, more=True)
            handle(self._state, seen)
        self._waiting.clear()

    def _is_open(self) -> bool:
        domain = self._state.domains.get(self._log.domain)
        return domain is not None and domain.epoch == self._log.epoch

    def _knows_all_before(self, line: RecordLine) -> bool:
        """Whether all earlier records are known: none is trimmed, or a checkpoint has them all."""
        domain = self._state.domains.get(line.domain)
        if domain is None or not self._is_open():
            return True
        return domain.current.is_whole and line.sequence == domain.current.sequence + 1

    def _compare(self, line: RecordLine, record: AnyRecord) -> bool:
        facts, outcome = self._log.facts, self._outcome
        early = isinstance(record, Opened) or record.facts_sequence < facts.begins()
        if early or not self._knows_all_before(line):
            outcome.folded += 1
            return True
        if not facts.covers(record.facts_sequence):
            outcome.uncovered += 1
            return True
        if self._elsewhere.may_count(self._state, line.domain):
            outcome.entangled += 1
            return True
        self._state.options = _options_of(line, record)
        made = recompute(self._state, record) if self._is_open() else None
        if made is not None and canonical(made) == canonical(record):
            outcome.compared[_kind_of(record)] += 1
            return True
        outcome.divergence = Divergence(line, record, made, facts.lines)
        return False


def _kind_of(record: AnyRecord) -> str:
    """The record's kind: ``decided``, ``waiting``, …"""
    return str(type(record).__struct_config__.tag)


def _options_of(line: RecordLine, record: AnyRecord) -> AllocatorOptions:
    """The settings with which a record was written: those in the record, else the defaults.

    Raises:
        BadRecordingError: this version does not have such settings.
    """
    try:
        return msgspec.convert(record.settings, AllocatorOptions)
    except msgspec.ValidationError as error:
        raise BadRecordingError(
            f"the settings in record {line.sequence} of {line.domain!r}, epoch {line.epoch}, "
            f"don't fit the allocator: {error}"
        ) from error


def _first_options(log: LogTimeline) -> AllocatorOptions:
    """The options in the first record of an allocator: the drivers of a state do not change."""
    for line, record in records(log):
        if not isinstance(record, Opened):
            return _options_of(line, record)
    return AllocatorOptions()
