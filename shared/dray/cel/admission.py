"""The API server's answer to a selector that is about to be written into an object.

The rules and the words are those of ``ValidateCELSelector`` in Kubernetes'
``pkg/apis/resource/validation``: length, then compilation, then the estimated cost.
"""

from dataclasses import dataclass
from typing import Final, Literal

from dray.cel.cost.estimate import estimate
from dray.cel.environment import Environment
from dray.cel.errors import CelCompileError
from dray.cel.eval.program import Program, compile

LONGEST_BYTES: Final = 10 * 1024
"""``CELSelectorExpressionMaxLength`` of resource.k8s.io."""
MOST_COST: Final = 1_000_000
"""``CELSelectorExpressionMaxCost``."""
_MOST_ERRORS: Final = 100
"""Errors that cel-go reports for one expression."""
_WITHOUT_PLACE: Final = ("must evaluate to", "program instantiation failed")
"""Errors about the whole expression. Kubernetes prints them without a position."""

Verdict = Literal["ok", "compile-error", "too-long", "too-complex"]


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The answer to one expression."""

    verdict: Verdict
    text: str = ""
    """The reason for the refusal, in Kubernetes' words; a compile error has position and caret
    line."""
    program: Program | None = None
    """None if it does not compile, or is too long."""


def admission(expression: str, environment: Environment) -> AdmissionResult:
    """The server's answer to ``expression``; ``environment`` should have mode ``NEW``."""
    if len(expression.encode("utf-8", "surrogatepass")) > LONGEST_BYTES:
        return AdmissionResult("too-long", f"Too long: may not be more than {LONGEST_BYTES} bytes")
    try:
        program = compile(expression, environment)
    except CelCompileError as error:
        return AdmissionResult("compile-error", kubernetes_words(error))
    if estimate(program.checked) > MOST_COST:
        return AdmissionResult("too-complex", "Forbidden: too complex, exceeds cost limit", program)
    return AdmissionResult("ok", "", program)


def kubernetes_words(error: CelCompileError) -> str:
    """A compile error as the API server prints it."""
    if error.reason.startswith(_WITHOUT_PLACE):
        return error.reason
    lines = [f"ERROR: <input>:{one}" for one in (error, *error.also)]
    if len(lines) > _MOST_ERRORS:
        lines[_MOST_ERRORS:] = [f"{len(lines) - _MOST_ERRORS} more errors were truncated"]
    return "compilation failed: " + "\n".join(lines)
