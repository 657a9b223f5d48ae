"""The comprehension macros: loops over a list or map, with the cost of their expansions.

Upstream expands a macro, and the added parts have a cost: testing whether to continue, and reading
and changing the result so far. Constants such as ``_ROUND`` are these costs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.eval import calls
from dray.cel.eval.frame import FAILED, Closure, Frame, LazyValue
from dray.cel.eval.runtime_cost import LIST_COST, compared_cost
from dray.cel.library.functions import FUNCTIONS
from dray.cel.library.lists import in_order_of
from dray.cel.library.values import (
    NONE,
    Optional,
    Value,
    as_key,
    from_key,
    no_overload,
    rewrapped,
    type_name,
)
from dray.cel.library.work_steps import steps_of

_COUNTED: Final = 2
_INSERTED: Final = 2


@dataclass(frozen=True, slots=True)
class Loop:
    """A compiled macro: its operand, the slots of its variables, and its arguments."""

    name: str
    operand: Closure
    slots: tuple[int, ...]
    arguments: tuple[Closure, ...]
    weight: int
    """Steps of one round: the nodes of its body."""
    is_constant: bool = False
    """Whether the last argument is a constant, so that a list of it costs nothing."""
    overload: str | None = None
    """For ``sortBy``: the overload that sorts, if the types determine it."""
    is_lossy: bool = True
    """For ``optMap``, which is a ternary: whether its branches change the optionals that they
    return."""

    def rounds(self, frame: Frame) -> Iterator[tuple[Value, Value]]:
        """Set the variables for each round, then give its key and item."""
        value = self.operand(frame)
        slots, weight, local = self.slots, self.weight, frame.locals
        if type(value) is list:
            if len(slots) == 1:
                slot = slots[0]
                for at, item in enumerate(value):
                    frame.spend(weight)
                    local[slot] = item
                    yield at, item
                return
            pairs: Iterator[tuple[Value, Value]] = enumerate(value)
        elif isinstance(value, dict):
            pairs = ((from_key(key), item) for key, item in value.items())
        else:
            raise CelEvaluationError(f"got '{type_name(value)}', expected iterable type")
        for key, item in pairs:
            frame.spend(weight)
            local[slots[0]] = key
            if len(slots) == 2:
                local[slots[1]] = item
            yield key, key if len(slots) == 1 else item

    def holds(self, frame: Frame) -> bool:
        """The value of the first argument, which must be a bool."""
        value = self.arguments[0](frame)
        if value is True or value is False:
            return value
        raise no_overload("_?_:_", value)


def _quantified(loop: Loop, deciding: bool) -> Closure:
    """``all`` and ``exists``: one deciding item determines the result, even if others fail."""
    going_on = 3 if deciding else 2
    a_round = going_on + 1
    predicate = loop.arguments[0]

    def quantify(frame: Frame) -> bool:
        failure: CelEvaluationError | None = None
        is_decided = False
        for _ in loop.rounds(frame):
            if is_decided:
                frame.cost += going_on
                break
            frame.cost += a_round
            try:
                value = predicate(frame)
                if value is deciding:
                    is_decided = True
                elif type(value) is not bool:
                    failure = failure or no_overload("_&&_", value)
            except CelEvaluationError as error:
                failure = failure or error
        frame.cost += 1
        if is_decided:
            return deciding
        if failure is not None:
            raise failure
        return not deciding

    return quantify


def _exists_one(loop: Loop) -> Closure:
    def count(frame: Frame) -> bool:
        found, failure = 0, None
        for _ in loop.rounds(frame):
            try:
                if loop.holds(frame):
                    found += 1
                    frame.cost += _COUNTED
            except CelEvaluationError as error:
                failure = error if failure is None else failure
        frame.cost += _COUNTED
        if failure is not None:
            raise failure
        return found == 1

    return count


def _listed(loop: Loop, item: Closure, condition: Closure | None, item_cost: int) -> Closure:
    """``map``, ``filter``, ``transformList``: an error does not end the loop, but is the result."""

    def build(frame: Frame) -> list[Value]:
        found: list[Value] = []
        failure: CelEvaluationError | None = None
        for _ in loop.rounds(frame):
            try:
                if condition is not None and not loop.holds(frame):
                    continue
            except CelEvaluationError as error:
                failure = failure or error
                continue
            frame.cost += 1
            try:
                found.append(item(frame))
            except CelEvaluationError as error:
                failure = failure or error
            frame.cost += item_cost
        frame.cost += 1
        if failure is not None:
            raise failure
        return found

    return build


def _map(loop: Loop) -> Closure:
    condition = loop.arguments[0] if len(loop.arguments) == 2 else None
    cost = 1 if loop.is_constant else 1 + LIST_COST
    return _listed(loop, loop.arguments[-1], condition, cost)


def _filter(loop: Loop) -> Closure:
    slot = loop.slots[0]
    cost = 1 + LIST_COST + 1
    return _listed(loop, lambda frame: frame.locals[slot], loop.arguments[0], cost)


def _mapped(loop: Loop, entries: Callable[[Frame, Value], dict[Value, Value]], own: int) -> Closure:
    """``transformMap`` and ``transformMapEntry``. ``own``: the extra cost of each entry."""

    def build(frame: Frame) -> dict[Value, Value]:
        found: dict[Value, Value] = {}
        failure: CelEvaluationError | None = None
        is_filtered = len(loop.arguments) == 2
        for key, _ in loop.rounds(frame):
            try:
                if is_filtered and not loop.holds(frame):
                    continue
                if failure is not None and own == _INSERTED + 1:
                    frame.cost += 1
                    continue
                frame.cost += own - 1
                _insert(found, _costing_one(frame, entries, key))
            except CelEvaluationError as error:
                failure = failure or error
        frame.cost += 1
        if failure is not None:
            raise failure
        return found

    return build


def _costing_one(
    frame: Frame, entries: Callable[[Frame, Value], dict[Value, Value]], key: Value
) -> dict[Value, Value]:
    try:
        found = entries(frame, key)
    except CelEvaluationError:
        frame.cost += 1
        raise
    frame.cost += 1
    return found


def _insert(found: dict[Value, Value], entries: Value) -> None:
    if not isinstance(entries, dict):
        raise no_overload("cel.@mapInsert", entries)
    for key, value in entries.items():
        if key in found:
            raise CelEvaluationError(f"insert failed: key {from_key(key)} already exists")
        found[key] = value


def _transform_map(loop: Loop) -> Closure:
    transform = loop.arguments[-1]
    return _mapped(loop, lambda frame, key: {as_key(key): transform(frame)}, _INSERTED + 1)


def _transform_entries(loop: Loop) -> Closure:
    return _mapped(loop, lambda frame, key: loop.arguments[-1](frame), _INSERTED)


def _sort_by(loop: Loop) -> Closure:
    """The operand is evaluated once and read twice. Each read costs 1."""

    def sort(frame: Frame) -> list[Value]:
        items: Value = FAILED
        try:
            items = loop.operand(frame)
            frame.cost += 2
            found: Value = _map(replace(loop, operand=lambda _: items))(frame)
        except CelEvaluationError:
            frame.cost += 0 if items is not FAILED else 2
            _charge_sort(loop, frame, FAILED)
            raise
        frame.spend(steps_of("@sortByAssociatedKeys", (items, found)))
        _charge_sort(loop, frame, found)
        return in_order_of(items, found)

    return sort


def _charge_sort(loop: Loop, frame: Frame, keys: Value) -> None:
    frame.cost += 1 if loop.overload is None else compared_cost(keys)


def _optional(loop: Loop, wrap: Callable[[Value], Value], own: int) -> Closure:
    """``optMap``: the operand is evaluated again when its value is read."""
    slot = loop.slots[0]
    operand = loop.operand

    later = LazyValue(calls.call_closure("value", FUNCTIONS["value"], [operand], 1, in_turn=False))

    counted = calls.costing(operand, 1)
    result = calls.costing(loop.arguments[0], own) if own else loop.arguments[0]

    def apply(frame: Frame) -> Value:
        optional = counted(frame)
        if type(optional) is not Optional:
            raise no_overload("hasValue", optional)
        if optional is NONE:
            frame.cost += 1
            return NONE
        frame.locals[slot] = later
        value = wrap(result(frame))
        is_changed = loop.is_lossy and type(value) is Optional and value is not NONE
        return rewrapped(value) if is_changed else value

    return apply


MACROS: Final[dict[str, Callable[[Loop], Closure]]] = {
    "all": lambda loop: _quantified(loop, deciding=False),
    "exists": lambda loop: _quantified(loop, deciding=True),
    "exists_one": _exists_one,
    "existsOne": _exists_one,
    "filter": _filter,
    "map": _map,
    "transformList": _map,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entries,
    "sortBy": _sort_by,
    "optMap": lambda loop: _optional(loop, Optional, 1),
    "optFlatMap": lambda loop: _optional(loop, lambda value: value, 0),
}
