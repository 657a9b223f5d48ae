"""All that a recording holds, replayed service by service: each by itself, from its inputs."""

from collections.abc import Sequence

from dray.messages.base import subject_prefix
from dray.messages.inputs import INPUTS
from dray.recording.lines import FactLine, InputLine, Line, UnknownLine
from dray_cli.replay.allocator import replay_records
from dray_cli.replay.journals import replay_journals
from dray_cli.replay.outcome import Outcome
from dray_cli.replay.webhook import replay_reviews

_KNOWN = tuple(f"{subject_prefix(kind)}." for kind in INPUTS)


def replay(lines: Sequence[Line]) -> Outcome:
    """Decide everything again; of each service, up to the first decision that differs.

    Raises:
        BadRecordingError: a line that does not fit this version; it says which.
    """
    outcome = Outcome(facts=sum(isinstance(line, FactLine) for line in lines))
    for line in lines:
        if isinstance(line, UnknownLine):
            outcome.unknown[f"line {line.kind!r}"] += 1
        elif isinstance(line, InputLine) and not line.subject.startswith(_KNOWN):
            outcome.unknown[f"input {'.'.join(line.subject.split('.')[2:4])!r}"] += 1
    replay_reviews(lines, outcome)
    replay_journals(lines, outcome)
    replay_records(lines, outcome)
    return outcome
