"""CEL's functions on strings. Positions count code points."""

from collections.abc import Callable
from itertools import islice
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.patterns import PatternError, all_in, found_in
from dray.cel.library.values import Value, take
from dray.cel.library.work_steps import MOST_FOUND
from dray.cel.limits import StoppedError

_WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
        "\v": "\\v", "\\": "\\\\", '"': '\\"',
    }
)  # fmt: skip


def match(*values: Value) -> bool:
    take("matches", values, str, str)
    try:
        return found_in(values[0], values[1])
    except PatternError as error:
        raise CelEvaluationError(str(error)) from None


def find_all(*values: Value) -> list[str]:
    limit = values[2] if len(values) == 3 else -1
    take("findAll", (*values[:2], limit), str, str, int)
    most = limit if 0 <= limit <= MOST_FOUND else MOST_FOUND + 1
    try:
        found = list(islice(all_in(values[0], values[1]), most))
    except PatternError as error:
        raise CelEvaluationError(str(error)) from None
    if len(found) > MOST_FOUND:
        raise StoppedError
    return found


def find(*values: Value) -> str:
    take("find", values, str, str)
    found = find_all(*values, 1)
    return found[0] if found else ""


def char_at(text: Value, at: Value) -> str:
    take("charAt", (text, at), str, int)
    if not 0 <= at <= len(text):
        raise CelEvaluationError(f"index out of range: {at}")
    return str(text[at : at + 1])


def index_of(*values: Value) -> int:
    start = values[2] if len(values) == 3 else 0
    take("indexOf", (*values[:2], start), str, str, int)
    if not values[1]:
        return int(start)
    if start < 0:
        raise CelEvaluationError(f"index out of range: {start}")
    return int(values[0].find(values[1], start))


def last_index_of(*values: Value) -> int:
    take("lastIndexOf", values, *((str, str, int)[: len(values)]))
    text, part = values[0], values[1]
    if len(values) == 2:
        return int(text.rfind(part))
    if not part:
        return int(values[2])
    if values[2] < 0:
        raise CelEvaluationError(f"index out of range: {values[2]}")
    return int(text.rfind(part, 0, values[2] + len(part))) if values[2] < len(text) else -1


def join(*values: Value) -> str:
    separator = values[1] if len(values) == 2 else ""
    take("join", (values[0], separator), list, str)
    for item in values[0]:
        take("join", (item,), str)
    return str(separator.join(values[0]))


def replace(*values: Value) -> str:
    limit = values[3] if len(values) == 4 else -1
    take("replace", (*values[:3], limit), str, str, str, int)
    return str(values[0].replace(values[1], values[2], max(limit, -1)))


def split(*values: Value) -> list[str]:
    limit = values[2] if len(values) == 3 else -1
    take("split", (*values[:2], limit), str, str, int)
    if limit == 0:
        return []
    if not values[1]:
        parts = list(values[0])
        return parts if limit < 0 or limit >= len(parts) else [
            *parts[: limit - 1], "".join(parts[limit - 1 :])]  # fmt: skip
    return list(values[0].split(values[1], limit - 1 if limit > 0 else -1))


def substring(*values: Value) -> str:
    end = values[2] if len(values) == 3 else len(values[0])
    take("substring", (*values[:2], end), str, int, int)
    start = values[1]
    if not 0 <= start <= len(values[0]) or not 0 <= end <= len(values[0]):
        raise CelEvaluationError(f"index out of range: {start}")
    if start > end:
        raise CelEvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return str(values[0][start:end])


def in_ascii(function: str, first: str, offset: int) -> Callable[[Value], str]:
    table = {ord(first) + i: ord(first) + i + offset for i in range(26)}

    def change(text: Value) -> str:
        take(function, (text,), str)
        return str(text.translate(table))

    return change


def of_string(function: str, method: Callable[[str, str], bool]) -> Callable[..., bool]:
    def test(*values: Value) -> bool:
        take(function, values, str, str)
        return method(values[0], values[1])

    return test


def trim(text: Value) -> str:
    take("trim", (text,), str)
    return str(text.strip(_WHITE_SPACE))


def quote(text: Value) -> str:
    take("strings.quote", (text,), str)
    quoted: str = text.translate(_QUOTED)
    return f'"{quoted}"'
