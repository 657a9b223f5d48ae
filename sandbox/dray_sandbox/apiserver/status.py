"""Kubernetes' errors: one exception with a v1.Status.

Wording and codes follow `k8s.io/apimachinery/pkg/api/errors` and
`k8s.io/apimachinery/pkg/util/validation/field`, because clients match on both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""


@dataclass(frozen=True)
class FieldError:
    """One finding about one field: `reason` is the cause's type, `body` its text."""

    reason: str
    field: str
    body: str

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def go_value(value: object) -> str:
    """How the server prints a refused value: strings quoted, the rest as JSON."""
    if value is None:
        return "null"
    return msgspec.json.encode(value).decode()


def required(field: str, detail: str = "") -> FieldError:
    """A missing value."""
    return FieldError("FieldValueRequired", field, _with("Required value", detail))


def invalid(field: str, value: object, detail: str) -> FieldError:
    """A value that breaks a rule named by `detail`."""
    body = f"Invalid value: {go_value(value)}: {detail}"
    return FieldError("FieldValueInvalid", field, body)


def wrong_type(field: str, value: object, detail: str) -> FieldError:
    """A value of the wrong JSON type."""
    body = f"Invalid value: {go_value(value)}: {detail}"
    return FieldError("FieldValueTypeInvalid", field, body)


def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    """A value outside an enumeration."""
    names = ", ".join(go_value(name) for name in supported)
    body = f"Unsupported value: {go_value(value)}: supported values: {names}"
    return FieldError("FieldValueNotSupported", field, body)


def forbidden_field(field: str, detail: str) -> FieldError:
    """A value that may not be set here."""
    return FieldError("FieldValueForbidden", field, _with("Forbidden", detail))


def immutable_error(field: str, value: object) -> FieldError:
    """A value that may not change."""
    return invalid(field, value, "field is immutable")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """A list longer than `limit` items."""
    items = "items" if limit != 1 else "item"
    body = f"Too many: {count}: must have at most {limit} {items}"
    return FieldError("FieldValueTooMany", field, body)


def too_long(field: str, limit_bytes: int) -> FieldError:
    """A string longer than `limit_bytes`."""
    body = f"Too long: may not be more than {limit_bytes} bytes"
    return FieldError("FieldValueTooLong", field, body)


def duplicate(field: str, value: object) -> FieldError:
    """A second item with the same key."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {go_value(value)}")


def _with(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text


class ApiError(Exception):
    """A refusal with its HTTP code; `body()` is the v1.Status to answer with."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def body(self) -> Object:
        """The answer's body."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _qualified(plural: str, group: str) -> str:
    """`resourceclaims.resource.k8s.io`, `pods`."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details


def not_found(plural: str, group: str, name: str) -> ApiError:
    """404 for a named object."""
    message = f'{_qualified(plural, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(name, group, plural))


def no_such_resource() -> ApiError:
    """404 for a path that no resource serves."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


class NoSuchPath(Exception):
    """404 in plain text, for a path outside every API group."""


def already_exists(plural: str, group: str, name: str) -> ApiError:
    """409 for a name in use."""
    message = f'{_qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(name, group, plural))


_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(plural: str, group: str, name: str, why: str = _MODIFIED) -> ApiError:
    """409 for a stale version or a failed precondition."""
    message = f'Operation cannot be fulfilled on {_qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(name, group, plural))


def invalid_object(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """422 with every finding as a cause."""
    text = str(errors[0]) if len(errors) == 1 else "[" + ", ".join(map(str, errors)) + "]"
    details = _details(name, group, kind)
    details["causes"] = [
        {"reason": error.reason, "message": error.body, "field": error.field} for error in errors
    ]
    message = f'{_qualified(kind, group)} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, details)


def forbidden(
    plural: str, group: str, name: str, why: str, causes: list[Object] | None = None
) -> ApiError:
    """403 for an object that may not be written now."""
    details = _details(name, group, plural)
    if causes:
        details["causes"] = causes
    named = f' "{name}"' if name else ""
    message = f"{_qualified(plural, group)}{named} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, details)


def bad_request(message: str) -> ApiError:
    """400 for a request that can't be read."""
    return ApiError(400, "BadRequest", message)


def gone(message: str) -> ApiError:
    """410: the requested version is no longer in the history."""
    return ApiError(410, "Expired", message)


def method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> ApiError:
    """405 for a verb the resource doesn't have."""
    return ApiError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(seen: str, accepted: Sequence[str]) -> ApiError:
    """415 for a body format this server doesn't read."""
    message = (
        f"the body of the request was in an unknown format - "
        f"accepted media types include: {', '.join(accepted)} (seen: {seen or 'none'})"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def unauthorized() -> ApiError:
    """401 for a missing or unknown token."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def wrong_namespace() -> ApiError:
    """400 for an object that names another namespace than the request."""
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def created_with_version() -> ApiError:
    """500, without a reason, for a new object with a resourceVersion."""
    return ApiError(500, "", "resourceVersion should not be set on objects to be created")


def timed_out() -> ApiError:
    """`endpoints/handlers/finisher`: the request took longer than its timeout."""
    text = "Timeout: request did not complete within requested timeout - context deadline exceeded"
    return ApiError(504, "Timeout", text)
