"""What every condition on one column says of each of its values.

A fleet has few distinct values of a property, so that a condition is decided a few times, and
looked up for a hundred thousand devices. A value seen for the first time is held against all
conditions on its column, a new condition against all values.
"""

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dray.cel.columnar.columns import ABSENT, Column
from dray.cel.columnar.exact import Exact, Judge
from dray.cel.columnar.facts import Path, view_from
from dray.cel.columnar.forms import ERROR, FALSE, STOPPED, TRUE, Comparison, Form, Presence
from dray.cel.columnar.groups import Group
from dray.cel.columnar.lenses import Lens
from dray.cel.columnar.reads import path_of, text_of
from dray.cel.device import DeviceView
from dray.cel.errors import CelEvaluationError
from dray.cel.tree import Expr
from dray.cel.values import Value

FactsAt = Callable[[int], Iterable[tuple[Path, Value]]]
"""What is known of a device that has a code."""


class Verdicts:
    """A table of verdicts: a row per code, a position per condition."""

    def __init__(self, column: Column, facts_at: FactsAt) -> None:
        self.column = column
        self.table: NDArray[np.uint8] = np.zeros((16, 8), np.uint8)
        self.nodes: NDArray[np.intp] = np.zeros(8, np.intp)
        """Where each position's verdict goes in the network; 0 for positions not in use."""
        self._facts_at = facts_at
        self._free: list[int] = []
        self._width = 0
        self._lenses: dict[str, Lens] = {}
        self._groups: dict[tuple[str, str, str], Group] = {}
        self._group_of: dict[int, tuple[str, str, str]] = {}
        self._presences: list[int] = []
        self._judges: dict[int, Judge] = {}
        self._view: tuple[int, DeviceView] | None = None
        column.on_new = self._learn
        for code in range(len(column.values)):
            self._make_room(code)

    @property
    def codes(self) -> int:
        """How many rows of the table stand for codes."""
        return len(self.column.values)

    def of(self, position: int) -> bytes:
        """The verdicts of one condition, by code."""
        return self.table[: self.codes, position].tobytes()

    def add(
        self, condition: Expr, node: int, exact: Exact, form: Form | None, *, whole: bool = False
    ) -> int:
        """Decide a condition for all values; its position in the table.

        ``exact`` is asked where no form tells, about the ``whole`` of a selector or a part of it.
        """
        position = self._free.pop() if self._free else self._width
        self._width = max(self._width, position + 1)
        self._widen()
        self.nodes[position] = node
        decided = self._decided(condition, position, exact, form, whole=whole)
        self.table[: self.codes, position] = decided
        if not self.column.may_lack:
            self.table[ABSENT, position] = FALSE
        return position

    def remove(self, position: int) -> None:
        """Forget a condition."""
        self.nodes[position] = 0
        self._free.append(position)
        self._judges.pop(position, None)
        key = self._group_of.pop(position, None)
        if key is not None:
            self._groups[key].remove(position)
            if not len(self._groups[key]):
                del self._groups[key]
            if all(subject != key[0] for subject, _, _ in self._groups):
                del self._lenses[key[0]]
        elif position in self._presences:
            self._presences.remove(position)

    def __len__(self) -> int:
        """How many conditions there are."""
        return self._width - len(self._free)

    def _asked(
        self, condition: Expr, position: int, exact: Exact, *, whole: bool
    ) -> NDArray[np.uint8]:
        ask = self._judges[position] = exact.judge(condition, whole=whole)
        verdict = np.full(self.codes, FALSE, np.uint8)
        for code in range(ABSENT if self.column.may_lack else ABSENT + 1, self.codes):
            verdict[code] = ask(self._view_at(code))
        return verdict

    def _decided(
        self, condition: Expr, position: int, exact: Exact, form: Form | None, *, whole: bool
    ) -> NDArray[np.uint8]:
        if form is None:
            return self._asked(condition, position, exact, whole=whole)
        if isinstance(form, Presence):
            self._presences.append(position)
            verdict = np.full(self.codes, TRUE, np.uint8)
            verdict[ABSENT] = FALSE
            return verdict
        group = self._group(form, position, exact)
        rarely = cache(lambda: exact.judge(condition, whole=False))
        group.add(position, form.constants, lambda code: rarely()(self._view_at(code)))
        return group.judge_constant(position)

    def _group(self, comparison: Comparison, position: int, exact: Exact) -> Group:
        subject = text_of(comparison.subject)
        key = (subject, comparison.form, comparison.kind)
        self._group_of[position] = key
        if subject not in self._lenses:
            self._lenses[subject] = self._lens(comparison.subject, exact)
        if key not in self._groups:
            self._groups[key] = Group(self._lenses[subject], comparison)
        return self._groups[key]

    def _lens(self, subject: Expr, exact: Exact) -> Lens:
        if path_of(subject) is not None:
            lens = Lens(self._own_value, self.column.find)
            lens.begin(self.codes, self.column.values)
            return lens
        read = exact.evaluator(subject)
        lens = Lens(lambda code: read(self._view_at(code)))
        lens.begin(self.codes)
        return lens

    def _own_value(self, code: int) -> Value:
        if code == ABSENT:
            raise CelEvaluationError("no such key")
        return self.column.values[code]

    def _learn(self, code: int) -> None:
        """Hold a value that is seen for the first time against every condition."""
        self._make_room(code)
        self._view = None
        row = self.table[code]
        row[self._presences] = TRUE
        for lens in self._lenses.values():
            lens.learn(code)
        for group in self._groups.values():
            group.judge_value(code, row)
        for position, ask in self._judges.items():
            row[position] = ask(self._view_at(code))

    def _view_at(self, code: int) -> DeviceView:
        if self._view is None or self._view[0] != code:
            self._view = code, view_from(self._facts_at(code))
        return self._view[1]

    def _make_room(self, code: int) -> None:
        rows, width = self.table.shape
        if code >= rows:
            table = np.zeros((2 * code, width), np.uint8)
            table[:rows] = self.table
            self.table = table

    def _widen(self) -> None:
        rows, width = self.table.shape
        if self._width > width:
            table = np.zeros((rows, 2 * width), np.uint8)
            table[:, :width] = self.table
            self.table = table
            self.nodes = np.concatenate((self.nodes, np.zeros(width, np.intp)))


def all_of(verdicts: NDArray[np.uint8], axis: int) -> NDArray[np.uint8]:
    """The verdict of ``&&`` over an axis."""
    found: NDArray[np.uint8] = np.bitwise_and.reduce(verdicts, axis=axis) & TRUE
    found |= np.bitwise_or.reduce(verdicts, axis=axis) & (FALSE | STOPPED)
    return found


def any_of(verdicts: NDArray[np.uint8], axis: int) -> NDArray[np.uint8]:
    """The verdict of ``||`` over an axis."""
    found: NDArray[np.uint8] = np.bitwise_and.reduce(verdicts, axis=axis) & FALSE
    found |= np.bitwise_or.reduce(verdicts, axis=axis) & (TRUE | STOPPED)
    return found


NOT: NDArray[np.uint8] = np.array([ERROR, FALSE, TRUE, ERROR, *[STOPPED] * 4], np.uint8)
"""The verdict of ``!``, by verdict."""


def chosen(parts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The verdict of ``?:`` over condition, then and otherwise on the first axis."""
    condition, then, otherwise = parts & (TRUE | FALSE)
    branch = np.where(condition == TRUE, then, otherwise)
    found = np.where(condition == ERROR, np.uint8(ERROR), branch).astype(np.uint8)
    found |= np.bitwise_or.reduce(parts, axis=0) & STOPPED
    return found
