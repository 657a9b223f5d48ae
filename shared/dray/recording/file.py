"""Recordings as files: JSON Lines, compressed if the name ends in ``.gz``."""

import gzip
import shlex
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self, get_args

import msgspec

from dray.api import json_codec
from dray.api.errors import InvalidInputError
from dray.recording.lines import FORMAT, Header, KnownLine, Line, UnknownLine

_DECODER: msgspec.json.Decoder[KnownLine] = msgspec.json.Decoder(KnownLine)
_KINDS = {str(kind.__struct_config__.tag) for kind in get_args(KnownLine)}
_GZIP_MAGIC = b"\x1f\x8b"
_WRITTEN_BY = "recordings are written by: dray record FILE"


class _AnyLine(msgspec.Struct):
    line: str


_ANY_LINE = msgspec.json.Decoder(_AnyLine)


class BadRecordingError(InvalidInputError):
    """The file is not a recording of this version, or can't be written."""


class Writer:
    """Writes line by line. Plain files can be read while they grow.

    Raises:
        BadRecordingError: the file can't be created or written, for example on a full disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._writing():
            self._file: IO[bytes] = path.open("wb")
        # No name and time in the gzip header, so that equal recordings are equal files.
        self._gzip = gzip.GzipFile("", "wb", 9, self._file, 0) if path.suffix == ".gz" else None
        self.written = 0
        """Number of lines so far."""

    def write(self, line: Line) -> None:
        """Add a line."""
        text = msgspec.json.encode(line) + b"\n"
        with self._writing():
            if self._gzip is not None:
                self._gzip.write(text)
            else:
                self._file.write(text)
                self._file.flush()
        self.written += 1

    def close(self) -> None:
        """Finish the file."""
        with self._writing(), self._file:
            if self._gzip is not None:
                self._gzip.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadRecordingError(
                f"the recording {self._path} can't be written: {error.strerror or error}; "
                "name a file in a folder that exists and has room"
            ) from error

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
    """All lines. The first is the header. Compressed files are recognized by their content.

    Raises:
        BadRecordingError: there is no such file, or a line can't be understood; it names the line.
    """
    lines: list[Line] = []  # Keeps the lines read so far if the file ends too early.
    try:
        lines.extend(_lines(path))
    except EOFError as error:
        raise BadRecordingError(f"{path} was cut off; {_rescue(path, len(lines))}") from error
    except (OSError, zlib.error) as error:
        raise BadRecordingError(f"the recording {path} can't be read: {error}") from error
    if not lines or not isinstance(lines[0], Header):
        raise BadRecordingError(f"{path} does not begin with a header; {_WRITTEN_BY}")
    if lines[0].format != FORMAT:
        raise BadRecordingError(
            f"{path} has format {lines[0].format} and was written by dray {lines[0].dray}; "
            f"this version reads format {FORMAT}: replay it with that version"
        )
    return lines


def _lines(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        compressed = file.peek(2).startswith(_GZIP_MAGIC)
        text = gzip.GzipFile(fileobj=file) if compressed else file
        for number, line in enumerate(text, 1):
            yield _decoded(path, number, line)


def _decoded(path: Path, number: int, text: bytes) -> Line:
    try:
        return _line(text)
    except msgspec.MsgspecError as error:
        if (kind := _kind(text)) not in ("", *_KINDS):
            return UnknownLine(kind=kind)
        where = f"{path}, line {number}"
        if number == 1:
            raise BadRecordingError(f"{where}: no header: {error}; {_WRITTEN_BY}") from error
        if not text.endswith(b"\n"):
            advice = _rescue(path, number - 1)
            raise BadRecordingError(f"{where}: the file was cut off there; {advice}") from error
        raise BadRecordingError(
            f"{where}: no line of a recording: {error}; was it edited? If not, take the copy again"
        ) from error


def _line(text: bytes) -> KnownLine:
    try:
        return _DECODER.decode(text)
    except RecursionError:
        # A payload is nested too deep. The line keeps it as text.
        return json_codec.decode(text, _DECODER, nesting=1)


def _rescue(path: Path, whole: int) -> str:
    """The remedy for a truncated file: its recorder was killed, or the disk was full."""
    if not whole:
        return "no line in it is complete: record again"
    name = shlex.quote(str(path))
    return (
        "the recorder was killed, or this is part of a copy; to replay the complete lines: "
        f"gzip -cdf {name} | head -n {whole} > whole.jsonl"
    )


def _kind(text: bytes) -> str:
    try:
        return json_codec.decode(text, _ANY_LINE).line
    except msgspec.MsgspecError:
        return ""
