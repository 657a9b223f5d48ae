"""Fields of values that are written to the bus."""

from typing import Any

import msgspec


def always_written(default: Any) -> Any:
    """A field of a struct that omits defaults, written also if it has its default: earlier releases
    wrote it so, and what equals what they knew stays equal byte by byte.

    ``default``: immutable, or an empty dictionary, of which each value gets its own.
    """
    return msgspec.field(default_factory=lambda: {} if isinstance(default, dict) else default)
