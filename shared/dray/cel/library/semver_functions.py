"""Kubernetes' semver library."""

from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.semver import Semver, SemverError, parse_semver
from dray.cel.library.values import Value, no_overload, take


def _semver(*values: Value) -> Semver:
    """``semver(text)`` and ``semver(text, normalize)``."""
    normalize = values[1] if len(values) == 2 else False
    take("semver", (values[0], normalize), str, bool)
    try:
        return parse_semver(values[0], normalize=normalize)
    except SemverError as error:
        raise CelEvaluationError(str(error)) from None


def _is_semver(*values: Value) -> bool:
    """``isSemver(text)`` and ``isSemver(text, normalize)``."""
    normalize = values[1] if len(values) == 2 else False
    take("isSemver", (values[0], normalize), str, bool)
    try:
        parse_semver(values[0], normalize=normalize)
    except SemverError:
        return False
    return True


def compare_versions(left: Value, right: Value) -> int:
    """Compare by precedence, without build metadata: -1, 0 or 1."""
    take("compareTo", (left, right), Semver, Semver)
    return int(left.key() > right.key()) - int(left.key() < right.key())


def _part(name: str) -> Callable[[Value], int]:
    def read(version: Value) -> int:
        if type(version) is not Semver:
            raise no_overload(name, version)
        number: int = getattr(version, name)
        return number if number < 2**63 else number - 2**64  # upstream's conversion wraps

    return read


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "semver": _semver,
    "isSemver": _is_semver,
    "major": _part("major"),
    "minor": _part("minor"),
    "patch": _part("patch"),
}
