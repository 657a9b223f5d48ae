"""Structural schemas of custom resources: pruning, defaults, validation; adapter of jsonschema.

Wording follows apiextensions-apiserver: `spec.owner: Unsupported value: "x": supported values: …`.
"""

import datetime
from collections.abc import Iterable
from typing import Any

import jsonschema

from . import matchconditions
from .status import (
    FieldError,
    Object,
    duplicate,
    go_value,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    wrong_type,
)
from .store import copy

_INT_OR_STRING = "x-kubernetes-int-or-string"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


def prune(value: Any, schema: Object, unknown: list[str], path: str = "") -> Any:
    """`value` without the fields that `schema` doesn't name; their paths go to `unknown`."""
    if isinstance(value, list):
        item = schema.get("items") or {}
        return [prune(entry, item, unknown, f"{path}[{i}]") for i, entry in enumerate(value)]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    result = {}
    for key, entry in value.items():
        child = f"{path}.{key}" if path else key
        if key in fields:
            result[key] = prune(entry, fields[key], unknown, child)
        elif isinstance(extra, dict):
            result[key] = prune(entry, extra, unknown, child)
        elif extra is True or schema.get(_PRESERVE) or _is_embedded(schema, key):
            result[key] = entry
        else:
            unknown.append(child)
    return result


def _is_embedded(schema: Object, key: str) -> bool:
    """Is this the type or metadata of an object within the object?"""
    names = ("apiVersion", "kind", "metadata")
    return bool(schema.get("x-kubernetes-embedded-resource")) and key in names


def default(value: Any, schema: Object) -> None:
    """Write the schema's defaults into `value`; they also replace nulls that are not allowed."""
    if isinstance(value, list):
        for entry in value:
            default(entry, schema.get("items") or {})
        return
    if not isinstance(value, dict):
        return
    fields = schema.get("properties") or {}
    for key, inner in fields.items():
        missing = key not in value or (value[key] is None and not inner.get("nullable"))
        if missing and "default" in inner:
            value[key] = copy(inner["default"])
    for key, entry in value.items():
        extra = schema.get("additionalProperties")
        inner = fields.get(key) or (extra if isinstance(extra, dict) else None)
        if inner:
            default(entry, inner)


def drop_nulls(value: Any, schema: Object) -> None:
    """Remove nulls of fields that aren't nullable: they count as absent."""
    if isinstance(value, list):
        for entry in value:
            drop_nulls(entry, schema.get("items") or {})
    elif isinstance(value, dict):
        fields = schema.get("properties") or {}
        for key in [k for k, v in value.items() if v is None]:
            if key in fields and not fields[key].get("nullable"):
                del value[key]
        for key, entry in value.items():
            drop_nulls(entry, fields.get(key) or {})


def validate(value: Any, schema: Object) -> list[FieldError]:
    """Findings about `value`, ordered by field."""
    checker = jsonschema.FormatChecker(())
    checker.checks("date-time", raises=ValueError)(_is_date_time)
    validator = jsonschema.Draft202012Validator(_plain(schema), format_checker=checker)
    found: list[FieldError] = []
    for error in validator.iter_errors(value):
        found += _translate(error)
    return sorted(found, key=lambda error: error.field)


def list_errors(value: Any, schema: Object, path: str = "") -> list[FieldError]:
    """Findings about items that a list may hold only once (`x-kubernetes-list-type`)."""
    found: list[FieldError] = []
    if isinstance(value, dict):
        for key, inner in (schema.get("properties") or {}).items():
            if key in value:
                found += list_errors(value[key], inner, f"{path}.{key}" if path else key)
    if not isinstance(value, list):
        return found
    item_schema, keys = schema.get("items") or {}, schema.get("x-kubernetes-list-map-keys") or []
    kind, seen = schema.get("x-kubernetes-list-type"), []
    for index, item in enumerate(value):
        found += list_errors(item, item_schema, f"{path}[{index}]")
        identity = {key: item.get(key) for key in keys} if kind == "map" else item
        if kind in ("map", "set") and identity in seen:
            found.append(duplicate(f"{path}[{index}]", identity))
        seen.append(identity)
    return found


def rule_errors(value: Any, old: Any, schema: Object, path: str = "") -> list[FieldError]:
    """Findings of `x-kubernetes-validations`; transition rules only if there is an old value."""
    found: list[FieldError] = []
    for rule in schema.get("x-kubernetes-validations") or []:
        text = rule["rule"]
        if "oldSelf" in text and old is None:
            continue
        try:
            holds = matchconditions.evaluate(text, {"self": value, "oldSelf": old})
        except matchconditions.ExpressionError as error:
            found.append(invalid(path or "<nil>", _shown(value), f"rule {text!r}: {error}"))
            continue
        if not holds:
            message = rule.get("message") or f"failed rule: {text}"
            found.append(invalid(path or "<nil>", _shown(value), message))
    if isinstance(value, dict):
        for key, inner in (schema.get("properties") or {}).items():
            if key in value:
                before = old.get(key) if isinstance(old, dict) else None
                child = f"{path}.{key}" if path else key
                found += rule_errors(value[key], before, inner, child)
    return found


def _is_date_time(value: Any) -> bool:
    return not isinstance(value, str) or bool(datetime.datetime.fromisoformat(value).tzinfo)


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else value


def _plain(schema: Any) -> Any:
    """The schema in the form of jsonschema."""
    if isinstance(schema, list):
        return [_plain(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: entry
        if key in ("enum", "default", "required")
        else {name: _plain(inner) for name, inner in entry.items()}
        if key == "properties"
        else _plain(entry)
        for key, entry in schema.items()
        if key not in ("nullable", "example") and not key.startswith("x-kubernetes-")
    }
    if schema.get(_INT_OR_STRING):
        result["type"] = ["integer", "string"]
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True:
            result[exclusive] = result.pop(limit)
        elif exclusive in schema:
            del result[exclusive]
    if schema.get("nullable") and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
        if "enum" in result:
            result["enum"] = [*result["enum"], None]
    return result


def _path(parts: Iterable[Any]) -> str:
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _translate(error: Any) -> list[FieldError]:
    field, value, limit = _path(error.absolute_path), error.instance, error.validator_value
    where = f"{field} in body" if field else "in body"
    match error.validator:
        case "required":
            missing = [name for name in limit if name not in value]
            prefix = f"{field}." if field else ""
            # jsonschema reports one error per missing name; each error contains its name.
            named = [name for name in missing if f"'{name}'" in error.message]
            return [required(f"{prefix}{name}") for name in named]
        case "type":
            wanted = limit if isinstance(limit, str) else limit[0]
            seen = _json_type(value)
            text = f'{where} must be of type {wanted}: "{seen}"'
            return [wrong_type(field or "<nil>", _type_shown(value), text)]
        case "enum":
            return [not_supported(field, value, [str(item) for item in limit])]
        case "minimum":
            return [invalid(field, value, f"{where} should be greater than or equal to {limit}")]
        case "exclusiveMinimum":
            return [invalid(field, value, f"{where} should be greater than {limit}")]
        case "maximum":
            return [invalid(field, value, f"{where} should be less than or equal to {limit}")]
        case "exclusiveMaximum":
            return [invalid(field, value, f"{where} should be less than {limit}")]
        case "maxLength":
            return [too_long(field, limit)]
        case "minLength":
            return [invalid(field, value, f"{where} should be at least {limit} chars long")]
        case "pattern":
            return [invalid(field, value, f"{where} should match '{limit}'")]
        case "format":
            text = f"{where} must be of type {limit}: {go_value(value)}"
            return [invalid(field, value, text)]
        case "maxItems":
            return [too_many(field, len(value), limit)]
        case "minItems":
            return [invalid(field, len(value), f"{where} should have at least {limit} items")]
        case _:
            return [invalid(field or "<nil>", _shown(value), f"{where}: {error.message}")]


def _type_shown(value: Any) -> str:
    return _json_type(value)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = ((str, "string"), (int, "integer"), (float, "number"), (dict, "object"))
    for kind, name in names:
        if isinstance(value, kind):
            return name
    return "array" if isinstance(value, list) else "null"
