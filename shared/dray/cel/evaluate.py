"""The exact evaluator: compile a selector once, ask it about one device at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dray.cel import tree
from dray.cel.check import check_selector
from dray.cel.closures import closure
from dray.cel.constants import check_constants
from dray.cel.device import DeviceView
from dray.cel.errors import CelEvaluationError, CelSyntaxError
from dray.cel.frame import Closure, Frame, Scope
from dray.cel.reads import Read, reads_of
from dray.cel.syntax import parse
from dray.cel.tree import Expr
from dray.cel.values import Value, type_name


@dataclass(frozen=True, slots=True)
class ClauseResult:
    """What one top-level ``&&`` term of a selector gives on one device."""

    text: str
    """The clause as written."""
    value: bool | None
    """None where evaluation failed."""
    error: str = ""
    read: Mapping[str, Value | None] = field(default_factory=dict)
    """What it read, by the text that reads it; None where the device lacks it."""


@dataclass(frozen=True, slots=True)
class _Clause:
    text: str
    evaluate: Closure
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A selector that passed the check. Immutable; safe to share and to keep."""

    expression: str
    tree: Expr
    _evaluate: Closure = field(repr=False, compare=False)
    _clauses: tuple[_Clause, ...] = field(repr=False, compare=False)

    def matches(self, device: DeviceView) -> bool:
        """Whether ``device`` is selected.

        Raises:
            CelEvaluationError: it can't be told: no such key, no such overload, overflow, too
                many steps, or a device with a broken attribute.
        """
        device.check()
        return _truth(self._evaluate, device)

    def explain(self, device: DeviceView) -> list[ClauseResult]:
        """What each top-level ``&&`` term gives on ``device``, in the order of the text."""
        return [_explained(clause, device) for clause in self._clauses]


@lru_cache(maxsize=2048)
def compile(expression: str) -> Program:
    """Parse and check a selector. Results are kept, for a fleet has few selectors.

    Raises:
        CelSyntaxError: not CEL, longer than 10 KiB or nested too deeply.
        CelTypeError: not a selector in the environment of DRA.
        CelUnsupportedError: it calls a function that dray can't evaluate.
    """
    try:
        root = parse(expression)
        check_selector(root, expression)
        check_constants(root, expression)
        clauses = tuple(_clause(term, expression) for term in conjuncts(root))
        return Program(expression, root, closure(root, Scope()), clauses)
    except RecursionError:
        raise CelSyntaxError("expression recursion limit exceeded", expression, 1, 1) from None


def conjuncts(root: Expr) -> list[Expr]:
    """The top-level ``&&`` terms of an expression, nested ones included, in order."""
    if isinstance(root, tree.Logical) and root.operator == "&&":
        return [inner for term in root.terms for inner in conjuncts(term)]
    return [root]


def _clause(term: Expr, expression: str) -> _Clause:
    text = expression[term.place.start : term.place.end]
    return _Clause(text, closure(term, Scope()), reads_of(term))


def _truth(evaluate: Closure, device: DeviceView) -> bool:
    try:
        value = evaluate(Frame(device))
    except RecursionError:
        raise CelEvaluationError("expression recursion limit exceeded") from None
    if type(value) is not bool:
        raise CelEvaluationError(
            f"CEL result of type {type_name(value)} could not be converted to bool"
        )
    return value


def _explained(clause: _Clause, device: DeviceView) -> ClauseResult:
    read = {read.text: read.value(device) for read in clause.reads}
    try:
        device.check()
        return ClauseResult(clause.text, _truth(clause.evaluate, device), "", read)
    except CelEvaluationError as error:
        return ClauseResult(clause.text, None, str(error), read)
