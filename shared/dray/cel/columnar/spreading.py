"""From verdicts per value to masks over all devices."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from dray.cel.columnar.columns import Codes, Column, Mask
from dray.cel.columnar.forms import ERROR, FALSE, STOPPED, TRUE
from dray.cel.columnar.plan import Condition, Gate, Part
from dray.cel.columnar.verdicts import Verdicts

_FEW: Final = 12
"""Comparing a narrow column with so many codes is as fast as looking each code up."""


_TRUE: Final = bytes([TRUE])
_IS_TRUE: Final = bytes(verdict == TRUE for verdict in range(256))
_IS_NOT_FALSE: Final = bytes(verdict != FALSE for verdict in range(256))
_INVERTED: Final = bytes(one == 0 for one in range(256))


class Sides:
    """Where a part is true and where it is false; elsewhere it is an error."""

    def __init__(self, true: Mask, false: Mask) -> None:
        self.true = true
        self.false = false


class Found(NamedTuple):
    """What a conjunction gives on every slot."""

    match: Mask
    errors: Mask | None
    """None where there is none."""


def conjunction(parts: Iterable[Part], slots: int) -> Found | None:
    """Where the ``&&`` of ``parts`` is true, and where it is an error.

    None if a condition ends the evaluation for some value, so that the parts can't tell.
    Conditions on one column are joined before they are spread over the devices.
    """
    tables: dict[Verdicts, list[int]] = {}
    gates: list[Gate] = []
    for part in parts:
        if isinstance(part, Condition):
            tables.setdefault(part.verdicts, []).append(part.position)
        else:
            gates.append(part)
    joined = [(table.column, _joined(table, at)) for table, at in tables.items()]
    if any(_stops(verdict) for _, verdict in joined) or any(map(_may_stop, gates)):
        return None
    sides = [_sides(gate, slots) for gate in gates]
    match = np.ones(slots, np.bool_)
    for column, verdict in joined:
        match &= spread(column, verdict.translate(_IS_TRUE), slots)
    for one in sides:
        match &= one.true
    may_fail = any(ERROR in verdict for _, verdict in joined)
    if not may_fail and all(bool(np.all(one.true | one.false)) for one in sides):
        return Found(match, None)
    errors = ~match
    for column, verdict in joined:
        errors &= spread(column, verdict.translate(_IS_NOT_FALSE), slots)
    for one in sides:
        errors &= ~one.false
    return Found(match, errors)


def spread(column: Column, chosen: bytes, slots: int) -> Mask:
    """Where a column has one of the codes whose byte in ``chosen`` is 1, not 0."""
    codes = column.codes[:slots]
    hits, few = chosen.count(1), _FEW // codes.itemsize
    misses = len(chosen) - hits
    if hits <= min(few, misses):
        return _any_of(codes, _codes(chosen))
    if misses <= few:
        return _none_of(codes, _codes(chosen.translate(_INVERTED)))
    if codes.itemsize == 1:
        return np.frombuffer(
            bytearray(codes.tobytes().translate(chosen.ljust(256, b"\0"))), np.bool_
        )
    found: Mask = np.frombuffer(chosen, np.bool_)[codes]
    return found


def _any_of(codes: Codes, wanted: list[int]) -> Mask:
    if not wanted:
        return np.zeros(len(codes), np.bool_)
    found: Mask = codes == wanted[0]
    for code in wanted[1:]:
        found |= codes == code
    return found


def _none_of(codes: Codes, unwanted: list[int]) -> Mask:
    if not unwanted:
        return np.ones(len(codes), np.bool_)
    found: Mask = codes != unwanted[0]
    for code in unwanted[1:]:
        found &= codes != code
    return found


def _codes(chosen: bytes) -> list[int]:
    if len(chosen) > 256:
        found: list[int] = np.flatnonzero(np.frombuffer(chosen, np.bool_)).tolist()
        return found
    return [code for code, one in enumerate(chosen) if one]


def _joined(table: Verdicts, positions: list[int]) -> bytes:
    """The verdict of conditions on one column together, by code."""
    found = table.of(positions[0])
    for position in positions[1:]:
        found = _both(found, table.of(position))
    return found


def _both(first: bytes, second: bytes) -> bytes:
    """``all_of`` for two rows of verdicts; as whole numbers, the short ones are soon joined."""
    size = len(first)
    one, other = int.from_bytes(first), int.from_bytes(second)
    true = int.from_bytes(_TRUE * size)
    return ((one & other & true) | ((one | other) & ~true)).to_bytes(size)


def _stops(verdict: bytes) -> bool:
    return any(stopped in verdict for stopped in (STOPPED, STOPPED | FALSE))


def _may_stop(part: Part) -> bool:
    """Whether a condition of ``part`` ends the evaluation for some value."""
    if isinstance(part, Gate):
        return any(map(_may_stop, part.inputs))
    return _stops(part.verdicts.of(part.position))


def _sides(part: Part, slots: int) -> Sides:
    if isinstance(part, Condition):
        column, verdict = part.verdicts.column, part.verdicts.of(part.position)
        true = spread(column, verdict.translate(_IS_TRUE), slots)
        false = ~spread(column, verdict.translate(_IS_NOT_FALSE), slots)
        return Sides(true, false)
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
