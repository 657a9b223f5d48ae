"""The comprehension macros: loops over a list or map, every iteration counted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.frame import Closure, Frame
from dray.cel.values import NONE, Optional, Value, as_key, from_key, no_overload, type_name


@dataclass(frozen=True, slots=True)
class Loop:
    """A macro made ready: what it runs over, where its variables go, what it evaluates."""

    operand: Closure
    slots: tuple[int, ...]
    arguments: tuple[Closure, ...]
    weight: int
    """Steps of one iteration: the nodes of its body."""

    def rounds(self, frame: Frame) -> Iterator[tuple[Value, Value]]:
        """Key and item of each round, after the variables are set."""
        value = self.operand(frame)
        if isinstance(value, dict):
            pairs: Iterator[tuple[Value, Value]] = ((from_key(k), v) for k, v in value.items())
        elif type(value) is list:
            pairs = enumerate(value)
        else:
            raise CelEvaluationError(f"got '{type_name(value)}', expected iterable type")
        over_items = type(value) is list
        for key, item in pairs:
            frame.spend(self.weight)
            single = item if over_items else key
            given = (single,) if len(self.slots) == 1 else (key, item)
            frame.locals.update(zip(self.slots, given, strict=True))
            yield key, single

    def holds(self, frame: Frame) -> bool:
        """The first argument, which must be a bool."""
        value = self.arguments[0](frame)
        if type(value) is not bool:
            raise no_overload("_?_:_", value)
        return value

    def kept(self, frame: Frame) -> Iterator[Value]:
        """Keys of the rounds that pass the filter, where the macro has one."""
        for key, _ in self.rounds(frame):
            if len(self.arguments) == 1 or self.holds(frame):
                yield key


def _quantified(loop: Loop, deciding: bool) -> Closure:
    """``all`` and ``exists``: one deciding item settles it, whatever fails elsewhere."""

    def quantify(frame: Frame) -> bool:
        failure: CelEvaluationError | None = None
        for _ in loop.rounds(frame):
            try:
                if loop.holds(frame) is deciding:
                    return deciding
            except CelEvaluationError as error:
                if frame.steps_left < 0:
                    raise
                failure = failure or error
        if failure is not None:
            raise failure
        return not deciding

    return quantify


def _exists_one(loop: Loop) -> Closure:
    return lambda frame: sum([loop.holds(frame) for _ in loop.rounds(frame)]) == 1


def _filter(loop: Loop) -> Closure:
    return lambda frame: [item for _, item in loop.rounds(frame) if loop.holds(frame)]


def _map(loop: Loop) -> Closure:
    return lambda frame: [loop.arguments[-1](frame) for _ in loop.kept(frame)]


def _transform_map(loop: Loop) -> Closure:
    return lambda frame: {as_key(key): loop.arguments[-1](frame) for key in loop.kept(frame)}


def _transform_entries(loop: Loop) -> Closure:
    def transform(frame: Frame) -> dict[Value, Value]:
        found: dict[Value, Value] = {}
        for _ in loop.kept(frame):
            entries = loop.arguments[-1](frame)
            if not isinstance(entries, dict):
                raise no_overload("transformMapEntry", entries)
            for key, value in entries.items():
                if key in found:
                    raise CelEvaluationError(f"insert failed: key {from_key(key)} already exists")
                found[key] = value
        return found

    return transform


def _optional(loop: Loop, wrap: Callable[[Value], Value]) -> Closure:
    def apply(frame: Frame) -> Value:
        optional = loop.operand(frame)
        if type(optional) is not Optional:
            raise no_overload("hasValue", optional)
        if optional is NONE:
            return NONE
        frame.locals[loop.slots[0]] = optional.value
        return wrap(loop.arguments[0](frame))

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
    "optMap": lambda loop: _optional(loop, Optional),
    "optFlatMap": lambda loop: _optional(loop, lambda value: value),
}
