"""The door to dray's CEL checker: does a device selector compile?"""

from __future__ import annotations

from .status import FieldError, invalid, too_long

MAX_EXPRESSION_BYTES = 10 * 1024


def selector_errors(expression: str, field: str) -> list[FieldError]:
    """Findings about one CEL device selector."""
    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        return [too_long(field, MAX_EXPRESSION_BYTES)]
    if not expression.strip():
        return [invalid(field, expression, "compilation failed: empty expression")]
    return []
