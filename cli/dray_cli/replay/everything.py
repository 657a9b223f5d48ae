"""All that a recording holds, replayed: reviews first, then decisions."""

from collections.abc import Sequence

from dray.recording.lines import FactLine, InputLine, Line
from dray_cli.replay.allocator import replay_records
from dray_cli.replay.outcome import Outcome
from dray_cli.replay.webhook import replay_reviews


def replay(lines: Sequence[Line]) -> Outcome:
    """Decide everything again; stops at the first that differs.

    Raises:
        BadRecordingError: the settings in the header don't fit this version.
        UndecodableMessageError: a payload does not fit its type.
    """
    outcome = Outcome(
        facts=sum(isinstance(line, FactLine) for line in lines),
        inputs=sum(isinstance(line, InputLine) for line in lines),
    )
    replay_reviews(lines, outcome)
    if outcome.divergence is None:
        replay_records(lines, outcome)
    return outcome
