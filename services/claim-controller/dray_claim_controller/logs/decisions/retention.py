"""How much of a decision log is kept, and which logs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dray.messages.facts import CheckpointPosition

_REMEMBERED = 8
"""How many evenly distributed checkpoints are remembered from the time that is kept."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a log is kept. Its last two checkpoints always are."""

    keep_for_s: float
    """Age of the records that people may still ask for."""
    keep_bytes: int
    """A larger log is trimmed, whatever its age."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is to be kept of a log."""

    checkpoints: tuple[CheckpointPosition, ...]
    """The checkpoints to be remembered, oldest first."""
    first_sequence: int
    """The sequence of the first record that is kept: a checkpoint's, or 1."""


def kept(
    checkpoints: Sequence[CheckpointPosition], size_bytes: int, now_unix_s: float, keep: Retention
) -> Kept:
    """What is to be kept of a log that has these complete checkpoints, oldest first."""
    before, last_two = list(checkpoints[:-2]), list(checkpoints[-2:])
    if len(last_two) < 2:
        return Kept(tuple(checkpoints), 1)
    if size_bytes > keep.keep_bytes:
        return Kept(tuple(last_two), last_two[0].sequence)
    candidates = [*before, last_two[0]]
    old = [one for one in candidates if now_unix_s - one.now_unix_s >= keep.keep_for_s]
    first = old[-1:]
    remembered = first.copy()
    for one in candidates[len(old) : -1]:
        apart_s = one.now_unix_s - remembered[-1].now_unix_s if remembered else keep.keep_for_s
        if apart_s >= keep.keep_for_s / _REMEMBERED:
            remembered.append(one)
    remembered += [one for one in last_two if one not in remembered]
    return Kept(tuple(remembered), first[0].sequence if first else 1)


def is_over(epoch: int, current: int) -> bool:
    """Whether nobody needs the log of an epoch: only the current one and the one before it are
    kept. ``current``: 0 while the domain's epoch is unknown."""
    return 0 < epoch < current - 1
