"""Whether what a reader folded is a state that a stream of last values ever had.

Such a stream keeps the last message of every subject only. A reader that lags misses messages
that were replaced meanwhile: it sees a gap in the sequences, and what replaced the missing one
is still to come. Once it has read everything that was there when the gap was seen, its state is
that of a moment again.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class GapTracker:
    """Follows the sequences of one reader."""

    position: int = 0
    """Sequence of the last message read."""
    _still: int = 0
    """Messages still to be read before the state is whole."""

    def read(self, sequence: int, pending: int) -> tuple[int, int] | None:
        """Take the next message in, behind which ``pending`` more are waiting; the first and
        the last of those missing before it, or None."""
        due, self.position = self.position + 1, sequence
        if sequence > due:
            self._still = pending
            return due, sequence - 1
        if self._still:
            self._still = min(self._still - 1, pending)
        return None

    @property
    def whole(self) -> bool:
        """Whether what was read is the state of the stream at ``position``."""
        return self._still == 0
