"""The door to dray's CEL checker: does a device selector compile?"""

from __future__ import annotations

from dray.cel.check import check_selector
from dray.cel.errors import CelCompileError, CelUnsupportedError
from dray.cel.syntax import parse

from .status import FieldError, invalid, too_long

MAX_EXPRESSION_BYTES = 10 * 1024


def selector_errors(expression: str, field: str) -> list[FieldError]:
    """Findings about one CEL device selector.

    A function that Kubernetes has and dray lacks is accepted here, as the real server does.
    """
    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        return [too_long(field, MAX_EXPRESSION_BYTES)]
    try:
        check_selector(parse(expression), expression)
    except CelUnsupportedError:
        return []
    except CelCompileError as error:
        if error.reason.startswith("must evaluate to bool"):
            return [invalid(field, expression, error.reason)]
        return [invalid(field, expression, f"compilation failed: ERROR: <input>:{error}")]
    return []
