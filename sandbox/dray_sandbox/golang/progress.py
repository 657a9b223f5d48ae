"""What a person who waits is told."""

import time
from collections.abc import Callable
from pathlib import Path

_FIRST_S, _LAST_S = 5.0, 30.0
_LATER = 0.15
"""The longer it takes, the more rarely it is said: after this part of the time so far."""


class Ticker:
    """Says what is going on and for how long: every 5 s at first, at last every 30 s."""

    def __init__(
        self,
        progress: Callable[[str], None],
        what: str,
        details: Callable[[], str] = lambda: "",
    ) -> None:
        self._progress = progress
        self._what = what
        self._details = details
        self._began = self._said = time.monotonic()

    def say(self) -> None:
        """Say it now, before any time has passed."""
        self._progress(self._what)

    def tick(self) -> None:
        """Say it if it was not said for a while."""
        now = time.monotonic()
        took_s = now - self._began
        if now - self._said >= min(max(_FIRST_S, took_s * _LATER), _LAST_S):
            self._said = now
            self._progress(f"{self._what}: {took_s:.0f} s so far{self._details()}")


def go_progress(log: Path) -> str:
    """How far the ``go build -v`` that writes ``log`` has come."""
    lines = log.read_text(errors="replace").splitlines()
    downloaded = sum(line.startswith("go: downloading ") for line in lines)
    compiled = sum(" " not in line for line in lines)
    said = ((downloaded, "modules downloaded"), (compiled, "packages compiled"))
    return "".join(f", {count} {what}" for count, what in said if count)
