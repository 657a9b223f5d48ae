"""Text pasted from the user guide: one selector, or a block of several expressions.

A block is translated expression by expression. Comments and blank lines between them are kept. A
single read such as ``device.attributes["model"]`` is not a selector, but the guide shows some
(§5.4), so they are translated as values, with a warning.
"""

import re
from itertools import pairwise

from dray.cel.environment import Environment
from dray.cel.errors import CelSyntaxError
from dray.cel.syntax.lexer import Token, tokens
from dray.cel.syntax.parser import parse
from dray.user_guide_form.dialect import Translation, translate, translate_value
from dray.user_guide_form.rewriter import is_bare_value

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_JOINING = frozenset(
    (
        "&&",
        "||",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "?",
        ":",
        ".",
        ",",
        "in",
    )
)


def translate_block(text: str, environment: Environment | None = None) -> Translation:
    """The valid form of every expression of a block. For one expression, as ``translate``.

    Raises:
        CelCompileError: as ``translate``, for the first expression that can't be used. The
            position is the position in the block.
    """
    pieces = expressions(text)
    if len(pieces) == 1:
        return _translate(text, environment)
    parts, changes, warnings = list[str](), dict[str, None](), dict[str, None]()
    done = 0
    for start, end in pieces:
        translation = _translate(_alone(text, start, end), environment)
        parts += text[done:start], translation.expression.strip()
        changes |= dict.fromkeys(translation.changes)
        warnings |= dict.fromkeys(translation.warnings)
        done = end
    return Translation("".join(parts) + text[done:], tuple(changes), tuple(warnings))


def expressions(text: str) -> list[tuple[int, int]]:
    """Start and end of each expression. If the whole text is one expression, that is the only one.
    Otherwise an expression ends at the end of a line, unless it is inside brackets or an operator
    joins it to the next line.

    Raises:
        CelSyntaxError: a character that begins no token, or a string that does not end.
    """
    try:
        parse(text)
    except CelSyntaxError:
        found = tokens(text)[:-1]
        starts = [0, *_starts(text, found), len(found)]
        return [(found[a].start, found[b - 1].end) for a, b in pairwise(starts) if a < b] or [
            (0, len(text))
        ]
    return [(0, len(text))]


def _starts(text: str, found: list[Token]) -> list[int]:
    """Indices of the tokens that begin an expression, without the first one."""
    starts, depth = [], 0
    for index, (token, following) in enumerate(pairwise(found), start=1):
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        ends = "\n" in text[token.end : following.start] and depth == 0
        if ends and not {token.text, following.text} & _JOINING:
            starts.append(index)
    return starts


def _alone(text: str, start: int, end: int) -> str:
    """One expression, with blanks in place of the text before it, so that errors have the right
    position."""
    return re.sub(r"[^\n]", " ", text[:start]) + text[start:end]


def _translate(text: str, environment: Environment | None) -> Translation:
    return translate_value(text) if is_bare_value(parse(text)) else translate(text, environment)
