"""Suggest a similar value for a selector with a value that no device has."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from dray.cel.errors import CelCompileError
from dray.cel.eval.program import ClauseResult
from dray.cel.syntax import tree
from dray.cel.syntax.parser import parse

_MOST: Final = 64
"""An attribute with more values than this identifies devices, and gets no suggestion."""
_CLOSE: Final = 0.85
"""High enough that ``H100`` is not similar to ``A100``."""


def suggest(results: Iterable[ClauseResult]) -> str:
    """``did you mean "A100"?`` for a clause ``… == "a100"`` that is false on all devices.

    ``results``: the results of the clause. Empty for another clause, or without a similar value.
    """
    found: dict[str, None] = {}
    text = ""
    for result in results:
        text = result.text
        found.update({one: None for one in result.read.values() if isinstance(one, str)})
        if len(found) > _MOST:
            return ""
    near = _nearest(_wanted(text), sorted(found)) if found else None
    return f'did you mean "{near}"?' if near else ""


def _wanted(clause: str) -> str:
    try:
        root = parse(clause)
    except CelCompileError:
        return ""
    sides = (root.left, root.right) if isinstance(root, tree.Binary) else ()
    texts = [one.value for one in sides if isinstance(one, tree.Literal)]
    is_equality = isinstance(root, tree.Binary) and root.operator == "==" and len(texts) == 1
    return texts[0] if is_equality and isinstance(texts[0], str) else ""


def _nearest(wanted: str, has: Iterable[str]) -> str | None:
    """The value that is equal except for case and punctuation, or has a typo in its letters; other
    digits mean another model."""
    mine, plain = _plain(wanted), {_plain(value): value for value in has}
    alike = [one for one in plain if _digits(one) == _digits(mine)]
    close = get_close_matches(mine, alike, n=1, cutoff=_CLOSE)
    return plain[close[0]] if close else None


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))
