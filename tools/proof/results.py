"""The results of a proof's commands, kept on disk: one JSON line for each that ended."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from dray.api.errors import PermanentError

_PROGRESS: Final = re.compile(r"[.sxFEX]*\s*\[\s*\d+%\]|make: .*|make\[\d+\]: .*")
"""Lines that say nothing about the outcome: pytest's dots, and make's notes about failures."""
_LAST_LINES: Final = 2
_LONGEST: Final = 300


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one command to its end."""

    command: str
    exit_code: int
    wall_s: float
    cpu_s: float
    ended_at: str
    """UTC, ISO 8601."""
    says: str
    """The last lines that it printed."""
    log: str


@dataclass(frozen=True, slots=True)
class Results:
    """The results of one tree."""

    file: Path

    def read(self) -> list[Result]:
        """All results, oldest first; none if nothing has ended yet.

        Raises:
            PermanentError: the file is not one that `add` wrote.
        """
        if not self.file.exists():
            return []
        try:
            lines = self.file.read_bytes().splitlines()
            return [msgspec.json.decode(line, type=Result) for line in lines]
        except msgspec.DecodeError as error:
            raise PermanentError(f"{self.file} can't be read ({error}): remove it") from error

    def add(self, result: Result) -> None:
        """Keep a result."""
        with self.file.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")


def last_words(log: Path) -> str:
    """The last output of a command, in one line."""
    lines = (line.strip() for line in log.read_text("utf-8", errors="replace").splitlines())
    telling = [line for line in lines if line and not _PROGRESS.fullmatch(line)]
    text = "; ".join(telling[-_LAST_LINES:]) or "it printed nothing"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
