"""Calls as closures: evaluate the arguments, count the cost, apply the function.

As upstream, a call with two arguments evaluates the second even if the first has failed. A call
with more arguments stops at the first that fails, and costs nothing then unless that was the last.
"""

from collections.abc import Callable, Sequence

from dray.cel.errors import CelEvaluationError
from dray.cel.eval.frame import FAILED, Closure, Frame, settle
from dray.cel.eval.runtime_cost import Charge, equality_cost, size, tenth
from dray.cel.library.values import Value, equal
from dray.cel.library.work_steps import GROWING, HOLDING, MADE, steps_of, steps_to_compare

Function = Callable[..., Value]


def call_closure(
    name: str,
    function: Function,
    arguments: Sequence[Closure],
    charge: Charge | int,
    *,
    in_turn: bool,
) -> Closure:
    """A call of ``function``. ``in_turn``: the first argument that fails ends the call."""
    in_turn = in_turn or len(arguments) > 2
    if isinstance(charge, int) and name not in GROWING:
        if not arguments:
            return _constant(function, charge)
        if len(arguments) == 1:
            return _unary(function, arguments[0], charge)
        if len(arguments) == 2 and not in_turn:
            return _binary(function, arguments[0], arguments[1], charge)
    cost = (lambda values, result: charge) if isinstance(charge, int) else charge
    if len(arguments) == 1:
        return _measured_unary(name, function, arguments[0], cost)
    return _measured(name, function, tuple(arguments), cost, in_turn=in_turn)


def costing(closure: Closure, cost: int) -> Closure:
    """``closure`` with a cost that is counted after it, even if it fails. The cost is not counted
    if the evaluation was stopped, so ``finally`` can't be used."""

    def call(frame: Frame) -> Value:
        try:
            result = closure(frame)
        except CelEvaluationError:
            frame.cost += cost
            raise
        frame.cost += cost
        return result

    return call


def _constant(function: Function, cost: int) -> Closure:
    value = function()

    def call(frame: Frame) -> Value:
        frame.cost += cost
        return value

    return call


def _unary(function: Function, argument: Closure, cost: int) -> Closure:
    def call(frame: Frame) -> Value:
        try:
            result = function(argument(frame))
        except CelEvaluationError:
            frame.cost += cost
            raise
        frame.cost += cost
        return result

    return call


def _binary(function: Function, left: Closure, right: Closure, cost: int) -> Closure:
    def call(frame: Frame) -> Value:
        try:
            first = left(frame)
        except CelEvaluationError:
            settle(right, frame)
            frame.cost += cost
            raise
        try:
            result = function(first, right(frame))
        except CelEvaluationError:
            frame.cost += cost
            raise
        frame.cost += cost
        return result

    return call


def _measured_unary(name: str, function: Function, argument: Closure, charge: Charge) -> Closure:
    is_growing = name in GROWING

    def call(frame: Frame) -> Value:
        try:
            value = argument(frame)
        except CelEvaluationError:
            frame.charge(charge((FAILED,), FAILED))
            raise
        if is_growing:
            frame.spend(steps_of(name, (value,)))
        try:
            result = function(value)
        except CelEvaluationError:
            frame.charge(charge((value,), FAILED))
            raise
        frame.charge(charge((value,), result))
        return result

    return call


def _measured(
    name: str, function: Function, arguments: tuple[Closure, ...], charge: Charge, *, in_turn: bool
) -> Closure:
    is_growing = name in GROWING
    made = MADE.get(name, 0)

    def call(frame: Frame) -> Value:
        values = _evaluated(arguments, frame, charge, in_turn=in_turn)
        if is_growing:
            frame.spend(steps_of(name, values))
        try:
            result = function(*values)
        except CelEvaluationError:
            frame.charge(charge(values, FAILED))
            raise
        if made:
            frame.spend(made * len(result))
        frame.charge(charge(values, result))
        return result

    return call


def _evaluated(
    arguments: tuple[Closure, ...], frame: Frame, charge: Charge, *, in_turn: bool
) -> list[Value]:
    values: list[Value] = []
    failure: CelEvaluationError | None = None
    for argument in arguments:
        try:
            values.append(argument(frame))
        except CelEvaluationError as error:
            values.append(FAILED)
            failure = failure or error
            if in_turn and len(values) < len(arguments):
                raise
    if failure is not None:
        frame.charge(charge(values, FAILED))
        raise failure
    return values


def equality(left: Closure, right: Closure, *, negated: bool) -> Closure:
    """``left == right``, or ``!=``, which is true for values that can't be compared."""

    def compare(frame: Frame) -> bool:
        try:
            first = left(frame)
        except CelEvaluationError:
            second = settle(right, frame)
            frame.cost += _equality_charge(FAILED, second, negated)
            raise
        try:
            second = right(frame)
        except CelEvaluationError:
            frame.cost += _equality_charge(first, FAILED, negated)
            raise
        kind = type(first)
        if kind is type(second):
            if kind is int or kind is bool:
                frame.cost += 1
                return (first == second) is not negated
            if kind is str:
                frame.cost += (min(len(first), len(second)) + 9) // 10
                return (first == second) is not negated
        return _compared(frame, first, second, negated)

    return compare


def _compared(frame: Frame, first: Value, second: Value, negated: bool) -> bool:
    frame.cost += _equality_charge(first, second, negated)
    if isinstance(first, HOLDING):
        frame.spend(steps_to_compare(first, second))
    try:
        return equal(first, second) is not negated
    except CelEvaluationError:
        if negated:
            return True
        raise


def equals_text(operand: Closure, text: str, *, negated: bool) -> Closure:
    """``operand == "text"``, the most frequent clause in selectors."""
    longest = len(text)
    other = min(1, longest)

    def compare(frame: Frame) -> bool:
        try:
            value = operand(frame)
        except CelEvaluationError:
            frame.cost += other
            raise
        if type(value) is str:
            length = len(value)
            frame.cost += ((length if length < longest else longest) + 9) // 10
            return (value == text) is not negated
        return _compared(frame, value, text, negated)

    return compare


def _equality_charge(left: Value, right: Value, negated: bool) -> int:
    if negated:
        return tenth(min(size(left), size(right)))
    return equality_cost(left, right)
