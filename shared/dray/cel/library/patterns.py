"""The adapter to RE2: CEL's regular expressions, in linear time for every pattern."""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_LONGEST_PATTERN = 1000
_MEMORY_BYTES = 2 * 1024**2
_TOO_LARGE = "pattern too large"
_REFUSED_SIZE = 100_000
"""Number of instructions that RE2 makes before it refuses a pattern as too large."""
_SINGLE_BYTE = re.compile(r"(?:[^\\]|\\Q(?:[^\\]|\\[^E])*(?:\\E|$)|\\[^CQ])*\\C", re.DOTALL)
"""``\\C`` outside of quoted parts: RE2 knows it, Go does not."""


class PatternError(ValueError):
    """Not an RE2 pattern."""


def is_installed() -> bool:
    """Whether RE2 is installed. Without it patterns are refused."""
    return find_spec("re2") is not None


def compiled(pattern: str) -> Any:
    """A compiled pattern.

    Raises:
        PatternError: RE2 refuses it.
    """
    found = _compiled(pattern)
    if isinstance(found, PatternError):
        raise PatternError(str(found))
    return found


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    """The pattern or its error. So a refused pattern is not compiled again, either."""
    if len(pattern) > _LONGEST_PATTERN:
        return PatternError(f"a pattern has at most {_LONGEST_PATTERN} characters")
    if _SINGLE_BYTE.match(pattern):
        return PatternError("error parsing regexp: invalid escape sequence: `\\C`")
    re2 = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not a regular expression"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        return PatternError(f"error parsing regexp: {text}")


def program_size(pattern: str) -> int:
    """How many instructions RE2 makes for a pattern, or made before it refused the pattern."""
    found = _compiled(pattern)
    if isinstance(found, PatternError):
        return _REFUSED_SIZE if _TOO_LARGE in str(found) else 1
    return int(found.programsize)


def found_in(text: str, pattern: str) -> bool:
    """Whether ``pattern`` matches somewhere in ``text``."""
    return compiled(pattern).search(text) is not None


def all_in(text: str, pattern: str) -> Iterator[str]:
    """All matches that don't overlap, from the left.

    As in Go, no match is empty and directly after the previous match.
    """
    end = -1
    for match in compiled(pattern).finditer(text):
        if match.end() > match.start() or match.start() != end:
            yield match.group()
        end = match.end()
