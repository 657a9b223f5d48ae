"""From verdicts per value to masks over all devices."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dray.cel.columnar.columns import Column, Mask
from dray.cel.columnar.forms import ERROR, FALSE, STOPPED, TRUE
from dray.cel.columnar.plan import Condition, Gate, Part
from dray.cel.columnar.verdicts import Verdicts, all_of

_FEW: Final = 12
"""Comparing a narrow column with so many codes is as fast as looking each code up."""


class Sides:
    """Where a part is true and where it is false; elsewhere it is an error."""

    def __init__(self, true: Mask, false: Mask) -> None:
        self.true = true
        self.false = false


def conjunction(parts: Iterable[Part], slots: int) -> tuple[Mask, Mask | None]:
    """Where the ``&&`` of ``parts`` is true, and where it is an error if it can be one at all.

    Conditions on one column are joined before they are spread over the devices.
    """
    tables: dict[Verdicts, list[int]] = {}
    gates: list[Sides] = []
    for part in parts:
        if isinstance(part, Condition):
            tables.setdefault(part.verdicts, []).append(part.position)
        else:
            gates.append(_sides(part, slots))
    joined = [(table.column, _joined(table, at)) for table, at in tables.items()]
    match = np.ones(slots, np.bool_)
    for column, verdict in joined:
        match &= spread(column, verdict == TRUE, slots)
    for sides in gates:
        match &= sides.true
    may_fail = any(bool(np.any(verdict == ERROR)) for _, verdict in joined)
    if not may_fail and all(bool(np.all(one.true | one.false)) for one in gates):
        return match, None
    errors = ~match
    for column, verdict in joined:
        errors &= spread(column, verdict != FALSE, slots)
    for sides in gates:
        errors &= ~sides.false
    return match, errors


def may_stop(part: Part) -> bool:
    """Whether a condition of ``part`` ends the evaluation on some device."""
    if isinstance(part, Gate):
        return any(map(may_stop, part.inputs))
    verdict = part.verdicts.table[: part.verdicts.codes, part.position]
    return bool(np.any(verdict & STOPPED))


def spread(column: Column, wanted: NDArray[np.bool_], slots: int) -> Mask:
    """Where a column has one of the wanted codes."""
    codes = column.codes[:slots]
    hits = int(np.count_nonzero(wanted))
    if 2 * hits > len(wanted):
        return ~spread(column, ~wanted, slots)
    if hits <= (_FEW if codes.itemsize == 1 else _FEW // codes.itemsize):
        found = np.zeros(slots, np.bool_)
        for code in np.flatnonzero(wanted).tolist():
            found |= codes == code
        return found
    if codes.itemsize == 1:
        table = np.zeros(256, np.uint8)
        table[: len(wanted)] = wanted
        return np.frombuffer(codes.tobytes().translate(table.tobytes()), np.bool_)
    return wanted[codes]


def _joined(table: Verdicts, positions: list[int]) -> NDArray[np.uint8]:
    verdicts = table.table[: table.codes]
    if len(positions) == 1:
        return verdicts[:, positions[0]]
    return all_of(verdicts[:, positions], 1)


def _sides(part: Part, slots: int) -> Sides:
    if isinstance(part, Condition):
        verdict = part.verdicts.table[: part.verdicts.codes, part.position]
        column = part.verdicts.column
        return Sides(
            spread(column, verdict == TRUE, slots), spread(column, verdict == FALSE, slots)
        )
    inputs = [_sides(one, slots) for one in part.inputs]
    match part.operator:
        case "&&":
            return Sides(_all([i.true for i in inputs]), _any([i.false for i in inputs]))
        case "||":
            return Sides(_any([i.true for i in inputs]), _all([i.false for i in inputs]))
        case "!":
            return Sides(inputs[0].false, inputs[0].true)
        case _:
            return _chosen(*inputs)


def _chosen(condition: Sides, then: Sides, otherwise: Sides) -> Sides:
    return Sides(
        (condition.true & then.true) | (condition.false & otherwise.true),
        (condition.true & then.false) | (condition.false & otherwise.false),
    )


def _all(masks: list[Mask]) -> Mask:
    found: Mask = np.logical_and.reduce(masks)
    return found


def _any(masks: list[Mask]) -> Mask:
    found: Mask = np.logical_or.reduce(masks)
    return found
