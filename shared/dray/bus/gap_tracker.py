"""Whether a reader's state is a state that its last-value stream really had.

Such a stream keeps only the last message of each subject. A reader that lags misses replaced
messages: it sees a gap in the sequences, and the replacement comes later. After it has read all
messages that the stream held when the gap appeared, its state is consistent again.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class GapTracker:
    """Tracks the sequences of one reader."""

    position: int = 0
    """Sequence of the last message read."""
    _still: int = 0
    """Number of messages to read before the state is consistent."""

    def read(self, sequence: int, pending: int) -> tuple[int, int] | None:
        """Count the next message, which ``pending`` more messages follow. Returns the first and
        last missing sequence before it, or None."""
        due, self.position = self.position + 1, sequence
        if sequence > due:
            self._still = pending
            return due, sequence - 1
        if self._still:
            self._still = min(self._still - 1, pending)
        return None

    @property
    def whole(self) -> bool:
        """Whether the messages read so far are the state of the stream at ``position``."""
        return self._still == 0
