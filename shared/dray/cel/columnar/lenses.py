"""What a subject gives for each value of a column, laid out for comparing all of it at once."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dray.cel.columnar.forms import EXACT_INT, INT64
from dray.cel.errors import CelEvaluationError
from dray.cel.values import Value
from dray.cel.work import StoppedError
from dray.domain.quantities import NANO, Quantity


class Kind(IntEnum):
    """What a value is, as far as comparisons need to know."""

    FAILED = 0
    """There is none: reading it is an error, and so is every comparison with it."""
    STRING = 1
    INT = 2
    BIG_INT = 3
    """Beyond what a double holds exactly."""
    DOUBLE = 4
    QUANTITY = 5
    BIG_QUANTITY = 6
    """Of more whole units than an int holds."""
    BOOL = 7
    OTHER = 8


_KINDS: Final[tuple[Kind, ...]] = tuple(Kind)
KINDS: Final = len(_KINDS)


class Lens:
    """The values of one subject by code, and what numbers they are.

    ``whole`` holds ints and whole units of quantities, ``rest`` the billionths above them,
    ``real`` doubles, and ints that a double holds exactly.
    """

    def __init__(
        self, read: Callable[[int], Value], find: Callable[[str], int] | None = None
    ) -> None:
        self._read = read
        self._find = find
        self.values: list[Value] = []
        self.kinds: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.whole: NDArray[np.int64] = np.zeros(0, np.int64)
        self.rest: NDArray[np.int32] = np.zeros(0, np.int32)
        self.real: NDArray[np.float64] = np.zeros(0, np.float64)

    def begin(self, count: int, values: list[Value] | None = None) -> None:
        """Read the values of the first ``count`` codes; ``values`` are they, if they are known."""
        self._grow(count + 16)
        if values is None:
            for code in range(count):
                self.learn(code)
            return
        self.values = list(values)
        kinds = list(map(_kind, values))
        kinds[0] = Kind.FAILED
        self.kinds[:count] = kinds
        for code, kind in enumerate(kinds):
            if kind is not Kind.STRING:
                self._note(code, values[code], kind)

    def learn(self, code: int) -> None:
        """Read the value that ``code`` stands for now."""
        while len(self.values) <= code:
            self.values.append(None)
        if code >= len(self.kinds):
            self._grow(2 * code + 16)
        try:
            value = self._read(code)
            kind = _kind(value)
        except (CelEvaluationError, RecursionError):
            value, kind = None, Kind.FAILED
        except StoppedError:
            value, kind = None, Kind.OTHER
        self.values[code] = value
        self.kinds[code] = kind
        self._note(code, value, kind)

    def _note(self, code: int, value: Value, kind: Kind) -> None:
        """Lay a number out in the arrays."""
        if kind in (Kind.INT, Kind.BIG_INT):
            self.whole[code] = value
            self.real[code] = value
        elif kind is Kind.DOUBLE:
            self.real[code] = value
        elif kind is Kind.QUANTITY:
            self.whole[code], self.rest[code] = divmod(value.nano, NANO)

    def kind_of(self, code: int) -> Kind:
        """What the value of a code is."""
        return _KINDS[int(self.kinds[code])]

    def codes_of(self, value: str) -> NDArray[np.intp]:
        """The codes of a string."""
        if self._find is not None:
            code = self._find(value)
            return np.array([code] if code else [], np.intp)
        strings = np.flatnonzero(self.kinds[: len(self.values)] == Kind.STRING)
        found = [code for code in strings.tolist() if self.values[code] == value]
        return np.array(found, np.intp)

    def _grow(self, codes: int) -> None:
        for name in ("kinds", "whole", "rest", "real"):
            before: NDArray[Any] = getattr(self, name)
            after = np.zeros(codes, before.dtype)
            after[: len(before)] = before
            setattr(self, name, after)


def _kind(value: Value) -> Kind:
    kind = type(value)
    if kind is str:
        return Kind.STRING
    if kind is int:
        return Kind.INT if abs(value) <= EXACT_INT else Kind.BIG_INT
    if kind is bool:
        return Kind.BOOL
    if kind is Quantity:
        return Kind.QUANTITY if abs(value.nano) // NANO < INT64 else Kind.BIG_QUANTITY
    return Kind.DOUBLE if kind is float and value == value else Kind.OTHER
