"""Recordings as files: JSON Lines, compressed where the name ends in ``.gz``."""

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self, get_args

import msgspec

from dray.domain.errors import InvalidInputError
from dray.recording.lines import FORMAT, Header, KnownLine, Line, UnknownLine

_DECODER: msgspec.json.Decoder[KnownLine] = msgspec.json.Decoder(KnownLine)
_KINDS = {str(kind.__struct_config__.tag) for kind in get_args(KnownLine)}


class _AnyLine(msgspec.Struct):
    line: str


class BadRecordingError(InvalidInputError):
    """The file is no recording that this version can read."""


class Writer:
    """Writes line by line. Plain files can be read while they grow."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb")
        # Neither name nor time in the compressed file, so that equal recordings are equal files.
        self._gzip = gzip.GzipFile("", "wb", 9, self._file, 0) if path.suffix == ".gz" else None
        self.written = 0
        """Lines so far."""

    def write(self, line: Line) -> None:
        """Add a line."""
        text = msgspec.json.encode(line) + b"\n"
        if self._gzip is not None:
            self._gzip.write(text)
        else:
            self._file.write(text)
            self._file.flush()
        self.written += 1

    def close(self) -> None:
        """Finish the file."""
        if self._gzip is not None:
            self._gzip.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_recording(path: Path, lines: Iterable[Line]) -> None:
    """Write all lines. The same lines give the same bytes, compressed or not."""
    with Writer(path) as writer:
        for line in lines:
            writer.write(line)


def read_recording(path: Path) -> list[Line]:
    """All lines; the first is the header.

    Raises:
        BadRecordingError: no such file, or a line that can't be understood; it says which.
    """
    try:
        lines = list(_lines(path))
    except (OSError, EOFError) as error:
        raise BadRecordingError(f"the recording {path} can't be read: {error}") from error
    if not lines or not isinstance(lines[0], Header):
        raise BadRecordingError(
            f"{path} does not begin with a header; recordings are written by: dray record FILE"
        )
    if lines[0].format != FORMAT:
        raise BadRecordingError(
            f"{path} has format {lines[0].format} and was written by dray {lines[0].dray}; "
            f"this version reads format {FORMAT}: replay it with that version"
        )
    return lines


def _lines(path: Path) -> Iterator[Line]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                yield _DECODER.decode(text)
            except msgspec.MsgspecError as error:
                if (kind := _kind(text)) not in ("", *_KINDS):
                    yield UnknownLine(kind=kind)
                    continue
                cut = "" if text.endswith(b"\n") else "; the file was cut off there"
                raise BadRecordingError(f"{path}, line {number}: {error}{cut}") from error


def _kind(text: bytes) -> str:
    try:
        return msgspec.json.decode(text, type=_AnyLine).line
    except msgspec.MsgspecError:
        return ""
