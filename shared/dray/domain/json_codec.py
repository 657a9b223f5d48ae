"""Decodes JSON whose opaque parts may be nested to any depth. Pure.

The API server stores opaque parameters, and managed fields, up to 10 000 levels deep and hands them
out as they were sent. msgspec recurses: from some depth on, which differs between versions of
Python, threads and call stacks, it raises RecursionError or ends the process. So nothing deeper
than ``MAX_NESTING`` is ever given to it: containers below that level are kept as their own text, a
``msgspec.Raw``, which is encoded again as it is. Nothing that dray reads is nested that deep.

The API server also hands out invalid UTF-8 and half surrogates in opaque parameters. They are read
as U+FFFD, as every client written in Go reads them.
"""

import hashlib
import re
from collections.abc import Iterator
from itertools import accumulate, compress
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
MAX_NESTING: Final = 250
"""Containers within each other that are decoded: more than in any object without opaque parts, and
few enough for the smallest stacks and for code that recurses."""

_USUAL_NESTING: Final = 64
"""What is nested deeper is looked at more closely."""
_KEPT: Final = b'[]{}"'
_DROPPED: Final = bytes(byte for byte in range(256) if byte not in _KEPT)
_SIMPLE_STRING: Final = re.compile(rb'"[^"]*+"')
_TO_STRING_WITH_BRACKETS: Final = re.compile(
    rb'((?:[^"]++|"[^"\\\[\]{}]*+")*+)("(?:[^"\\]++|\\.)*+(?:"|\Z))?', re.DOTALL
)
_BRACKETS: Final = b"[]{}"
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_IS_BRACKET: Final = bytes(byte in _BRACKETS for byte in range(256))
_STEPS: Final = bytes({91: 1, 123: 1, 93: 255, 125: 255}.get(byte, 0) for byte in range(256))
"""By byte, how the depth changes there, as a signed byte."""
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape sequence; in group 1 half a pair of surrogates."""
_ANYTHING: Final = msgspec.json.Decoder[Any]()


def decode(data: bytes, decoder: msgspec.json.Decoder[T], *, nesting: int = MAX_NESTING) -> T:
    """The value of ``decoder``'s type; containers more than ``nesting`` deep as ``msgspec.Raw``.

    Raises:
        msgspec.DecodeError: the data is no JSON, or does not fit the type.
    """
    if not _may_be_deeper(data, nesting):
        try:
            return decoder.decode(data)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # Malformed, or text that is no Unicode.
    return msgspec.convert(_decoded(_readable(data), nesting), decoder.type)


def checked(value: T, decoder: msgspec.json.Decoder[T]) -> T:
    """The value, once it is sure that all in it is of the types that its class says.

    Raises:
        msgspec.ValidationError: it is not; other errors of ``msgspec.json.encode``.
    """
    decode(msgspec.json.encode(value), decoder)
    return value


def is_deeper(data: bytes, nesting: int) -> bool:
    """Whether containers are more than ``nesting`` deep within each other. Raises DecodeError."""
    return _may_be_deeper(data, nesting) and any(True for _ in _deeper_parts(data, nesting))


def _may_be_deeper(data: bytes, nesting: int) -> bool:
    """False if containers are surely not more than ``nesting`` deep within each other."""
    if data.count(b"{") + data.count(b"[") <= nesting:
        return False
    if b"\\" in data:
        if b"\\\\" in data:
            data = data.replace(b"\\\\", b"")
        data = data.replace(b'\\"', b"")
    brackets = data.translate(None, _DROPPED).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _SIMPLE_STRING.sub(b"", brackets)
    for _ in range(min(nesting, _USUAL_NESTING) // 2):
        # Takes the innermost containers away, and with them at most those around them.
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return bool(brackets)


def _readable(data: bytes) -> bytes:
    """The data with U+FFFD for what is no Unicode."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    if b"\\u" in data:
        data = _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], data)
    return data


def _decoded(data: bytes, nesting: int) -> Any:
    """The data decoded down to ``nesting``; deeper containers are ``msgspec.Raw``."""
    mark = hashlib.sha256(data).hexdigest()  # No string of the data can be it.
    deep: dict[str, msgspec.Raw] = {}
    shallow: list[bytes] = []
    copied = 0
    for begin, end in _deeper_parts(data, nesting):
        name = f"{mark}.{len(deep)}"
        deep[name] = msgspec.Raw(_on_one_line(data[begin:end]))
        shallow += (data[copied:begin], b'"', name.encode(), b'"')
        copied = end
    value = _ANYTHING.decode(b"".join((*shallow, data[copied:])))
    return _put_back(value, deep) if deep else value


def _deeper_parts(data: bytes, nesting: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the containers that are ``nesting`` deep in others."""
    data = _TO_STRING_WITH_BRACKETS.sub(_without_string, data)
    positions = list(compress(range(len(data)), data.translate(_IS_BRACKET)))
    steps = memoryview(data.translate(_STEPS, _OTHERS)).cast("b")
    is_deeper = bytes(map(nesting.__lt__, accumulate(steps)))
    end = 0
    while (begin := is_deeper.find(1, end)) >= 0:
        end = is_deeper.find(0, begin)
        if end < 0:
            raise msgspec.DecodeError("JSON is malformed: a bracket is not closed")
        yield positions[begin], positions[end] + 1


def _without_string(found: re.Match[bytes]) -> bytes:
    return found[1] + b" " * len(found[2] or b"")


def _on_one_line(data: bytes) -> bytes:
    """Line breaks are between tokens only: JSON has none in strings."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ")


def abridged(value: Any) -> Any:
    """A value as plain JSON, with a note in place of what is nested too deep: for people, and for
    what takes nothing else."""
    return _abridged(decode(msgspec.json.encode(value), _ANYTHING))


def _abridged(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _abridged(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_abridged(entry) for entry in value]
    if isinstance(value, msgspec.Raw):
        return f"({len(bytes(value))} bytes, nested more than {MAX_NESTING} levels deep)"
    return value


def canonical(value: Any) -> bytes:
    """JSON with the keys in order: equal for values that are equal, whatever they were part of when
    they were decoded. Below ``MAX_NESTING`` the order of keys counts."""
    same = decode(msgspec.json.encode(value), _ANYTHING)
    return msgspec.json.encode(same, order="deterministic")


def _put_back(value: Any, deep: dict[str, msgspec.Raw]) -> Any:
    """The value with its deeper parts in place of their names."""
    containers = [value]
    while containers:
        container = containers.pop()
        entries = container.items() if isinstance(container, dict) else enumerate(container)
        for key, entry in entries:
            if isinstance(entry, str) and entry in deep:
                container[key] = deep[entry]
            elif isinstance(entry, dict | list):
                containers.append(entry)
    return value
