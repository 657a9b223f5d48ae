"""What ``optional.of`` gives: a value that may be none, which holds another one."""

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Optional:
    """``optional.of(value)``."""

    value: Any


NONE: Final = Optional(None)
"""``optional.none()``, told from ``optional.of(null)`` by identity."""
