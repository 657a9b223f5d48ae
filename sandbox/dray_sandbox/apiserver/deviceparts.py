"""Validation of parts that claims, slices and classes share: taints, conditions, configuration."""

from typing import Any

from .devicenames import driver_errors
from .fieldlists import list_errors
from .names import label_value, qualified_name
from .status import (
    FieldError,
    Object,
    duplicate,
    go_value,
    invalid,
    not_supported,
    required,
    too_long,
)

_MAX_BINDING_CONDITIONS = 4
_MAX_RAW_BYTES = 10 * 1024
_EFFECTS = ("NoExecute", "NoSchedule", "None")


def taint_errors(taint: Object, field: str) -> list[FieldError]:
    """Findings about one taint of a device."""
    found = label_name_errors(taint.get("key", ""), f"{field}.key")
    value, effect = taint.get("value", ""), taint.get("effect", "")
    found += [invalid(f"{field}.value", value, text) for text in label_value(value)]
    return found + (_effect(effect, field) if effect else [required(f"{field}.effect")])


def toleration_errors(toleration: Object, field: str) -> list[FieldError]:
    """Findings about one toleration of a request; the number of tolerations is not limited."""
    key, value = toleration.get("key", ""), toleration.get("value", "")
    found = label_name_errors(key, f"{field}.key") if key else []
    operator = toleration.get("operator", "")
    if operator == "Exists" and value:
        found.append(invalid(f"{field}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        found += [invalid(f"{field}.value", value, text) for text in label_value(value)]
    elif not operator:
        found.append(required(f"{field}.operator"))
    elif operator != "Exists":
        found.append(not_supported(f"{field}.operator", operator, ("Equal", "Exists")))
    effect = toleration.get("effect", "")
    return found + (_effect(effect, field) if effect else [])


def _effect(effect: str, field: str) -> list[FieldError]:
    if effect in _EFFECTS:
        return []
    return [not_supported(f"{field}.effect", effect, _EFFECTS)]


def label_name_errors(name: str, field: str) -> list[FieldError]:
    """Findings about a label's name or a name of the same form."""
    return [invalid(field, name, text) for text in qualified_name(name)]


def binding_errors(item: Object, field: str) -> list[FieldError]:
    """Findings about binding conditions: both lists or none, four each, no overlap."""
    wait = item.get("bindingConditions") or []
    fail = item.get("bindingFailureConditions") or []
    names = ("bindingConditions", "bindingFailureConditions")
    found: list[FieldError] = []
    for name, values in zip(names, (wait, fail), strict=True):
        where = f"{field}.{name}"
        found += list_errors(values, _MAX_BINDING_CONDITIONS, where, label_name_errors)
    found += _twice(wait, f"{field}.{names[0]}", [], "")
    overlap = "bindingFailureConditions must not overlap with bindingConditions"
    found += _twice(fail, f"{field}.{names[1]}", wait, overlap)
    for (name, values), (other, others) in (
        ((names[0], wait), (names[1], fail)),
        ((names[1], fail), (names[0], wait)),
    ):
        if others and not values:
            found.append(invalid(f"{field}.{name}", None, f"{name} are required to use {other}"))
    return found


def _twice(values: list[str], field: str, others: list[str], text: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, value in enumerate(values):
        if value in values[:index]:
            found.append(duplicate(f"{field}[{index}]", value))
        if value in others:
            found.append(invalid(f"{field}[{index}]", value, text))
    return found


def opaque_errors(opaque: Object | None, field: str) -> list[FieldError]:
    """Findings about an opaque driver configuration."""
    if opaque is None:
        return [required(field)]
    found = driver_errors(opaque.get("driver", ""), f"{field}.driver")
    return found + raw_errors(opaque.get("parameters"), f"{field}.parameters")


def raw_errors(value: Any, field: str) -> list[FieldError]:
    """Findings about a driver's object; its length is that of its JSON."""
    if value is None:
        return [required(field)]
    if len(go_value(value).encode()) > _MAX_RAW_BYTES:
        return [too_long(field, _MAX_RAW_BYTES)]
    if not isinstance(value, dict):
        return [invalid(field, "<value omitted>", "must be a valid JSON object")]
    return []
