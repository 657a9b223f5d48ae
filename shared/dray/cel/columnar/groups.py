"""Comparisons of one subject that differ only in their constants, decided together.

A new value is compared with all constants at once, a new constant with all values.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dray.cel.columnar.forms import ERROR, Comparison
from dray.cel.columnar.lenses import KINDS, Kind, Lens
from dray.cel.values import Value
from dray.domain.quantities import NANO

Verdict = NDArray[np.uint8]
Ask = Callable[[int], int]
"""The exact verdict on a code."""

_TOGETHER: Final = {
    "string": (Kind.STRING,),
    "int": (Kind.INT, Kind.BIG_INT, Kind.DOUBLE),
    "double": (Kind.INT, Kind.DOUBLE),
    "quantity": (Kind.QUANTITY,),
}
"""Which values are compared with constants of a kind as numbers or strings are."""
_FEW: Final = 32
"""So many values are compared one by one sooner than as arrays."""
_ONE_BY_ONE: Final = {
    "string": (Kind.OTHER,),
    "int": (Kind.OTHER,),
    "double": (Kind.OTHER, Kind.BIG_INT),
    "quantity": (Kind.OTHER, Kind.BIG_QUANTITY),
}
"""Which are left to the exact evaluator, each with each constant. Of values of all other kinds
it is asked once per kind, for there a constant makes no difference."""


class Group:
    """The comparisons of one subject, form and kind of constant."""

    def __init__(self, lens: Lens, comparison: Comparison) -> None:
        self._lens = lens
        self._kind = comparison.kind
        self._signs = np.array(comparison.signs, np.uint8)
        self._members: dict[int, tuple[Sequence[Value], Ask]] = {}
        self._unlike: dict[Kind, int] = {}
        self._flat: _Flat | None = None

    def __len__(self) -> int:
        return len(self._members)

    def add(self, position: int, constants: Sequence[Value], ask: Ask) -> None:
        """Take a comparison in, under the position that its verdicts get."""
        self._members[position] = (constants, ask)
        self._flat = None

    def remove(self, position: int) -> None:
        """Forget a comparison."""
        del self._members[position]
        self._flat = None

    def judge_value(self, code: int, row: Verdict) -> None:
        """Write the verdict of every comparison on one value into ``row``, by position."""
        kind = self._lens.kind_of(code)
        if self._flat is None:
            self._flat = _Flat(self._kind, self._members)
        positions = self._flat.positions
        if kind is Kind.FAILED:
            row[positions] = ERROR
        elif kind in _TOGETHER[self._kind]:
            row[positions] = self._flat.compared(self._lens, code, kind, self._signs)
        elif kind in _ONE_BY_ONE[self._kind]:
            for position, (_, ask) in self._members.items():
                row[position] = ask(code)
        else:
            row[positions] = self._verdict_on(kind, code)

    def judge_constant(self, position: int) -> Verdict:
        """The verdict of one comparison on every value, by code."""
        lens, (constants, ask) = self._lens, self._members[position]
        count = len(lens.values)
        if count <= _FEW and len(constants) == 1:
            found = [self._verdict(code, constants[0], ask) for code in range(count)]
            return np.array(found, np.uint8)
        kinds = lens.kinds[:count]
        seen = np.bincount(kinds, minlength=KINDS)
        by_kind = np.full(KINDS, ERROR, np.uint8)
        for kind in map(Kind, np.flatnonzero(seen).tolist()):
            if kind is not Kind.FAILED and not self._is_special(kind):
                by_kind[kind] = self._verdict_on(kind, int(np.argmax(kinds == kind)))
        verdict = by_kind[kinds]
        for kind in _TOGETHER[self._kind]:
            if seen[kind]:
                self._compare(verdict, kinds == kind, kind, constants)
        for kind in _ONE_BY_ONE[self._kind]:
            for code in np.flatnonzero(kinds == kind).tolist():
                verdict[code] = ask(code)
        return verdict

    def _verdict(self, code: int, constant: Value, ask: Ask) -> int:
        """What ``judge_constant`` says of one value, without the overhead of arrays."""
        kind, value = self._lens.kind_of(code), self._lens.values[code]
        if kind is Kind.FAILED:
            return ERROR
        if kind not in _TOGETHER[self._kind]:
            return ask(code) if self._is_special(kind) else self._verdict_on(kind, code)
        if kind is Kind.QUANTITY:
            value, constant = value.nano, constant.nano
        return int(self._signs[1 + (value > constant) - (value < constant)])

    def _is_special(self, kind: Kind) -> bool:
        return kind in _TOGETHER[self._kind] or kind in _ONE_BY_ONE[self._kind]

    def _verdict_on(self, kind: Kind, code: int) -> int:
        """The verdict on all values of a kind that is not the constants'."""
        if kind not in self._unlike:
            _, ask = next(iter(self._members.values()))
            self._unlike[kind] = ask(code)
        return self._unlike[kind]

    def _compare(
        self, verdict: Verdict, where: NDArray[np.bool_], kind: Kind, constants: Sequence[Value]
    ) -> None:
        """Write verdicts on the values of one kind; of several constants any may be equal."""
        below, equal, above = self._signs
        if kind is Kind.STRING:
            verdict[where] = above
            for constant in constants:
                verdict[self._lens.codes_of(constant)] = equal
            return
        found: Verdict | None = None
        for constant in constants:
            sign = _signs_of(self._lens, where, kind, constant)
            one = np.where(sign == 0, equal, np.where(sign < 0, below, above))
            found = one if found is None else np.where(sign == 0, equal, found)
        if found is not None:
            verdict[where] = found


def _signs_of(
    lens: Lens, where: NDArray[np.bool_], kind: Kind, constant: Value
) -> NDArray[np.int8]:
    """Whether the values at ``where`` are less (-1), equal (0) or greater (1)."""
    count = len(where)
    if kind is Kind.QUANTITY:
        whole, rest = divmod(constant.nano, NANO)
        difference = _sign(lens.whole[:count][where], whole)
        return np.where(difference == 0, _sign(lens.rest[:count][where], rest), difference)
    if kind is Kind.DOUBLE or type(constant) is float:
        return _sign(lens.real[:count][where], constant)
    return _sign(lens.whole[:count][where], constant)


def _sign(values: NDArray[Any], constant: Value) -> NDArray[np.int8]:
    sign: NDArray[np.int8] = (values > constant).astype(np.int8)
    sign -= values < constant
    return sign


class _Flat:
    """All constants of a group in arrays; ``owners`` says whose each is, by member."""

    def __init__(self, kind: str, members: dict[int, tuple[Sequence[Value], Ask]]) -> None:
        self.positions = np.array(list(members), np.intp)
        constants = [value for values, _ in members.values() for value in values]
        owners = [at for at, (values, _) in enumerate(members.values()) for _ in values]
        self._owners = np.array(owners, np.intp)
        self._is_plain = len(owners) == len(members)
        self._where: dict[str, list[int]] = {}
        self._whole: NDArray[Any] = np.zeros(0)
        self._rest: NDArray[Any] = np.zeros(0)
        self._real: NDArray[Any] = np.zeros(0)
        if kind == "string":
            for owner, constant in zip(owners, constants, strict=True):
                self._where.setdefault(constant, []).append(owner)
        elif kind == "quantity":
            parts = [divmod(amount.nano, NANO) for amount in constants]
            self._whole = np.array([whole for whole, _ in parts], np.int64)
            self._rest = np.array([rest for _, rest in parts], np.int64)
        else:
            self._real = np.array(constants, np.float64)
            self._whole = self._real
            if kind == "int":
                self._whole = np.array(constants, np.int64)

    def compared(self, lens: Lens, code: int, kind: Kind, signs: Verdict) -> Verdict:
        """The verdict of each member on one value."""
        if kind is Kind.STRING:
            verdict = np.full(len(self.positions), signs[2], np.uint8)
            verdict[self._where.get(lens.values[code], [])] = signs[1]
            return verdict
        sign = self._signs_of(lens.values[code], kind)
        if self._is_plain:
            return signs[sign + 1]
        verdict = np.full(len(self.positions), signs[2], np.uint8)
        verdict[self._owners[sign == 0]] = signs[1]
        return verdict

    def _signs_of(self, value: Value, kind: Kind) -> NDArray[np.int8]:
        if kind is Kind.QUANTITY:
            whole, rest = divmod(value.nano, NANO)
            difference = -_sign(self._whole, whole)
            return np.where(difference == 0, -_sign(self._rest, rest), difference)
        return -_sign(self._real if kind is Kind.DOUBLE else self._whole, value)
