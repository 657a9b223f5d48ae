"""Fields of values that are written to the bus."""

from typing import Any

import msgspec


def always_written(default: Any) -> Any:
    """A field that is written even if it has its default, in a struct that omits defaults. Earlier
    releases wrote it, so values without newer fields encode to the same bytes as before.

    ``default``: immutable, or an empty dictionary; each struct then gets its own dictionary.
    """
    return msgspec.field(default_factory=lambda: {} if isinstance(default, dict) else default)
