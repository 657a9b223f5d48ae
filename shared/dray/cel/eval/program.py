"""The exact evaluator: compile a selector once, and evaluate it on one device at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dray.cel.check.check_result import CheckedExpr
from dray.cel.check.static_check import check_selector
from dray.cel.cost.estimate import estimate
from dray.cel.description import describe
from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelCostError, CelEvaluationError, CelSyntaxError
from dray.cel.eval.closures import compiler_of
from dray.cel.eval.compiler import Compiler
from dray.cel.eval.frame import Closure, Frame
from dray.cel.library.values import Value, type_name
from dray.cel.limits import COST_LIMIT, StoppedError
from dray.cel.reads import Read, shown_reads
from dray.cel.syntax import tree
from dray.cel.syntax.parser import parse
from dray.cel.syntax.tree import Expr
from dray.cel.view import DeviceView


@dataclass(frozen=True, slots=True)
class ClauseResult:
    """The result of one top-level ``&&`` term of a selector on one device."""

    text: str
    """The clause as written."""
    value: bool | None
    """None if evaluation failed."""
    error: str = ""
    read: Mapping[str, Value | None] = field(default_factory=dict)
    """The values that it read, by the text that reads them; None if the device lacks one."""


@dataclass(frozen=True, slots=True)
class EvaluationOutcome:
    """The result of an evaluation, and its cost in Kubernetes' units."""

    value: bool | None
    error: CelEvaluationError | None = None
    cost: int | None = None
    """None if the device's attributes can't be converted, so that nothing was evaluated."""


@dataclass(frozen=True, slots=True)
class _CompiledClause:
    text: str
    evaluate: Closure
    slots: int
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A selector that passed the check. Immutable; can be shared and kept."""

    expression: str
    tree: Expr
    checked: CheckedExpr = field(repr=False, compare=False)
    _evaluate: Closure = field(repr=False, compare=False)
    _slots: int = field(repr=False, compare=False)
    _clauses: list[_CompiledClause] = field(default_factory=list, repr=False, compare=False)
    """Made for the first explanation."""

    @property
    def cost(self) -> int:
        """The highest cost of an evaluation, as the API server estimates it."""
        return estimate(self.checked)

    @property
    def words(self) -> str:
        """What it requires of a device, in words."""
        return describe(self.tree)

    def matches(self, device: DeviceView) -> bool:
        """Whether ``device`` is selected.

        Raises:
            CelEvaluationError: the result is unknown: no such key, no such overload, overflow, the
                cost is too high (``CelCostError``), or the device has a broken attribute.
        """
        self._admit(device)
        return _truth(self._evaluate, Frame(device, self._slots))

    def evaluate(self, device: DeviceView) -> EvaluationOutcome:
        """Whether ``device`` is selected, or why evaluation failed, and its cost."""
        try:
            self._admit(device)
        except CelEvaluationError as error:
            return EvaluationOutcome(None, error)
        frame = Frame(device, self._slots)
        try:
            return EvaluationOutcome(_truth(self._evaluate, frame), None, frame.cost)
        except CelEvaluationError as error:
            return EvaluationOutcome(None, error, frame.cost)

    def explain(self, device: DeviceView) -> list[ClauseResult]:
        """The result of each top-level ``&&`` term on ``device``, in the order of the text."""
        if not self._clauses:
            compiler = compiler_of(self.checked)
            for shown, whole in _clauses(self.tree):
                self._clauses.append(_clause(compiler, shown, whole))
        return [self._explained(clause, device) for clause in self._clauses]

    def _admit(self, device: DeviceView) -> None:
        if device.broken or device.listed:
            device.check(list_attributes=self.checked.environment.list_attributes)

    def _explained(self, clause: _CompiledClause, device: DeviceView) -> ClauseResult:
        read = {read.text: read.value(device) for read in clause.reads}
        try:
            self._admit(device)
            value = _truth(clause.evaluate, Frame(device, clause.slots))
            return ClauseResult(clause.text, value, "", read)
        except CelEvaluationError as error:
            return ClauseResult(clause.text, None, str(error), read)


@lru_cache(maxsize=2048)
def compile(expression: str, environment: Environment = DEFAULT) -> Program:
    """Parse and check a selector. Results are cached, because a fleet has few selectors.

    Raises:
        CelSyntaxError: not CEL, longer than 10 KiB or nested too deeply.
        CelTypeError: not a selector in DRA's environment.
    """
    try:
        root = parse(expression, environment)
        checked = check_selector(root, expression, environment)
        return program_of(checked)
    except RecursionError:
        raise CelSyntaxError("expression recursion limit exceeded", expression, 1, 1) from None


def program_of(checked: CheckedExpr) -> Program:
    """The program of a selector that has been checked already."""
    compiler = compiler_of(checked)
    whole = compiler.closure(checked.root, compiler.scope)
    return Program(checked.source, checked.root, checked, whole, compiler.scope.slots)


def conjuncts(root: Expr) -> list[Expr]:
    """The top-level ``&&`` terms of an expression, nested ones included, in order."""
    if isinstance(root, tree.Logical) and root.operator == "&&":
        return [inner for term in root.terms for inner in conjuncts(term)]
    return [root]


def _clauses(root: Expr) -> list[tuple[Expr, Expr]]:
    """The terms to explain, as written and as evaluated. A term in a ``cel.bind`` is evaluated with
    the binding."""
    if isinstance(root, tree.Logical) and root.operator == "&&":
        return [pair for term in root.terms for pair in _clauses(term)]
    if isinstance(root, tree.Bind):
        return [(shown, tree.replace(root, body=whole)) for shown, whole in _clauses(root.body)]
    return [(root, root)]


def _clause(compiler: Compiler, shown: Expr, whole: Expr) -> _CompiledClause:
    text = shown.place.text[shown.place.start : shown.place.end]
    evaluate = compiler.closure(whole, compiler.scope)
    return _CompiledClause(text, evaluate, compiler.scope.slots, shown_reads(whole))


def _truth(evaluate: Closure, frame: Frame) -> bool:
    try:
        value = evaluate(frame)
    except StoppedError as stopped:
        raise CelCostError(str(stopped)) from None
    except RecursionError:
        raise CelEvaluationError("expression recursion limit exceeded") from None
    except CelEvaluationError:
        if frame.cost > COST_LIMIT:
            raise CelCostError from None
        raise
    if frame.cost > COST_LIMIT:
        raise CelCostError
    if type(value) is not bool:
        raise CelEvaluationError(
            f"CEL result of type {type_name(value)} could not be converted to bool"
        )
    return value
