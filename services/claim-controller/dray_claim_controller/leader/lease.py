"""How long this process may write as the leader, by its own clock."""

import math
from typing import Final

from dray.api.errors import TemporaryError
from dray.runtime.clock import Clock

MAX_WRITE_S: Final = 10.0
"""The longest time for which the server works on one write, whatever its admission webhooks do."""


class LeaseExpiredError(TemporaryError):
    """The Lease was not renewed in time: another one may lead now, so nothing may be written."""


class HeldLease:
    """The Lease as its holder knows it.

    It counts from the moment at which its last renewal was asked for, so it ends before anybody
    else may take it: others count from when they see the renewal. A process that was stopped and
    goes on finds it expired.
    """

    def __init__(self, clock: Clock, *, lease_s: float, renew_s: float) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._renewed_s = -math.inf

    def renewed(self, asked_s: float) -> None:
        """The server has stored a renewal that was asked for at ``asked_s`` (monotonic)."""
        self._renewed_s = max(self._renewed_s, asked_s)

    def give_up(self) -> None:
        """End the right to write."""
        self._renewed_s = -math.inf

    @property
    def deadline_s(self) -> float:
        """The time by which it must be renewed (monotonic)."""
        return self._renewed_s + self._renew_s

    def timeout_s(self) -> float:
        """How long the server may work on a write that is sent now.

        Call it after the read that fences the write, and right before the write. Then a process
        that has slept does not read again and go on, and its write is not carried out after the
        Lease is over. Raises LeaseExpiredError.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self.deadline_s:
            raise LeaseExpiredError(
                f"the Lease was last renewed {now_s - self._renewed_s:.1f} s ago, and must be "
                f"every {self._renew_s:g} s: nothing is written, because another one may lead now"
            )
        return min(MAX_WRITE_S, self._renewed_s + self._lease_s - now_s)
