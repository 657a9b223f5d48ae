"""W3C traceparent strings, without the SDK: most are unsampled and must have no cost."""

import contextvars
import re
import secrets
from dataclasses import dataclass
from typing import Final

_PATTERN: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_ODD: Final = frozenset("13579bdf")
"""Last digits of flags that mean sampled. They are checked before anything is parsed."""
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16


@dataclass(frozen=True, slots=True)
class Traceparent:
    """A position in a trace."""

    trace_id: str
    span_id: str
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


_current: contextvars.ContextVar[Traceparent | None] = contextvars.ContextVar(
    "dray_traceparent", default=None
)


def parse(text: str) -> Traceparent | None:
    """The position that ``text`` names; None for invalid text, which must be ignored (W3C)."""
    match = _PATTERN.fullmatch(text)
    if match is None or match[1] == _NO_TRACE or match[2] == _NO_SPAN:
        return None
    return Traceparent(match[1], match[2], bool(int(match[3], 16) & 1))


def is_sampled(text: str) -> bool:
    """Whether ``text`` is a sampled traceparent."""
    return text[-1:] in _ODD and (position := parse(text)) is not None and position.sampled


def trace_id(text: str) -> str:
    """The trace of a sampled traceparent, for exemplars; empty for any other text."""
    if text[-1:] not in _ODD or (position := parse(text)) is None or not position.sampled:
        return ""
    return position.trace_id


def new_traceparent(sampled: bool) -> str:
    """The root of a new trace."""
    return str(Traceparent(secrets.token_hex(16), secrets.token_hex(8), sampled))


def current() -> Traceparent | None:
    """The current task's position in a trace, or None."""
    return _current.get()


def enter(position: Traceparent | None) -> contextvars.Token[Traceparent | None]:
    """Make ``position`` current; pass the token to ``leave``."""
    return _current.set(position)


def leave(token: contextvars.Token[Traceparent | None]) -> None:
    """Make the position before ``enter`` current again."""
    _current.reset(token)
