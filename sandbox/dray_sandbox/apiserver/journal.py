"""The store's files: a snapshot and an append-only journal of JSON lines.

Every write is one line, passed to the operating system before the client gets its answer, so that
it survives `kill -9` (not a power loss: writes are not fsynced). An incomplete last line belongs to
a write without an answer and is dropped.
"""

import os
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec

from dray.api import json_codec

Line = dict[str, Any]
_LINE = msgspec.json.Decoder(Line)
_SNAPSHOT = "snapshot.jsonl"
_JOURNAL = "journal.jsonl"


class RequestJournal:
    """Files of one data directory; one writer at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._file: FileIO | None = None

    def snapshot(self) -> Iterator[Line]:
        """Lines of the snapshot: a head with the version, then one object per line."""
        yield from _lines(self._directory / _SNAPSHOT)

    def entries(self) -> Iterator[Line]:
        """Writes since the snapshot, oldest first; removes an incomplete last line."""
        yield from _lines(self._directory / _JOURNAL, repair=True)

    def restart(self, snapshot: Iterable[Line], entries: Iterable[Line]) -> None:
        """Replace both files and open the journal for appending.

        The snapshot is renamed into place first; journal entries that it already contains are
        recognised by their version when a crash comes between the two.
        """
        _replace(self._directory / _SNAPSHOT, snapshot)
        _replace(self._directory / _JOURNAL, entries)
        self._file = open(self._directory / _JOURNAL, "ab", buffering=0)  # noqa: SIM115

    def append(self, line: Line) -> None:
        """Pass one write to the operating system."""
        if self._file is None:
            raise RuntimeError("append() needs restart() first")
        rest = memoryview(msgspec.json.encode(line) + b"\n")
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _lines(path: Path, *, repair: bool = False) -> Iterator[Line]:
    if not path.exists():
        return
    good_bytes = 0
    with open(path, "rb") as file:
        for raw in file:
            try:
                line = json_codec.decode(raw, _LINE, nesting=json_codec.MAX_NESTING + 1)
            except msgspec.DecodeError:
                break
            if not raw.endswith(b"\n"):
                break
            good_bytes += len(raw)
            yield line
    if repair and path.stat().st_size > good_bytes:
        os.truncate(path, good_bytes)


def _replace(path: Path, lines: Iterable[Line]) -> None:
    new = path.with_suffix(".new")
    with open(new, "wb") as file:
        for line in lines:
            file.write(msgspec.json.encode(line) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
