"""The CEL of an API server: its minor version, its feature gates, and the use of the expression.

An API server checks a *new* expression against its feature gates, and also against the previous
minor version, so that it can be rolled back. An expression that is already *stored* may use
everything that the version has, regardless of the gates.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

MINORS: Final = (34, 35, 36, 37)
"""The minor versions of Kubernetes 1.x whose CEL dray knows."""
_DEFAULT_MINOR: Final = 36
_SERVED = re.compile(r"v?\d+\.(\d+)")


class Mode(Enum):
    """The use of an expression."""

    NEW = "new"
    """Admission: the expression is about to be written into an object."""
    STORED = "stored"
    """Allocation: the expression is stored in an object."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The language of one server.

    ``minor`` is the x of Kubernetes 1.x. ``consumable_capacity`` is the gate
    DRAConsumableCapacity (``device.allowMultipleAllocations``). ``list_attributes`` is the gate
    DRAListTypeAttributes (attributes that are lists, and ``includes``).
    """

    minor: int = _DEFAULT_MINOR
    mode: Mode = Mode.STORED
    consumable_capacity: bool = True
    list_attributes: bool = False

    @property
    def knows_sharing(self) -> bool:
        """Whether ``device.allowMultipleAllocations`` is declared."""
        return self.consumable_capacity or self.mode is Mode.STORED

    @property
    def knows_includes(self) -> bool:
        """Whether ``includes`` is declared."""
        return self.minor >= 36 and (self.list_attributes or self.mode is Mode.STORED)

    @property
    def knows_escaped_names(self) -> bool:
        """Whether a field's name may be in backticks: cel-go 0.29 reads them."""
        return self.minor >= 37

    @property
    def knows_list_library(self) -> bool:
        """Whether ``lists.range``, ``sort`` and similar functions are declared: new in 1.34."""
        return self.minor >= 35 or self.mode is Mode.STORED

    @property
    def dyn_attributes(self) -> bool:
        """Whether attributes have type dyn, because they may be lists, instead of type any."""
        is_stored = self.minor >= 37 and self.mode is Mode.STORED
        return is_stored or (self.minor >= 36 and self.list_attributes)


DEFAULT: Final = Environment()


@lru_cache(maxsize=64)
def environment(
    version: str,
    mode: Mode | str = Mode.STORED,
    *,
    consumable_capacity: bool | None = None,
    list_attributes: bool | None = None,
) -> Environment:
    """The environment of a server of ``version`` (``1.36``, ``v1.36.3``).

    A gate that is None has the version's default. 1.37 reads lists in stored expressions even if
    the gate is off. An unknown version counts as the nearest known version.

    Raises:
        ValueError: ``version`` or ``mode`` is invalid.
    """
    parts = version.removeprefix("v").split(".")
    if len(parts) < 2 or parts[0] != "1" or not _is_number(parts[1]):
        raise ValueError(f"{version!r} is not a version of Kubernetes: write it like 1.36")
    minor = min(max(int(parts[1]), MINORS[0]), MINORS[-1])
    stored_lists = minor >= 37 and Mode(mode) is Mode.STORED
    return Environment(
        minor,
        Mode(mode),
        minor >= 36 if consumable_capacity is None else consumable_capacity,
        stored_lists if list_attributes is None else list_attributes,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5


def environment_of_server(
    version: str, mode: Mode, *, consumable_capacity: bool, list_attributes: bool
) -> Environment:
    """The environment of a server, from its ``version`` and its probed gates.

    An unreadable version counts as ``_DEFAULT_MINOR``. Servers keep lists only if the gate is on.
    If it is off, the version determines whether stored lists are read.
    """
    known = _SERVED.match(version)
    return environment(
        f"1.{known[1] if known else _DEFAULT_MINOR}",
        mode,
        consumable_capacity=consumable_capacity,
        list_attributes=list_attributes or None,
    )
