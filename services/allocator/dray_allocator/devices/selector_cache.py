"""A cache of selector results, by the selector and the values that it reads of a device.

Ten thousand equal cards differ by uuid, but a selector that does not read the uuid has one result
for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dray.api.quantities import Quantity
from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelError, CelEvaluationError
from dray.cel.eval.program import ClauseResult, Program, compile
from dray.cel.reads import Read, read_of
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr
from dray.cel.view import DeviceView
from dray_allocator.devices.published_devices import Card

_MAX_RESULTS = 4096
_MAX_SELECTORS = 1024

ReadValues = tuple[object, ...]


@dataclass(slots=True)
class _Selector:
    program: Program | None
    fault: str
    reads: tuple[Read, ...] | None
    """None if the selector may read any field of the device."""
    results: dict[ReadValues, bool] = field(default_factory=dict)
    clauses: dict[ReadValues, tuple[ClauseResult, ...]] = field(default_factory=dict)


class SelectorCache:
    """Compiled selectors and their results, limited in number.

    They are compiled in ``environment``: the API server's, for stored expressions.
    """

    def __init__(self, environment: Environment = DEFAULT) -> None:
        self._environment = environment
        self._selectors: dict[str, _Selector] = {}

    @property
    def minor(self) -> int:
        """The x of the API server's Kubernetes 1.x, or of the nearest supported version."""
        return self._environment.minor

    def set_environment(self, environment: Environment) -> bool:
        """Use another CEL environment from now on; whether it differs from the one before."""
        if environment == self._environment:
            return False
        self._environment = environment
        self._selectors.clear()
        return True

    def matches(self, expressions: Sequence[str], card: Card) -> bool:
        """Whether all selectors are true; one that can't be compiled or evaluated is not."""
        return all(self._result(self._compiled(text), card) for text in expressions)

    def explain(self, expression: str, card: Card) -> tuple[ClauseResult, ...]:
        """The result of each clause of a selector; one result with the error if it can't be
        compiled."""
        selector = self._compiled(expression)
        if selector.program is None:
            return (ClauseResult(expression, None, selector.fault),)
        view = card.view
        values = _read_values(selector, view)
        if values not in selector.clauses:
            _bound(selector.clauses, _MAX_RESULTS)
            selector.clauses[values] = tuple(selector.program.explain(view))
        return selector.clauses[values]

    def reads(self, expression: str) -> tuple[Read, ...] | None:
        """The fields that a selector reads; None if it may read any field of the device."""
        selector = self._compiled(expression)
        return () if selector.program is None else selector.reads

    def _result(self, selector: _Selector, card: Card) -> bool:
        if selector.program is None:
            return False
        view = card.view
        values = _read_values(selector, view)
        result = selector.results.get(values)
        if result is None:
            _bound(selector.results, _MAX_RESULTS)
            result = selector.results[values] = _evaluated(selector.program, view)
        return result

    def _compiled(self, expression: str) -> _Selector:
        selector = self._selectors.get(expression)
        if selector is None:
            _bound(self._selectors, _MAX_SELECTORS)
            selector = self._selectors[expression] = _compile(expression, self._environment)
        return selector


def _compile(expression: str, environment: Environment) -> _Selector:
    try:
        program = compile(expression, environment)
    except CelError as error:
        return _Selector(None, str(error).splitlines()[0], None)
    return _Selector(program, "", named_reads(program.tree))


def _evaluated(program: Program, view: DeviceView) -> bool:
    try:
        return program.matches(view)
    except CelEvaluationError:
        return False


def _read_values(selector: _Selector, view: DeviceView) -> ReadValues:
    """The values that the selector reads: equal for devices with the same result."""
    if selector.reads is None:
        return (view.driver, view.allow_multiple_allocations, view.broken, *_all_values(view))
    return (view.broken, *[identity(read.value(view)) for read in selector.reads])


def _all_values(view: DeviceView) -> ReadValues:
    attributes = sorted(view.attributes.items(), key=lambda item: item[0])
    capacity = sorted(view.capacity.items(), key=lambda item: item[0])
    return (
        tuple((key, identity(value)) for key, value in attributes),
        tuple((key, identity(amount)) for key, amount in capacity),
    )


def identity(value: object) -> ReadValues:
    """Equal for values that every expression treats alike. ``1`` and ``true`` differ; quantities
    also differ by their representation in Go (``isInteger`` of 1 and of 1000m)."""
    match value:
        case Quantity():
            return (value.nano, value.binary, value.exponent, value.is_small)
        case tuple():
            return tuple(identity(item) for item in value)
        case _:
            return (type(value), value)


def named_reads(root: Expr) -> tuple[Read, ...] | None:
    """The fields that an expression reads of the device; None if it may read any."""
    found: dict[Read, None] = {}
    ahead = [root]
    while ahead:
        node = ahead.pop()
        read = read_of(node) or _presence(node)
        if read is not None:
            found[read] = None
        elif isinstance(node, tree.Ident) and node.name in ("device", ".device"):
            return None
        else:
            ahead.extend(tree.children(node))
    return tuple(found)


def _presence(node: Expr) -> Read | None:
    """``"x" in device.attributes["d"]``: reads x of d."""
    match node:
        case tree.Binary(operator="in", left=tree.Literal(value=str() as name), right=right):
            return read_of(tree.Select(right, name))
        case _:
            return None


def _bound(cache: dict[Any, Any], limit: int) -> None:
    if len(cache) >= limit:
        cache.clear()
