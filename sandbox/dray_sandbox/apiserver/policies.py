"""Evaluates ValidatingAdmissionPolicies."""

from collections.abc import Iterator, Mapping
from typing import Any

from . import matchconditions
from .matchconditions import ExpressionError
from .status import Object

_LONGEST_MESSAGE_BYTES = 5 * 1024
_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
REASONS = tuple(sorted(_CODES))


def denials(policy: Object, variables: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Message, reason and code of each failed validation, in order. If a condition or a validation
    can't be evaluated, ``failurePolicy`` decides."""
    spec = policy["spec"]
    fails_closed = spec["failurePolicy"] == "Fail"
    try:
        if not _conditions_hold(spec, variables):
            return
    except ExpressionError as error:
        if fails_closed:
            yield str(error), "Invalid", _CODES["Invalid"]
        return
    given = {**variables, "variables": _composed(spec, variables)}
    for validation in spec.get("validations") or []:
        try:
            if matchconditions.evaluate(validation["expression"], given):
                continue
            reason = validation.get("reason") or "Invalid"
            yield _message(validation, given), reason, _CODES[reason]
        except ExpressionError as error:
            if fails_closed:
                text = f"expression '{validation['expression'].strip()}' resulted in error: {error}"
                yield text, "Invalid", _CODES["Invalid"]


def _conditions_hold(spec: Object, variables: Mapping[str, Any]) -> bool:
    """Whether all hold. Raises ExpressionError if a condition has an error and none is false."""
    failed: list[str] = []
    for condition in spec.get("matchConditions") or []:
        try:
            if not matchconditions.evaluate(condition["expression"], variables):
                return False
        except ExpressionError as error:
            failed.append(f"expression '{condition['expression']}' resulted in error: {error}")
    if failed:
        raise ExpressionError("; ".join(failed))
    return True


def _composed(spec: Object, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The policy's variables, without those that can't be evaluated: a real server evaluates a
    variable only when it is used, and fails only then."""
    found: dict[str, Any] = {}
    for variable in spec.get("variables") or []:
        try:
            given = {**variables, "variables": found}
            found[variable["name"]] = matchconditions.value(variable["expression"], given)
        except ExpressionError:
            continue
    return found


def _message(validation: Object, given: Mapping[str, Any]) -> str:
    message = ""
    if expression := validation.get("messageExpression"):
        try:
            value = matchconditions.value(expression, given)
            message = value.strip() if isinstance(value, str) else ""
        except ExpressionError:
            message = ""
    if "\n" in message or len(message.encode()) > _LONGEST_MESSAGE_BYTES:
        message = ""
    stated = (validation.get("message") or "").strip()
    return message or stated or f"failed expression: {validation['expression'].strip()}"
