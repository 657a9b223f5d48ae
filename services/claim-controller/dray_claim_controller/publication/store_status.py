"""Whether NATS stores what is published."""

from typing import Final

import structlog

from dray.api.errors import DrayError
from dray.runtime.clock import Clock

_REPORT_AFTER_S: Final = 5.0
"""Longer than a nats-server needs to start again."""


class StoreStatus:
    """Reports that NATS has stored nothing for some seconds: it is away, or its disk is full.

    Reading goes on without a disk, so nothing else shows it. nats-server 2.15 refuses all further
    messages of a stream after one could not be written, until it is started again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored_at_s = clock.monotonic_s()
        self._error: DrayError | None = None
        self._is_logged = False

    @property
    def problem(self) -> str | None:
        """Why nothing is stored, and since when; None: something was stored lately."""
        since_s = self._clock.monotonic_s() - self._stored_at_s
        if self._error is None or since_s < _REPORT_AFTER_S:
            return None
        return (
            f"NATS has stored no fact for {since_s:.0f} s ({self._error}), and nothing is decided "
            "meanwhile; if nats-server runs, see in its log whether its disk is full: free some "
            "space, then restart nats-server, which stores nothing until then"
        )

    def stored(self) -> None:
        """A message was stored."""
        if self._is_logged:
            structlog.get_logger().info("NATS stores facts again")
        self._stored_at_s = self._clock.monotonic_s()
        self._error, self._is_logged = None, False

    def failed(self, error: DrayError) -> None:
        """A message was not stored."""
        self._error = error
        if not self._is_logged and (problem := self.problem) is not None:
            structlog.get_logger().error("NATS stores nothing", why=problem)
            self._is_logged = True
