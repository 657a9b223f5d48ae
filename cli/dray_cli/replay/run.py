"""Replays a recording, each service separately from its inputs."""

from collections.abc import Sequence

from dray.messages.base import subject_prefix
from dray.messages.inputs import INPUTS
from dray.recording.lines import FactLine, InputLine, Line, UnknownLine
from dray_cli.replay.allocator import replay_records
from dray_cli.replay.journals import replay_journals
from dray_cli.replay.outcome import ReplayOutcome
from dray_cli.replay.webhook import replay_reviews

_KNOWN = tuple(f"{subject_prefix(kind)}." for kind in INPUTS)


def replay(lines: Sequence[Line]) -> ReplayOutcome:
    """Replay all decisions, for each service up to the first one that differs.

    Raises:
        BadRecordingError: a line that this version can't decode.
    """
    outcome = ReplayOutcome(facts=sum(isinstance(line, FactLine) for line in lines))
    for line in lines:
        if isinstance(line, UnknownLine):
            outcome.unknown[f"line {line.kind!r}"] += 1
        elif isinstance(line, InputLine) and not line.subject.startswith(_KNOWN):
            outcome.unknown[f"input {'.'.join(line.subject.split('.')[2:4])!r}"] += 1
    replay_reviews(lines, outcome)
    replay_journals(lines, outcome)
    replay_records(lines, outcome)
    return outcome
