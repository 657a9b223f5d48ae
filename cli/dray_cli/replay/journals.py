"""Replays services' journals: folds recorded events, and asks recorded questions again.

Each life of a service is replayed by itself, from its first line or from a line with everything
that the service knew.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from dray.api import json_codec
from dray.api.json_codec import canonical
from dray.messages.base import decode, subject_prefix
from dray.messages.inputs import AgentNoted, ControllerNoted, Noted
from dray.recording.journal import UnknownEventError
from dray.recording.lines import InputLine, Line
from dray_claim_controller.journal_replayer import QUESTIONS as CONTROLLER_QUESTIONS
from dray_claim_controller.journal_replayer import JournalReplayer as ControllerJournalReplayer
from dray_cli.replay.answer_difference import AnswerDifference, Events
from dray_cli.replay.other_versions import version_errors
from dray_cli.replay.outcome import ReplayOutcome, ReplayTally
from dray_node_agent.decisions.rules import RULES as AGENT_RULES
from dray_node_agent.decisions.rules import replay_rule

_ANYTHING = msgspec.json.Decoder[Any]()
_WHOLE = msgspec.json.Decoder(dict[str, Any])


class Life(Protocol):
    """A service's pure code, which starts without any state."""

    def know(self, data: Any) -> None:
        """Take everything that was consumed before, in one piece."""

    def consume(self, about: str, data: Any) -> None:
        """Fold an event. Raises UnknownEventError."""

    def decide(self, about: str, data: Any) -> Any:
        """The answer that this code gives."""


class _Agent:
    """A node-agent: its questions contain everything that the answers depend on."""

    def know(self, data: Any) -> None:
        """See ``Life``."""

    def consume(self, about: str, data: Any) -> None:
        """See ``Life``."""
        raise UnknownEventError(about)

    def decide(self, about: str, data: Any) -> Any:
        """See ``Life``."""
        return replay_rule(about, data)


@dataclass(frozen=True, slots=True)
class JournalKind:
    """A service that keeps a journal."""

    message: type[Noted]
    begin: Callable[[], Life]
    questions: frozenset[str]
    remembers: bool
    """Whether answers depend on what was consumed before."""

    @property
    def service(self) -> str:
        """The service's name."""
        return self.message.NAME


_KINDS = (
    JournalKind(ControllerNoted, ControllerJournalReplayer, frozenset(CONTROLLER_QUESTIONS), True),
    JournalKind(AgentNoted, _Agent, frozenset(AGENT_RULES), False),
)


def replay_journals(lines: Sequence[Line], outcome: ReplayOutcome) -> None:
    """Ask every recorded question again, for each service up to the first different answer.

    Raises:
        BadRecordingError: a line is not from a journal.
    """
    for kind in _KINDS:
        tally = outcome.services[kind.service]
        for life in _lives(lines, kind):
            _JournalReplay(kind, outcome, tally).run(life)
            if tally.divergence is not None:
                break


class _JournalReplay:
    """The replay of one life of a service."""

    def __init__(self, kind: JournalKind, outcome: ReplayOutcome, tally: ReplayTally) -> None:
        self._kind = kind
        self._outcome = outcome
        self._tally = tally
        self._life: Life = kind.begin()
        self._knows = not kind.remembers
        self._events = Events()

    def run(self, lines: Sequence[Noted]) -> None:
        """Fold and compare until the life ends, or an answer differs."""
        expected = 1
        for first, line in _joined(lines):
            if first == 1:
                self._knows = True
            elif first != expected and self._kind.remembers and line.what != "known":
                self._knows = False
            expected = line.number + 1
            if line.what == "known":
                self._know(line)
            elif line.what == "consumed":
                self._consume(line)
            elif line.what == "decided" and not self._compare(line):
                return

    def _know(self, line: Noted) -> None:
        if self._knows:
            # For a recording that begins here; otherwise it equals the applied state.
            return
        with self._fitting(line):
            self._life.know(line.data)
        self._knows = True

    def _consume(self, line: Noted) -> None:
        if not self._knows:
            return
        try:
            with self._fitting(line):
                self._life.consume(line.about, line.data)
                self._events.add(line)
        except UnknownEventError as error:
            self._outcome.unknown[f"{self._kind.service} event {error}"] += 1
            self._knows = False
            return
        self._tally.consumed += 1

    def _compare(self, line: Noted) -> bool:
        if line.about not in self._kind.questions:
            self._outcome.unknown[f"{self._kind.service} question {line.about!r}"] += 1
            return True
        if not self._knows:
            self._tally.uncovered += 1
            return True
        with self._fitting(line):
            made = self._life.decide(line.about, line.data)
        if canonical(made) == canonical(line.answer):
            self._tally.compared[line.about] += 1
            return True
        again = json_codec.decode(msgspec.json.encode(made), _ANYTHING)
        self._tally.divergence = AnswerDifference(self._kind.service, line, again, self._events)
        return False

    def _fitting(self, line: Noted) -> AbstractContextManager[None]:
        what = {"decided": "question", "consumed": "event"}.get(line.what, line.what)
        about = f" ({line.about})" if line.about else ""
        return version_errors(
            f"{what} {line.number}{about} of {self._kind.service} {line.instance!r}"
        )


def _lives(lines: Sequence[Line], kind: JournalKind) -> Iterator[list[Noted]]:
    prefix = f"{subject_prefix(kind.message)}."
    found: dict[tuple[str, str], list[Noted]] = {}
    for line in lines:
        if isinstance(line, InputLine) and line.subject.startswith(prefix):
            with version_errors(f"input {line.sequence} ({line.subject})"):
                noted = decode(bytes(line.payload), kind.message)
            found.setdefault((noted.instance, noted.life), []).append(noted)
    for life in found.values():
        yield sorted(life, key=lambda noted: noted.number)


def _joined(lines: Sequence[Noted]) -> Iterator[tuple[int, Noted]]:
    """Every line, joined if it came in parts, with the number of its first part.

    If parts are missing, the line's other parts are left out: the numbers then show a gap.
    """
    parts: list[Noted] = []
    for line in lines:
        if parts and line.number != parts[-1].number + 1:
            parts = []
        first = parts[0].number if parts else line.number
        if line.what == "part":
            parts.append(line)
            continue
        if parts:
            whole, parts = "".join(part.data for part in parts), []
            try:
                line = msgspec.structs.replace(line, **json_codec.decode(whole.encode(), _WHOLE))
            except (msgspec.DecodeError, TypeError):
                continue  # Incomplete parts: here, too, the numbers show a gap.
        yield first, line
