"""Decodes JSON whose opaque parts may be nested to any depth. Pure.

The API server stores opaque parameters, and managed fields, up to 10 000 levels deep and hands them
out as they were sent. msgspec recurses: beyond some depth it raises RecursionError or ends the
process. The depth depends on the Python version, the thread and the call stack. So nothing deeper
than ``MAX_NESTING`` is ever passed to it: containers below that level stay as text, a
``msgspec.Raw``, which is encoded unchanged. dray reads nothing that is nested that deep.

Ten kilobytes of opaque parameters may hold thousands of containers, each of which costs time in
every pass over the object. ``opaque_parts`` finds the parameters that hold more than
``MOST_CONTAINERS``; ``decode`` keeps their containers as text, too.

If an object is nested that deep, its whole ``fieldsV1`` is kept as text before anything else is
examined: it may be most of the object, and nobody reads it.

The API server also hands out invalid UTF-8 and half surrogates in opaque parameters. They are read
as U+FFFD, as every client written in Go reads them. A number that Python can't represent, such as
1e400 or a number of 5 000 digits, is kept as text.
"""

import contextlib
import hashlib
import math
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate, compress, islice
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
MAX_NESTING: Final = 250
"""Levels of containers that are decoded. No object without opaque parts has more, and it is low
enough for small stacks and recursive code."""

MOST_CONTAINERS: Final = 128
"""Maximum number of containers that are decoded in the opaque parameters of one driver. If there
are more, all of them stay as text. Scalars are always decoded."""

Part = tuple[int, int, Any]
"""Begin and end of a container in the data, and its replacement."""

_USUAL_NESTING: Final = 32
"""Data that may be nested deeper is checked more closely."""
_KEPT: Final = b'[]{}"'
_DROPPED: Final = bytes(byte for byte in range(256) if byte not in _KEPT)
_SIMPLE_STRING: Final = re.compile(rb'"[^"]*+"')
_TO_STRING_WITH_BRACKETS: Final = re.compile(
    rb'((?>(?:[^"]++|"[^"\\\[\]{}]*+")*))("(?>(?:[^"\\]++|\\.)*)(?:"|\Z))?', re.DOTALL
)
_BRACKETS: Final = b"[]{}"
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_IS_BRACKET: Final = bytes(byte in _BRACKETS for byte in range(256))
_STEPS: Final = bytes({91: 1, 123: 1, 93: 255, 125: 255}.get(byte, 0) for byte in range(256))
"""For each byte, the change of the depth at it, as a signed byte."""
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape sequence. Group 1: a surrogate without its other half."""
_STRING: Final = rb'"(?>(?:[^"\\]++|\\.)*)"'
"""Atomic groups: in Python before 3.11.5 a possessive quantifier of a group with branches matches
the wrong text."""
_USUAL_LEVELS: Final = 5
_VALUES: Final = rb'(?>(?:[^"{}\[\]]++|' + _STRING + b"|%b){0,256})"
_FLAT: Final = rb"[{\[]" + _VALUES % b"(?!)" + rb"[}\]]"
_SHALLOW: Final = reduce(
    lambda inner, _: rb"[{\[]" + _VALUES % inner + rb"[}\]]", range(_USUAL_LEVELS), _FLAT
)
_NAME: Final = b'"parameters"'
_PARAMETERS: Final = re.compile(
    rb'"parameters"(?<=[{,\s]"parameters")\s*+:\s*+(?!%b)(?=\{)((?>(?:%b)?))' % (_FLAT, _SHALLOW),
    re.DOTALL,
)
"""Parameters that contain containers. Group 1: the parameters, if they are small and not deep."""
_WHOLE_STRINGS: Final = re.compile(rb'(?>(?:[^"]++|' + _STRING + rb")*)", re.DOTALL)
_READ_AT_ONCE_BYTES: Final = 1024
_FIELDS: Final = re.compile(
    rb'"fieldsV1"(?<=[{,\s]"fieldsV1")\s*+:\s*+((?>(?:[{},\s]++|'
    + _STRING
    + rb"\s*+:\s*+(?=\{))+))",
    re.DOTALL,
)
"""Group 1: the fields (nested objects), and maybe the brackets and commas after them."""
_AFTER_FIELDS: Final = b" \t\r\n,{"
_NUMBER: Final = re.compile(
    _STRING + rb"|(-?[0-9](?:[0-9.]*+[eE][+-]?+[0-9]++|[0-9.]{300,}+))", re.DOTALL
)
"""A string, or a number that may be out of range (group 1)."""
_MOST_NUMBERS: Final = 128
"""Maximum number of out-of-range numbers that are kept one by one in an object."""
_INNERMOST: Final = re.compile(
    _STRING + rb"|([{\[](?>(?:[^\"{}\[\]]++|" + _STRING + rb")*)[}\]])", re.DOTALL
)
_MAY_BE_LARGE: Final = re.compile(rb"[0-9.]{200}|[0-9.][eE][+-]?[0-9]{3}")
_OUT_OF_RANGE: Final = "out of range"
"""Part of msgspec's error about a number that Python can't represent."""
_ITEMS: Final = re.compile(rb'"items"\s*+:\s*+\[\s*+')
_BETWEEN: Final = re.compile(rb'\}(\s*+,\s*+)(?=\{\s*+"[a-zA-Z])')
"""The text between two objects. It is outside of strings: no letter can follow the end of a
string."""
_METADATA: Final = b'"metadata":{'
"""The text after it is outside of strings: no string can end before ``metadata``."""
_LEAST_STEP_BYTES: Final = 65_536
_ANYTHING: Final = msgspec.json.Decoder[Any]()


def decode(
    data: bytes,
    decoder: msgspec.json.Decoder[T],
    *,
    nesting: int = MAX_NESTING,
    opaque: Iterable[Part] = (),
    is_shallow: bool = False,
) -> T:
    """The value of ``decoder``'s type. Containers more than ``nesting`` deep are ``msgspec.Raw``.

    ``opaque``: the parts that ``opaque_parts`` found in the data; they are used unchanged.
    ``is_shallow``: the caller knows that nothing is nested that deep.

    Raises:
        msgspec.DecodeError: the data is not JSON, or does not fit the type.
    """
    if opaque and (parts := list(opaque)):
        return msgspec.convert(_decoded(data, nesting, parts), decoder.type)
    if is_shallow or not _may_be_deeper(data, nesting):
        try:
            return decoder.decode(data)
        except msgspec.ValidationError as error:
            if _OUT_OF_RANGE not in str(error):
                raise
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # Malformed, invalid Unicode, or deep fields that the type does not have.
    return msgspec.convert(_decoded(data, nesting, []), decoder.type)


def opaque_parts(data: bytes) -> Iterator[Part]:
    """Each ``parameters`` with more than ``MOST_CONTAINERS``, its containers as ``msgspec.Raw``.

    Each step takes about as long as reading 10 KiB of brackets, the most that Kubernetes stores in
    one ``parameters``. A caller that decodes much data may wait between steps.

    Raises:
        msgspec.DecodeError: the data is not JSON.
    """
    end = 0
    while (begin := _large_parameters(data, end)) >= 0:
        positions, depths = _brackets_of(data, begin)
        end = positions[-1] + 1
        if len(positions) // 2 > MOST_CONTAINERS:
            yield begin, end, _with_texts(data, positions, depths)


def _large_parameters(data: bytes, start: int) -> int:
    """Position of the next ``parameters`` that may have more than ``MOST_CONTAINERS``, or -1."""
    end = start
    while (at := data.find(_NAME, end)) >= 0:
        end = at + len(_NAME)
        if (found := _PARAMETERS.match(data, at)) is None:
            continue
        if not found[1] or containers(found[1]) > MOST_CONTAINERS:
            return found.start(1)
        end = found.end()
    return -1


def _brackets_of(data: bytes, begin: int) -> tuple[list[int], list[int]]:
    """The position of each bracket of the container at ``begin``, and the depth after it."""
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
    """The container with these brackets; the containers in it are ``msgspec.Raw``."""
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
    value = decode(b"".join(shallow), _ANYTHING)
    return {key: kept[one[0]] if isinstance(one, list) else one for key, one in value.items()}


def checked(value: T, decoder: msgspec.json.Decoder[T]) -> T:
    """The value, after a check that its fields have the types of their annotations.

    Raises:
        msgspec.ValidationError: a field has another type.

    Also raises other errors of ``msgspec.json.encode``.
    """
    data = msgspec.json.encode(value)
    if _large_parameters(data, 0) < 0:
        decode(data, decoder)
    else:
        msgspec.convert(msgspec.to_builtins(value, enc_hook=_opaque), decoder.type)
    return value


def _opaque(value: object) -> Any:
    """Placeholder for a ``msgspec.Raw``: fits no type but ``object``."""
    if isinstance(value, msgspec.Raw):
        return {0: None}
    raise TypeError(f"{type(value).__name__} is not a JSON")


def containers(data: bytes) -> int:
    """Number of opening brackets, also in strings: an upper bound of containers and levels."""
    return data.count(b"{") + data.count(b"[")


def is_shallow(data: bytes) -> bool:
    """True if certainly nothing in the data is nested more than ``MAX_NESTING`` deep."""
    return not _may_be_deeper(data, MAX_NESTING)


def is_deeper(data: bytes, nesting: int) -> bool:
    """Whether containers are nested more than ``nesting`` deep. Raises DecodeError."""
    return _may_be_deeper(data, nesting) and any(True for _ in _deeper_parts(data, nesting))


def _may_be_deeper(data: bytes, nesting: int) -> bool:
    """False if containers are certainly not nested more than ``nesting`` deep."""
    if containers(data) <= nesting:
        return False
    return bool(_unmatched(data, min(nesting, _USUAL_NESTING)))


def _unmatched(data: bytes, levels: int) -> bytes:
    """The brackets of the data, which begins outside of strings. Containers with at most
    ``levels // 2`` levels are left out, and maybe some with up to ``levels``. More brackets remain
    if most containers are nested deeper."""
    if b"\\" in data:
        if b"\\\\" in data:
            data = data.replace(b"\\\\", b"")
        data = data.replace(b'\\"', b"")
    brackets = data.translate(None, _DROPPED).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _SIMPLE_STRING.sub(b"", brackets)
    for _ in range(levels // 2):
        # Removes the innermost containers, and maybe the containers directly around them.
        before = len(brackets)
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if (before - len(brackets)) * levels < before:
            break
    return brackets


class _Page(msgspec.Struct):
    """A list, with the text of its objects."""

    metadata: dict[str, Any]
    items: list[msgspec.Raw] | None


_PAGE: Final = msgspec.json.Decoder(_Page)
Page = tuple[dict[str, Any], list[bytes]]
"""A list's metadata, and the text of each of its objects."""


def split(data: bytes) -> Page | None:
    """Split a Kubernetes list into the texts of its objects at the text that the first one begins
    with. If each text is the JSON of one object, these are the list's objects. None: this list
    can't be split so; use ``cut``."""
    if (found := _ITEMS.search(data)) is None:
        return None
    first, last = found.end(), data.rfind(b"]")
    rest = data[:first] + data[last:]
    if not data.startswith(b"{", first) or _may_be_deeper(rest, _USUAL_NESTING):
        return None
    opening = data[first : data.find(b":", first) + 2]
    texts = data[first:last].split(b"," + opening)
    try:
        page = _PAGE.decode(rest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return page.metadata, [texts[0], *(opening + text for text in texts[1:])]


def cut(data: bytes) -> Generator[None, None, Page]:
    """Cut a Kubernetes list into its objects. Each step takes about as long as reading one object
    or ``_LEAST_STEP_BYTES``. A caller that cuts long lists may wait between steps.

    Raises:
        msgspec.DecodeError: the data is not a list.
    """
    if (yield from _is_page_shallow(data)):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            page = _PAGE.decode(data)
            return page.metadata, [bytes(item) for item in page.items or ()]
        # Malformed, or invalid Unicode.
    items: list[bytes] = []
    found = _ITEMS.search(data)
    first = begin = piece = last = found.end() if found is not None else len(data)
    depth = 0
    for between in _BETWEEN.finditer(data, first):
        depth += _depth_after(data[piece : between.start(1)])
        piece = between.end(1)
        if depth < 0:
            break
        if depth == 0:
            items.append(data[begin : between.start(1)])
            begin = last = piece
            yield
    if data.startswith(b"{", begin):
        last = _brackets_of(data, begin)[0][-1] + 1
        items.append(data[begin:last])
    rest = data[:first] + data[last:]
    if _may_be_deeper(rest, _USUAL_NESTING):
        raise msgspec.DecodeError("JSON is malformed: not only objects are in the list")
    page = _PAGE.decode(_readable(rest))
    return page.metadata, [*items, *map(bytes, page.items or ())]


def _is_page_shallow(data: bytes) -> Generator[None, None, bool]:
    """True if certainly nothing in the data is nested too deep."""
    begin = depth = 0
    while begin < len(data):
        at = data.find(_METADATA, begin + _LEAST_STEP_BYTES)
        end = len(data) if at < 0 else at + len(_METADATA)
        brackets = _unmatched(data[begin:end], _USUAL_NESTING)
        opening = brackets.lstrip(b"]}")
        depth += 2 * len(opening) - len(brackets)
        if opening.strip(b"[{") or depth > MAX_NESTING - _USUAL_NESTING:
            return False
        begin = end
        yield
    return True


def _fields(data: bytes) -> Iterator[Part]:
    """The ``fieldsV1`` of managed fields, as text."""
    for found in _FIELDS.finditer(data):
        text = found[1].rstrip(_AFTER_FIELDS)
        depth = _depth_after(text)
        if depth < 0:  # Brackets that close the containers around them.
            text = text[:depth].rstrip(_AFTER_FIELDS)
        if text and _depth_after(text) == 0:
            yield found.start(1), found.start(1) + len(text), _text(text)


def _depth_after(data: bytes) -> int:
    """How much deeper the data ends than it begins. Both ends are outside of strings."""
    brackets = _unmatched(data, 0)
    return len(brackets) - 2 * len(brackets.translate(None, b"[{"))


def _numbers_out_of_range(data: bytes) -> Iterable[Part]:
    """Each number out of range; if there are many, the innermost containers around them."""
    numbers = list(islice(_each_number_out_of_range(data), _MOST_NUMBERS + 1))
    if len(numbers) <= _MOST_NUMBERS:
        return numbers
    innermost = (found for found in _INNERMOST.finditer(data) if found[1])
    around = [(*one.span(1), _text(one[1])) for one in innermost if _MAY_BE_LARGE.search(one[1])]
    return [*around, *_each_number_out_of_range(_blanked(data, around))]


def _each_number_out_of_range(data: bytes) -> Iterator[Part]:
    for found in _NUMBER.finditer(data):
        if (number := found[1]) is not None and _is_out_of_range(number):
            yield found.start(1), found.end(1), msgspec.Raw(number)


def _is_out_of_range(number: bytes) -> bool:
    if not number.lstrip(b"-").isdigit():
        return math.isinf(float(number))
    try:
        _ANYTHING.decode(number)
    except msgspec.ValidationError:
        return True
    return False


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
    parts = _outermost([*parts, *_fields(data)])
    rest = _blanked(data, parts)
    if _may_be_deeper(rest, nesting):
        deeper = _deeper_parts(rest, nesting)
        deep = [(begin, end, _text(data[begin:end])) for begin, end in deeper]
        parts = _outermost([*parts, *deep])
    try:
        return _with_parts(data, parts)
    except msgspec.ValidationError:
        numbers = _numbers_out_of_range(_blanked(data, parts))
        return _with_parts(data, _outermost([*parts, *numbers]))


def _with_parts(data: bytes, parts: Sequence[Part]) -> Any:
    """The data, decoded, with the parts."""
    mark = hashlib.sha256(data).hexdigest()[:32]  # Differs from every string in the data.
    named = {f"{mark}.{number}": value for number, (_, _, value) in enumerate(parts)}
    shallow = _replaced(data, parts, [f'"{name}"'.encode() for name in named])
    value = _ANYTHING.decode(_readable(shallow))
    return _put_back(value, named) if named else value


def _blanked(data: bytes, parts: Sequence[Part]) -> bytes:
    """The data with spaces in place of the parts."""
    return _replaced(data, parts, [b" " * (end - begin) for begin, end, _ in parts])


def _replaced(data: bytes, parts: Sequence[Part], texts: Sequence[bytes]) -> bytes:
    """The data with the texts in place of the parts."""
    pieces: list[bytes] = []
    copied = 0
    for (begin, end, _), text in zip(parts, texts, strict=True):
        pieces += (data[copied:begin], text)
        copied = end
    return b"".join((*pieces, data[copied:]))


def _outermost(parts: Iterable[Part]) -> list[Part]:
    """The parts that are not within another part, in order."""
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
    """A value as plain JSON, with a note in place of parts that are nested too deep. For people,
    and for consumers that accept only plain JSON."""
    return _abridged(decode(msgspec.json.encode(value), _ANYTHING))


def _abridged(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _abridged(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_abridged(entry) for entry in value]
    if isinstance(value, msgspec.Raw):
        size_bytes, is_container = len(bytes(value)), bytes(value)[:1] in b"[{"
        problem = f"nested more than {MAX_NESTING} levels deep" if is_container else "out of range"
        return f"({size_bytes} bytes, {problem})"
    return value


def canonical(value: Any) -> bytes:
    """JSON with sorted keys: equal values give equal JSON, wherever they were decoded. The order of
    keys matters only in parts nested deeper than ``MAX_NESTING``."""
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
