"""Decodes JSON whose opaque parts may be nested to any depth. Pure.

The API server stores opaque parameters, and managed fields, up to 10 000 levels deep and hands them
out as they were sent. msgspec recurses: from some depth on, which differs between versions of
Python, threads and call stacks, it raises RecursionError or ends the process. So nothing deeper
than ``MAX_NESTING`` is ever given to it: containers below that level stay as text, a
``msgspec.Raw``, which is encoded unchanged. Nothing that dray reads is nested that deep.

Ten kilobytes of opaque parameters may hold thousands of containers, each of which costs time in
every pass over the object. ``opaque_parts`` finds the parameters that hold more than
``MOST_CONTAINERS``; ``decode`` keeps what it found as text, too.

The API server also hands out invalid UTF-8 and half surrogates in opaque parameters. They are read
as U+FFFD, as every client written in Go reads them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate, compress
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
MAX_NESTING: Final = 250
"""Levels of containers that are decoded: more than any object without opaque parts has, and few
enough for small stacks and recursive code."""

MOST_CONTAINERS: Final = 128
"""Containers in the opaque parameters of one driver that are decoded; if there are more, all of
them stay as text. Scalars are always decoded."""

Part = tuple[int, int, Any]
"""Begin and end of a container in the data, and its replacement."""

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
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_USUAL_LEVELS: Final = 5
_VALUES: Final = rb'(?:[^"{}\[\]]++|' + _STRING + b"|%b){0,256}+"
_FLAT: Final = rb"[{\[]" + _VALUES % b"(?!)" + rb"[}\]]"
_SHALLOW: Final = reduce(
    lambda inner, _: rb"[{\[]" + _VALUES % inner + rb"[}\]]", range(_USUAL_LEVELS), _FLAT
)
_NAME: Final = b'"parameters"'
_PARAMETERS: Final = re.compile(
    rb'"parameters"(?<=[{,\s]"parameters")\s*+:\s*+(?!%b)(?=\{)((?:%b)?+)' % (_FLAT, _SHALLOW),
    re.DOTALL,
)
"""Parameters with containers in them; in group 1 themselves, if they are small and not deep."""
_WHOLE_STRINGS: Final = re.compile(rb'(?:[^"]++|' + _STRING + rb")*+", re.DOTALL)
_READ_AT_ONCE_BYTES: Final = 1024
_ANYTHING: Final = msgspec.json.Decoder[Any]()


def decode(
    data: bytes,
    decoder: msgspec.json.Decoder[T],
    *,
    nesting: int = MAX_NESTING,
    opaque: Iterable[Part] = (),
) -> T:
    """The value of ``decoder``'s type; containers more than ``nesting`` deep as ``msgspec.Raw``.

    ``opaque``: what ``opaque_parts`` found in the data, to be taken as it is.

    Raises:
        msgspec.DecodeError: the data is no JSON, or does not fit the type.
    """
    if parts := list(opaque):
        return msgspec.convert(_decoded(data, nesting, parts), decoder.type)
    if not _may_be_deeper(data, nesting):
        try:
            return decoder.decode(data)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # Malformed, or text that is no Unicode.
    return msgspec.convert(_decoded(data, nesting, []), decoder.type)


def opaque_parts(data: bytes) -> Iterator[Part]:
    """Each ``parameters`` that holds more than ``MOST_CONTAINERS``, with these as ``msgspec.Raw``.

    Each step takes about as long as reading 10 KiB of brackets, the most that Kubernetes stores in
    one ``parameters``: what decodes much may wait between steps.

    Raises:
        msgspec.DecodeError: the data is no JSON.
    """
    end = 0
    while (at := data.find(_NAME, end)) >= 0:
        end = at + len(_NAME)
        if (found := _PARAMETERS.match(data, at)) is None:
            continue
        if found[1] and found[1].count(b"{") + found[1].count(b"[") <= MOST_CONTAINERS:
            end = found.end()
            continue
        begin = found.start(1)
        positions, depths = _brackets_of(data, begin)
        end = positions[-1] + 1
        if len(positions) // 2 > MOST_CONTAINERS:
            yield begin, end, _with_texts(data, positions, depths)


def _brackets_of(data: bytes, begin: int) -> tuple[list[int], list[int]]:
    """Of each bracket of the container that begins there: where it is, and the depth after it."""
    positions: list[int] = []
    depths: list[int] = []
    size = _READ_AT_ONCE_BYTES
    while True:
        whole = _WHOLE_STRINGS.match(data, begin, begin + size)
        end = whole.end() if whole else begin
        if end > begin:
            text = _TO_STRING_WITH_BRACKETS.sub(_without_string, data[begin:end])
            steps = memoryview(text.translate(_STEPS, _OTHERS)).cast("b")
            here = list(accumulate(steps, initial=depths[-1] if depths else 0))[1:]
            positions += compress(range(begin, end), text.translate(_IS_BRACKET))
            if 0 in here:
                depths += here[: here.index(0) + 1]
                return positions[: len(depths)], depths
            depths += here
            begin = end
        elif begin + size < len(data):
            size *= 2
        else:
            raise msgspec.DecodeError("JSON is malformed: a bracket is not closed")


def _with_texts(data: bytes, positions: Sequence[int], depths: Sequence[int]) -> Any:
    """The container of which these are the brackets; those in it are ``msgspec.Raw``."""
    kept: list[msgspec.Raw] = []
    shallow: list[bytes] = []
    whole = data[positions[0] : positions[-1] + 1]
    text = msgspec.Raw if bytes(_text(whole)) == whole else _text
    copied, bracket = positions[0], 1
    while bracket < len(depths) - 1:
        last = depths.index(1, bracket)
        begin, end = positions[bracket], positions[last] + 1
        shallow += (data[copied:begin], b"[%d]" % len(kept))
        kept.append(text(data[begin:end]))
        copied, bracket = end, last + 1
    shallow.append(data[copied : positions[-1] + 1])
    value = _ANYTHING.decode(_readable(b"".join(shallow)))
    return {key: kept[one[0]] if isinstance(one, list) else one for key, one in value.items()}


def checked(value: T, decoder: msgspec.json.Decoder[T]) -> T:
    """The value, after a check that its fields have the types of their annotations.

    Raises:
        msgspec.ValidationError: it is not; other errors of ``msgspec.json.encode``.
    """
    data = msgspec.json.encode(value)
    if next(opaque_parts(data), None) is None:
        decode(data, decoder)
    else:
        msgspec.convert(msgspec.to_builtins(value, enc_hook=_opaque), decoder.type)
    return value


def _opaque(value: object) -> Any:
    """Placeholder of a ``msgspec.Raw``: fits no type but ``object``."""
    if isinstance(value, msgspec.Raw):
        return {0: None}
    raise TypeError(f"{type(value).__name__} is no JSON")


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
    """The data with U+FFFD in place of invalid Unicode."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    if b"\\u" in data:
        data = _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], data)
    return data


def _decoded(data: bytes, nesting: int, parts: Sequence[Part]) -> Any:
    """The data with the parts, decoded down to ``nesting``; deeper ones are ``msgspec.Raw``."""
    rest = _replaced(data, parts, [b" " * (end - begin) for begin, end, _ in parts])
    if not parts or _may_be_deeper(rest, nesting):
        deeper = _deeper_parts(rest, nesting)
        deep = [(begin, end, _text(data[begin:end])) for begin, end in deeper]
        parts = _outermost([*parts, *deep])
    mark = hashlib.sha256(data).hexdigest()  # No string of the data can be it.
    named = {f"{mark}.{number}": value for number, (_, _, value) in enumerate(parts)}
    shallow = _replaced(data, parts, [f'"{name}"'.encode() for name in named])
    value = _ANYTHING.decode(_readable(shallow))
    return _put_back(value, named) if named else value


def _replaced(data: bytes, parts: Sequence[Part], texts: Sequence[bytes]) -> bytes:
    """The data with the texts in place of the parts."""
    pieces: list[bytes] = []
    copied = 0
    for (begin, end, _), text in zip(parts, texts, strict=True):
        pieces += (data[copied:begin], text)
        copied = end
    return b"".join((*pieces, data[copied:]))


def _outermost(parts: Iterable[Part]) -> list[Part]:
    """The parts that are in no other, in order."""
    found: list[Part] = []
    for part in sorted(parts, key=itemgetter(0)):
        if not found or part[0] >= found[-1][1]:
            found.append(part)
    return found


def _text(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(_on_one_line(_readable(data)))


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
    """A value as plain JSON, with a note in place of parts nested too deep: for people, and for
    consumers that accept plain JSON only."""
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
    """JSON with sorted keys: equal for equal values, wherever they were decoded. Below
    ``MAX_NESTING`` the order of keys counts."""
    same = decode(msgspec.json.encode(value), _ANYTHING)
    return msgspec.json.encode(same, order="deterministic")


def _put_back(value: Any, deep: dict[str, Any]) -> Any:
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
