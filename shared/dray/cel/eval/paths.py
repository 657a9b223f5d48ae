"""Paths: reading fields and elements one after the other, from a variable or from any value.

Each step costs 1, even if it fails. An optional step costs 1 only if it finds something. The path
itself costs 1 more, unless its value is the key of another step or the branch of a ternary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.eval.calls import costing
from dray.cel.eval.frame import Closure, Frame
from dray.cel.library.values import (
    BROKEN,
    NONE,
    Optional,
    Value,
    as_qualifier,
    rewrapped,
    type_name,
)

_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class PathStep:
    """One ``.field`` or ``[key]``. ``key`` is a closure if the key is not constant."""

    constant: Value = None
    key: Closure | None = None
    optional: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it has a constant key and is not optional."""
        return self.key is None and not self.optional


def walk(root: Closure, steps: tuple[PathStep, ...]) -> Closure:
    """The value at the end of the path, without the cost of the path itself."""
    if not steps:
        return root
    if len(steps) == 1 and steps[0].is_plain:
        return _one_step(root, steps[0].constant)
    return lambda frame: _walked(frame, root(frame), steps)


def costing_one(closure: Closure) -> Closure:
    """``closure`` with the cost of a path."""
    return costing(closure, 1)


def _one_step(root: Closure, key: Value) -> Closure:
    is_text = type(key) is str

    def read(frame: Frame) -> Value:
        value = root(frame)
        if type(value) is Optional:
            return _walked(frame, value, (PathStep(key),))
        frame.cost += 1
        if is_text and isinstance(value, dict):
            try:
                return value[key]
            except KeyError:
                raise CelEvaluationError(f"no such key: {key}") from None
        return _item(value, key)

    return read


def _walked(frame: Frame, value: Value, steps: tuple[PathStep, ...]) -> Value:
    is_optional = type(value) is Optional
    if is_optional:
        if value is NONE:
            return NONE
        value = rewrapped(value).value
        if value is BROKEN:
            raise CelEvaluationError("unsupported conversion to ref.Val")
    for step in steps:
        is_optional = is_optional or step.optional
        if is_optional:
            key = step.constant if step.key is None else step.key(frame)
            value = _find(value, key)
            if value is _MISSING:
                return NONE
        else:
            value = _item(value, _key(step, frame))
        frame.cost += is_optional
    return Optional(value) if is_optional else value


def _key(step: PathStep, frame: Frame) -> Value:
    """The key of a step that costs 1 even if it fails."""
    if step.key is None:
        frame.cost += 1
        return step.constant
    try:
        key = step.key(frame)
    except CelEvaluationError:
        frame.cost += 1
        raise
    frame.cost += 1
    return key


def presence(operand: Closure, name: str, *, has_optional: bool, is_branch: bool) -> Closure:
    """``has(operand.name)``. Every domain is found, even an empty one, as in Kubernetes.

    In the branch of a ternary, upstream forgets to convert the result of optional steps to a bool.
    """

    def test(frame: Frame) -> Value:
        value = operand(frame)
        if has_optional or type(value) is Optional:
            found = _present_in_optional(frame, value, name)
            return (Optional(None) if found else NONE) if is_branch else found
        frame.cost += 1
        return _find(value, name) is not _MISSING

    return test


def costing_less(closure: Closure) -> Closure:
    """``closure``, costing 1 less: upstream wrongly subtracts it if ``has`` looks into a ternary.

    The cost is unsigned: if it would fall below 0, it exceeds every limit.
    """

    def test(frame: Frame) -> Value:
        try:
            value = closure(frame)
        except CelEvaluationError:
            frame.refund()
            raise
        frame.refund()
        return value

    return test


def _present_in_optional(frame: Frame, value: Value, name: str) -> bool:
    if type(value) is Optional:
        if value is NONE:
            return False
        value = value.value
    found = _find(value, name) is not _MISSING
    frame.cost += found
    return found


def _item(value: Value, key: Value) -> Value:
    """``value[key]``.

    Raises:
        CelEvaluationError: no such key, or an index beyond the list's end.
    """
    if isinstance(value, dict):
        try:
            return value[as_qualifier(key)]
        except KeyError:
            raise CelEvaluationError(f"no such key: {key}") from None
    if type(value) is list:
        at = _list_index(key)
        if not 0 <= at < len(value):
            raise CelEvaluationError(f"index out of bounds: {at}")
        return value[at]
    as_qualifier(key)
    raise CelEvaluationError(f"no such key: {key}")


def _find(value: Value, key: Value) -> Value:
    """``value[key]``, or a marker if there is none, also if ``value`` can't have keys."""
    if isinstance(value, dict):
        try:
            return value[as_qualifier(key)]
        except KeyError:
            return _MISSING
    as_qualifier(key)
    if type(value) is list:
        at = _list_index(key)
        return value[at] if 0 <= at < len(value) else _MISSING
    return _MISSING


def _list_index(key: Value) -> int:
    if type(key) is not str and type(key) is not bool:
        try:
            at = int(key)
        except (TypeError, ValueError, OverflowError):
            at = None
        if at is not None and at == key and -(2**63) <= at < 2**63:
            return at
    raise CelEvaluationError(f"unsupported index type or value '{type_name(key)}' in list")


_FIELDS: Final[dict[str, Callable[[Frame], Value]]] = {
    "driver": lambda frame: frame.device.driver,
    "attributes": lambda frame: frame.attributes,
    "capacity": lambda frame: frame.capacity,
    "allowMultipleAllocations": lambda frame: frame.device.allow_multiple_allocations,
}
DEVICE_FIELDS: Final = frozenset(_FIELDS)


def of_device(field: str, steps: tuple[PathStep, ...]) -> Closure:
    """``device.field`` and the steps after it, including the cost of the path.

    Selectors mostly read ``device.attributes["domain"].name``, so it has a closure of its own.
    """
    read = _FIELDS[field]
    constant = all(step.is_plain for step in steps)
    texts = [step.constant for step in steps]
    if constant and len(steps) == 2 and field in ("attributes", "capacity"):
        return _member(field, *texts)

    def root(frame: Frame) -> Value:
        frame.cost += 2
        return read(frame)

    return walk(root, steps)


def _member(field: str, domain: str, name: str) -> Closure:
    def of_attributes(frame: Frame) -> Value:
        frame.cost += 4
        try:
            return frame.attributes[domain][name]
        except KeyError:
            raise CelEvaluationError(f"no such key: {name}") from None

    def of_capacity(frame: Frame) -> Value:
        frame.cost += 4
        try:
            return frame.capacity[domain][name]
        except KeyError:
            raise CelEvaluationError(f"no such key: {name}") from None

    return of_attributes if field == "attributes" else of_capacity


def has_of_device(field: str, domain: str, name: str) -> Closure:
    """``has(device.attributes["domain"].name)``."""

    def of_attributes(frame: Frame) -> bool:
        frame.cost += 3
        return name in frame.attributes[domain]

    def of_capacity(frame: Frame) -> bool:
        frame.cost += 3
        return name in frame.capacity[domain]

    return of_attributes if field == "attributes" else of_capacity
