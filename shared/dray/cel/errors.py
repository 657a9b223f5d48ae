"""Errors of an expression, and of its evaluation on one device."""

from collections.abc import Iterable
from typing import NamedTuple

from dray.api.errors import InvalidInputError, PermanentError
from dray.cel.source import SourceLocation

_LONGEST_LINE = 400
_LONGEST_NAME = 100


class CelError(PermanentError):
    """An expression that can't be used, or can't be evaluated on some device."""


class CelCompileError(CelError, InvalidInputError):
    """The expression is invalid: message, position and a caret line.

    ``line`` and ``column`` count from 1 and are the position that Kubernetes' compiler reports.
    """

    def __init__(self, reason: str, source: str, line: int, column: int) -> None:
        super().__init__(f"{line}:{column}: {reason}\n{_caret_line(source, line, column)}")
        self.reason = reason
        self.line = line
        self.column = column
        self.also: tuple[CelCompileError, ...] = ()
        """Further errors, in the order of the text."""


class CelSyntaxError(CelCompileError):
    """The text is not CEL, or exceeds a limit on length or nesting."""


class CelTypeError(CelCompileError):
    """Undeclared name, no matching overload, unknown field, or a result that is not a bool."""


class CelUnsupportedError(CelCompileError):
    """Kubernetes accepts the function, but dray can't evaluate it. dray refuses it and does not
    guess."""

    def __init__(self, function: str, source: str, line: int, column: int) -> None:
        reason = f"the function '{function}' is CEL that dray can't evaluate"
        super().__init__(reason, source, line, column)
        self.function = function


class CelEvaluationError(CelError):
    """Evaluation on one device failed, for instance ``no such key: model``."""


class CelCostError(CelEvaluationError):
    """Evaluation was stopped: a limit is exceeded, or Kubernetes' evaluator would panic."""

    def __init__(self, reason: str = "operation cancelled: actual cost limit exceeded") -> None:
        super().__init__(reason)


def _caret_line(source: str, line: int, column: int) -> str:
    """The line of ``source`` with a caret under ``column``, as Kubernetes prints it."""
    lines = source.split("\n")
    text = lines[line - 1] if line <= len(lines) else ""
    start = max(0, column - _LONGEST_LINE // 2)
    shown = text[start : start + _LONGEST_LINE].replace("\t", " ")
    return f" | {shown}\n | {'.' * (column - 1 - start)}^"


def nearest(name: str, known: Iterable[str]) -> str:
    """`` (nearest known name: 'x')``, or nothing if no known name is near."""
    from difflib import get_close_matches

    found = get_close_matches(name[:_LONGEST_NAME], list(known), n=1, cutoff=0.6)
    return f" (nearest known name: '{found[0]}')" if found else ""


class CompileIssue(NamedTuple):
    """One error in an expression, before its message is written."""

    reason: str
    place: SourceLocation
    name: str = ""
    """An unknown name; the message names the nearest name in ``known``."""
    known: Iterable[str] = ()


def all_of(issues: Iterable[CompileIssue], source: str) -> CelTypeError:
    """The error to raise: the first in the text, with the others in Kubernetes' order."""
    ordered = sorted(issues, key=lambda issue: issue.place.point)
    error, *others = [_worded(issue, source) for issue in ordered]
    error.also = tuple(others)
    return error


def first_of(issues: Iterable[CompileIssue], source: str) -> CelTypeError:
    """The first error in the text, for errors at which Kubernetes stops."""
    return _worded(min(issues, key=lambda issue: issue.place.point), source)


def _worded(found: CompileIssue, source: str) -> CelTypeError:
    hint = nearest(found.name, found.known) if found.name else ""
    return CelTypeError(found.reason + hint, source, found.place.line, found.place.column)
