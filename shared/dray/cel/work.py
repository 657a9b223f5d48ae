"""How much work a function does on its arguments, so that no data can make one run away."""

from typing import Final

from dray.cel.values import Value

GROWING: Final = frozenset(
    ("join", "replace", "split", "findAll", "strings.quote", "lists.range", "slice", "flatten",
     "reverse", "distinct", "sort", "sum", "min", "max", "isSorted", "sets.contains",
     "sets.equivalent", "sets.intersects")
)  # fmt: skip
"""Functions whose work or result grows with their arguments."""


def steps_of(function: str, values: list[Value]) -> int:
    """Steps to account for before one of ``GROWING`` is called.

    A range costs its length, finding distinct elements its square; others at most the product
    of the lengths of their arguments, by tens.
    """
    if function == "lists.range":
        return max(0, values[0]) if type(values[0]) is int else 0
    if function == "distinct":
        return _total(values[0]) ** 2
    size = 1
    for value in values:
        size *= max(1, _total(value))
    return size // 10


def length(value: Value) -> int:
    """Characters, bytes or elements of a value; 0 for what has no length."""
    return len(value) if isinstance(value, (str, bytes, list)) else 0


def _total(value: Value) -> int:
    if isinstance(value, list):
        return sum(map(length, value)) + len(value)
    return length(value)
