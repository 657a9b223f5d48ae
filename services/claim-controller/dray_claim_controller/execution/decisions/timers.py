"""How long a condition has held without a pause. Pure."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

_NO_EXTENSION: Mapping[str, float] = MappingProxyType({})


class Due(msgspec.Struct, frozen=True):
    """The names whose time is up, and since when (monotonic seconds) each name has been present."""

    now: tuple[str, ...]
    since_s: dict[str, float]


def due(
    present: Iterable[str],
    since_s: Mapping[str, float],
    *,
    now_s: float,
    after_s: float,
    more_s: Mapping[str, float] = _NO_EXTENSION,
) -> Due:
    """Names that have been present, without a pause, for ``after_s`` seconds; ``more_s`` extends
    that for some of them. ``since_s``: that of the last result."""
    kept = {name: since_s.get(name, now_s) for name in present}
    return Due(
        tuple(
            name
            for name, start_s in kept.items()
            if now_s - start_s >= after_s + more_s.get(name, 0.0)
        ),
        kept,
    )
