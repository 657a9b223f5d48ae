"""Selectors evaluated once per distinct device, as far as the selector can tell them apart.

Ten thousand equal cards differ by uuid, but a selector that does not read the uuid gives
one answer for all: verdicts are kept per selector and per values of what it reads.
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
from dray_allocator.devices.node_devices import Card

_VERDICTS_KEPT = 4096
_SELECTORS_KEPT = 1024

Shape = tuple[object, ...]


@dataclass(slots=True)
class _Selector:
    program: Program | None
    fault: str
    reads: tuple[Read, ...] | None
    """None where the selector may look at anything of the device."""
    verdicts: dict[Shape, bool] = field(default_factory=dict)
    clauses: dict[Shape, tuple[ClauseResult, ...]] = field(default_factory=dict)


class SelectorCache:
    """Compiled selectors and their verdicts, within bounds. A cache: it changes no answer.

    They are read in ``environment``: the server's, for stored expressions.
    """

    def __init__(self, environment: Environment = DEFAULT) -> None:
        self._environment = environment
        self._selectors: dict[str, _Selector] = {}

    @property
    def minor(self) -> int:
        """The x of the server's Kubernetes 1.x, or of the nearest that is known."""
        return self._environment.minor

    def read_in(self, environment: Environment) -> bool:
        """Read selectors as another server does; whether that may change answers."""
        if environment == self._environment:
            return False
        self._environment = environment
        self._selectors.clear()
        return True

    def matches(self, expressions: Sequence[str], card: Card) -> bool:
        """Whether every selector is true; one that can't be evaluated does not match."""
        return all(self._verdict(self._compiled(text), card) for text in expressions)

    def explain(self, expression: str, card: Card) -> tuple[ClauseResult, ...]:
        """What each clause of a selector gives; one result with the fault if it can't compile."""
        selector = self._compiled(expression)
        if selector.program is None:
            return (ClauseResult(expression, None, selector.fault),)
        view = card.view
        shape = _shape(selector, view)
        if shape not in selector.clauses:
            _bound(selector.clauses, _VERDICTS_KEPT)
            selector.clauses[shape] = tuple(selector.program.explain(view))
        return selector.clauses[shape]

    def reads(self, expression: str) -> tuple[Read, ...] | None:
        """What a selector's verdict depends on; None where it may be anything of the device."""
        selector = self._compiled(expression)
        return () if selector.program is None else selector.reads

    def _verdict(self, selector: _Selector, card: Card) -> bool:
        if selector.program is None:
            return False
        view = card.view
        shape = _shape(selector, view)
        verdict = selector.verdicts.get(shape)
        if verdict is None:
            _bound(selector.verdicts, _VERDICTS_KEPT)
            verdict = selector.verdicts[shape] = _evaluated(selector.program, view)
        return verdict

    def _compiled(self, expression: str) -> _Selector:
        selector = self._selectors.get(expression)
        if selector is None:
            _bound(self._selectors, _SELECTORS_KEPT)
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


def _shape(selector: _Selector, view: DeviceView) -> Shape:
    """Equal for devices that the selector can't tell apart."""
    if selector.reads is None:
        return (view.driver, view.allow_multiple_allocations, view.broken, *_all_values(view))
    values = (read.value(view) for read in selector.reads)
    return (view.broken, *(identity(value) for value in values))


def _all_values(view: DeviceView) -> Shape:
    attributes = sorted(view.attributes.items(), key=lambda item: item[0])
    capacity = sorted(view.capacity.items(), key=lambda item: item[0])
    return (
        tuple((key, identity(value)) for key, value in attributes),
        tuple((key, identity(amount)) for key, amount in capacity),
    )


def identity(value: object) -> Shape:
    """Equal for values that no expression tells apart: ``1`` and ``true`` are not, and amounts
    differ by how Kubernetes holds them, too (``isInteger`` of 1 and of 1000m)."""
    match value:
        case Quantity():
            return (value.nano, value.binary, value.exponent, value.is_small)
        case tuple():
            return tuple(identity(item) for item in value)
        case _:
            return (type(value), value)


def named_reads(root: Expr) -> tuple[Read, ...] | None:
    """What an expression reads of the device, or None where it may read anything."""
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
