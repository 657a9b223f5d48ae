"""Semantic versions as CEL compares them: by precedence, without build metadata."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PATTERN: Final = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_LARGEST: Final = 2**64 - 1


class SemverError(ValueError):
    """The text is not a semantic version."""


@dataclass(frozen=True, slots=True)
class Semver:
    """A version. Build metadata does not matter for equality."""

    major: int
    minor: int
    patch: int
    pre: tuple[tuple[int, int, str], ...]
    """Pre-release identifiers in a form that can be ordered: numbers before words."""
    text: str

    def key(self) -> tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]:
        """The key that orders versions: a release comes after its pre-releases."""
        return self.major, self.minor, self.patch, not self.pre, self.pre

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())


@lru_cache(maxsize=1024)
def parse_semver(text: str, *, normalize: bool = False) -> Semver:
    """The version in ``text``. ``normalize`` allows a ``v``, missing parts and leading zeros.

    Raises:
        SemverError: it is not a version.
    """
    match = _PATTERN.fullmatch(_normalized(text) if normalize else text)
    if match is None:
        raise SemverError(f"{text[:64]!r} is not a semantic version such as 1.2.3")
    numbers = [int(match[part]) for part in ("major", "minor", "patch")]
    pre = tuple(map(_identifier, match["pre"].split("."))) if match["pre"] else ()
    if max(*numbers, *(number for _, number, _ in pre), 0) > _LARGEST:
        raise SemverError(f"{text[:64]!r} is not a semantic version: a number exceeds 64 bits")
    return Semver(numbers[0], numbers[1], numbers[2], pre, text)


def _identifier(word: str) -> tuple[int, int, str]:
    if not word.isdigit():
        return 1, 0, word
    if len(word) > 1 and word.startswith("0"):
        raise SemverError(f"pre-release number {word[:64]!r} has leading zeros")
    return 0, int(word), ""


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise SemverError(f"{text[:64]!r} is short, so it can't have pre-release or build data")
    parts += ["0"] * (3 - len(parts))
    return ".".join(map(_without_leading_zeros, parts))


def _without_leading_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    rest = part.lstrip("0")
    return rest if "0" <= rest[:1] <= "9" else "0" + rest
