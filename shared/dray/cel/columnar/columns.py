"""One property of all devices as a column: a code per slot and, once, the value of each code.

A code is the smallest whole number that no other value of the column has; codes of values that
no device has any more are used again. Columns of few values, which most are, take one byte per
device, and comparing a hundred thousand of them with a code takes a few microseconds.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dray.cel.values import Value
from dray.domain.quantities import Quantity

ABSENT: Final = 0
"""The code of slots whose device lacks the property, and of slots without a usable device."""

Codes = NDArray[Any]
Mask = NDArray[np.bool_]
_WIDTHS: Final = (np.uint8, np.uint16, np.int32)


class Column:
    """Codes by slot, values by code.

    Values are told apart by type and by every bit that an expression could see: ``true`` is
    not 1, and ``1Gi`` is not ``1024Mi``.
    """

    def __init__(self, slots: int, *, may_lack: bool = True) -> None:
        self.may_lack = may_lack
        """Whether a usable device can be without a value."""
        self.codes: Codes = np.zeros(slots, np.uint8)
        self.values: list[Value] = [None]
        self.counts: list[int] = [0]
        """Slots per code; not kept for ``ABSENT``."""
        self.on_new: Callable[[int], None] | None = None
        """Told of each code that begins to stand for a value."""
        self._known: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._limit = np.iinfo(np.uint8).max

    def put(self, slot: int, value: Value) -> bool:
        """Give ``slot`` a value; whether that changed anything."""
        key = value if type(value) is str or type(value) is int else key_of(value)
        before = int(self.codes[slot])
        code = self._known.get(key)
        if code is None:
            code = self._added(key, value)
        elif code == before:
            return False
        self.counts[code] += 1
        self.codes[slot] = code
        self._release(before)
        return True

    def clear(self, slot: int) -> bool:
        """Take the value of ``slot`` away; whether it had one."""
        before = int(self.codes[slot])
        if before == ABSENT:
            return False
        self.codes[slot] = ABSENT
        self._release(before)
        return True

    def grow(self, slots: int) -> None:
        """Make room for ``slots`` slots."""
        codes = np.zeros(slots, self.codes.dtype)
        codes[: len(self.codes)] = self.codes
        self.codes = codes

    def find(self, value: Value) -> int:
        """The code of a value; ``ABSENT`` where no device has it."""
        return self._known.get(key_of(value), ABSENT)

    @property
    def is_empty(self) -> bool:
        """Whether no slot has a value."""
        return not self._known

    def begin(self, keys: list[Hashable], values: list[Value], codes: Codes) -> None:
        """Take a whole column at once: ``values[i]`` has code ``i + 1`` in ``codes``."""
        self._known = {key: at + 1 for at, key in enumerate(keys)}
        self._free = []
        self.values = [None, *values]
        counts = np.bincount(codes, minlength=len(self.values))
        counts[ABSENT] = 0
        self.counts = counts.tolist()
        self.codes = codes.astype(_width(len(self.values)))
        self._limit = np.iinfo(self.codes.dtype).max

    def _added(self, key: Hashable, value: Value) -> int:
        if self._free:
            code = self._free.pop()
            self.values[code] = value
        else:
            code = len(self.values)
            self.values.append(value)
            self.counts.append(0)
            if code > self._limit:
                self.codes = self.codes.astype(_width(len(self.values)))
                self._limit = np.iinfo(self.codes.dtype).max
        self._known[key] = code
        if self.on_new is not None:
            self.on_new(code)
        return code

    def _release(self, code: int) -> None:
        if code == ABSENT:
            return
        self.counts[code] -= 1
        if not self.counts[code]:
            del self._known[key_of(self.values[code])]
            self.values[code] = None
            self._free.append(code)


def key_of(value: Value) -> Hashable:
    """Equal for values that no expression can tell apart."""
    kind = type(value)
    if kind is str or kind is int:
        return value  # type: ignore[no-any-return]
    if kind is list:
        return "list", tuple(map(key_of, value))
    if kind is Quantity:
        return "quantity", value.nano, value.binary, value.exponent, value.is_small
    return kind.__name__, getattr(value, "text", value)


def _width(codes: int) -> type[Any]:
    """The narrowest type that holds that many codes."""
    return next(width for width in _WIDTHS if codes <= np.iinfo(width).max + 1)
