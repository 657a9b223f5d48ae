"""Durations and sizes as people write them in settings: ``300ms``, ``2m``, ``64MiB``."""

import re
from typing import Final

_DURATION_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_SIZE: Final = re.compile(r"([0-9]+)(B|kB|MB|GB|KiB|MiB|GiB)")
_SIZE_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def parse_duration(text: object) -> float:
    """Seconds of a duration such as ``30s``, ``300ms`` or ``1h30m``.

    A float is returned unchanged, so that defaults in code may be seconds. Raises ValueError.
    """
    if isinstance(text, float):
        return text
    if isinstance(text, str) and _DURATION.fullmatch(text):
        return sum(
            float(number) * _DURATION_S[unit] for number, unit in _DURATION_PART.findall(text)
        )
    raise ValueError("expected a number with a unit ms, s, m, h or d, such as 30s or 300ms")


def parse_bytes(text: object) -> int:
    """Bytes of a size such as ``64MiB``. An int is returned unchanged. Raises ValueError."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if isinstance(text, str) and (match := _SIZE.fullmatch(text)):
        return int(match[1]) * _SIZE_BYTES[match[2]]
    raise ValueError("expected a number with a unit B, kB, MB, GB, KiB, MiB or GiB, such as 64MiB")


def split_commas(text: object) -> object:
    """The parts of ``a, b`` as a tuple. Any value but text is returned unchanged."""
    if isinstance(text, str):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text
