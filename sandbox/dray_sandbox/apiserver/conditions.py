"""Validation of conditions (`metav1.Condition`)."""

import re

from .deviceparts import label_name_errors
from .status import FieldError, Object, duplicate, invalid, not_supported, required

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_TEXT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' "
    "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', "
    "regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def conditions_errors(conditions: list[Object], field: str) -> list[FieldError]:
    """Findings about a list of conditions; the caller checks its length."""
    found: list[FieldError] = []
    for index, condition in enumerate(conditions):
        if condition.get("type") in [earlier.get("type") for earlier in conditions[:index]]:
            found.append(duplicate(f"{field}[{index}].type", condition.get("type", "")))
        found += _condition(condition, f"{field}[{index}]")
    return found


def _condition(condition: Object, field: str) -> list[FieldError]:
    found = label_name_errors(condition.get("type", ""), f"{field}.type")
    status, reason = condition.get("status", ""), condition.get("reason", "")
    if status not in ("True", "False", "Unknown"):
        found.append(not_supported(f"{field}.status", status, ("False", "True", "Unknown")))
    if not condition.get("lastTransitionTime"):
        found.append(required(f"{field}.lastTransitionTime"))
    if not reason:
        found.append(required(f"{field}.reason"))
    elif not _REASON.fullmatch(reason):
        found.append(invalid(f"{field}.reason", reason, _REASON_TEXT))
    return found
