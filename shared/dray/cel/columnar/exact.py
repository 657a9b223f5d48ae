"""The exact evaluator, asked about parts of a selector: the door to it for this package."""

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Final

from dray.cel import tree
from dray.cel.check import Checked, check_selector
from dray.cel.closures import Compiler
from dray.cel.columnar.forms import ERROR, FALSE, STOPPED, TRUE
from dray.cel.device import DeviceView
from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelEvaluationError, CelSyntaxError
from dray.cel.estimate import estimate
from dray.cel.frame import Frame
from dray.cel.syntax import parse
from dray.cel.tree import Expr
from dray.cel.values import Value
from dray.cel.work import COST_LIMIT, WORK_LIMIT, StoppedError

Evaluate = Callable[[DeviceView], Value]
Judge = Callable[[DeviceView], int]

_LONGEST_PLAIN: Final = 4000
_MOST_SUMS: Final = 50
_SPACES: Final = tuple(f"{space}(" for space in " \t\n\r\f\v")
_SPACED: Final = re.compile(r"\s+\(")
_LOOPS: Final = tuple(
    """
    all( exists( exists_one( existsOne( map( filter( transformList( transformMap( optMap( bind(
    optFlatMap( transformMapEntry( split( findAll( slice( reverse( includes( sum( min( max(
    isSorted( indexOf( lastIndexOf( validate(
    """.split()  # noqa: SIM905
)
_GROWTH: Final = (
    "range(", "replace(", "join(", "format(", "flatten(", "distinct(", "sort(", "sortBy(", "quote(",
)  # fmt: skip
"""Functions whose work or result can be much larger than what they are given; so are ``sets``."""


@lru_cache(maxsize=256)
def checked_selector(expression: str, environment: Environment = DEFAULT) -> Checked:
    """The checked tree of a selector.

    Raises:
        CelCompileError: it is none.
    """
    try:
        return check_selector(parse(expression), expression, environment)
    except RecursionError:
        raise CelSyntaxError("expression recursion limit exceeded", expression, 1, 1) from None


class Exact:
    """The closures of one checked selector, made where they are needed."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    @cached_property
    def _compiler(self) -> Compiler:
        return Compiler(self._checked)

    def evaluator(self, node: Expr) -> Evaluate:
        """The value of ``node``, which reads no local variable, on a device.

        The function raises CelEvaluationError where CEL gives an error, and StoppedError.
        """
        compiler = self._compiler
        evaluate = compiler.closure(node, compiler.scope)
        return lambda view: evaluate(Frame(view, compiler.scope.slots))

    def judge(self, node: Expr, *, whole: bool = False) -> Judge:
        """The verdict of ``node`` as a condition: what is no bool is an error.

        So is what ends the evaluation where ``node`` is the ``whole`` of it.
        """
        stopped = ERROR if whole else STOPPED
        compiler = self._compiler
        evaluate = compiler.closure(node, compiler.scope)

        def verdict(view: DeviceView) -> int:
            frame = Frame(view, compiler.scope.slots)
            try:
                value = evaluate(frame)
            except (CelEvaluationError, RecursionError):
                return ERROR if frame.cost <= COST_LIMIT else stopped
            except StoppedError:
                return stopped
            if frame.cost > COST_LIMIT:
                return stopped
            if type(value) is not bool:
                return ERROR
            return TRUE if value else FALSE

        return verdict

    @cached_property
    def is_bounded(self) -> bool:
        """Whether no device can make it dear enough to be stopped.

        Stopping is no error that ``&&`` absorbs and depends on all clauses together, so that a
        selector for which this can't be told is evaluated in one piece. The bounds hold for
        attributes within the limits of resource.k8s.io/v1, such as 64 characters per string.
        """
        text = self._checked.source
        if "//" in text or "sets" in text or text.count("+") > _MOST_SUMS:
            return False  # behind // may be a comment, between a function and its parenthesis
        if any(space in text for space in _SPACES):
            text = _SPACED.sub("(", text)
        if any(call in text for call in _GROWTH):
            return False
        if len(text) <= _LONGEST_PLAIN and not any(call in text for call in _LOOPS):
            return True
        cost = estimate(self._checked)
        return cost <= COST_LIMIT and cost * _nodes(self._checked.root) <= WORK_LIMIT


def _nodes(node: Expr) -> int:
    return 1 + sum(map(_nodes, tree.children(node)))
