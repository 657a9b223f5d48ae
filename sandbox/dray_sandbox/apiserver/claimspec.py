"""Validation and defaults of `spec.devices` of claims, templates and classes (types.go, v1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .celcheck import selector_errors
from .names import c_identifier, dns_label, dns_subdomain, label_value, qualified_name
from .status import (
    FieldError,
    Object,
    duplicate,
    forbidden_field,
    go_value,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

MAX_REQUESTS = 32
MAX_FIRST_AVAILABLE = 8
MAX_SELECTORS = 32
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
MAX_TOLERATIONS = 16
MAX_OPAQUE_BYTES = 10 * 1024
MAX_DRIVER_BYTES = 63
MAX_IDENTIFIER_BYTES = 32
_ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"
_REQUEST_REF = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def default_spec(spec: Object) -> None:
    """allocationMode ExactCount, count 1."""
    requests = spec.setdefault("devices", {}).setdefault("requests", None)
    for request in requests or []:
        for part in [request.get("exactly"), *(request.get("firstAvailable") or [])]:
            if part is None:
                continue
            for toleration in part.get("tolerations") or []:
                toleration.setdefault("operator", "Equal")
            part.setdefault("allocationMode", "ExactCount")
            if part["allocationMode"] == "ExactCount" and not part.get("count"):
                part["count"] = 1


def spec_errors(spec: Mapping[str, Any], field: str) -> list[FieldError]:
    """Findings about a ResourceClaimSpec."""
    devices = spec.get("devices") or {}
    field = f"{field}.devices"
    names = request_names(spec)
    found = list_errors(
        devices.get("requests") or [], MAX_REQUESTS, f"{field}.requests", _request, "name"
    )
    found += list_errors(
        devices.get("constraints") or [],
        MAX_CONSTRAINTS,
        f"{field}.constraints",
        lambda item, where: _constraint(item, where, names),
    )
    found += list_errors(
        devices.get("config") or [],
        MAX_CONFIGS,
        f"{field}.config",
        lambda item, where: config_errors(item, where, names),
    )
    return found


def admin_errors(
    spec: Mapping[str, Any], field: str, namespace_labels: Mapping[str, str]
) -> list[FieldError]:
    """adminAccess is for namespaces labelled for it."""
    if namespace_labels.get("resource.kubernetes.io/admin-access") == "true":
        return []
    text = (
        "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label "
        "on the containing namespace"
    )
    requests = (spec.get("devices") or {}).get("requests") or []
    return [
        forbidden_field(f"{field}.devices.requests[{index}].adminAccess", text)
        for index, request in enumerate(requests)
        if (request.get("exactly") or {}).get("adminAccess")
    ]


def request_names(spec: Mapping[str, Any]) -> set[str]:
    """Names that constraints, configs and results may refer to: `main` and `main/sub`."""
    names = set()
    for request in (spec.get("devices") or {}).get("requests") or []:
        names.add(request.get("name", ""))
        for sub in request.get("firstAvailable") or []:
            names.add(f"{request.get('name', '')}/{sub.get('name', '')}")
    return names


def list_errors(
    items: Sequence[Any], limit: int, field: str, check: Any, key: str | None = None
) -> list[FieldError]:
    """Findings about a list: its length, each item, and doubled keys."""
    if len(items) > limit:
        return [too_many(field, len(items), limit)]
    found: list[FieldError] = []
    for index, item in enumerate(items):
        found += check(item, f"{field}[{index}]")
    seen: list[Any] = []
    for index, item in enumerate(items):
        value = item if key is None and isinstance(item, str) else (item or {}).get(key)
        if key is not None or isinstance(item, str):
            if value in seen:
                found.append(duplicate(f"{field}[{index}]", value))
            seen.append(value)
    return found


def _request(request: Object, field: str) -> list[FieldError]:
    found = _name(request.get("name", ""), f"{field}.name")
    exactly, options = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is not None and options:
        return [*found, invalid(field, None, f"{_ONE_OF}, but multiple fields are set")]
    if exactly is None and not options:
        return [*found, required(field, _ONE_OF)]
    if exactly is not None:
        return found + _exact(exactly, f"{field}.exactly")
    where = f"{field}.firstAvailable"
    return found + list_errors(options, MAX_FIRST_AVAILABLE, where, _subrequest, "name")


def _subrequest(request: Object, field: str) -> list[FieldError]:
    return _name(request.get("name", ""), f"{field}.name") + _exact(request, field)


def _exact(request: Object, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    name = request.get("deviceClassName", "")
    if not name:
        found.append(required(f"{field}.deviceClassName"))
    found += [invalid(f"{field}.deviceClassName", name, t) for t in dns_subdomain(name) if name]
    found += selectors_errors(request.get("selectors") or [], f"{field}.selectors")
    found += _mode(request, field)
    tolerations = request.get("tolerations") or []
    found += list_errors(tolerations, MAX_TOLERATIONS, f"{field}.tolerations", toleration_errors)
    return found


def _mode(request: Object, field: str) -> list[FieldError]:
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        text = "must not be specified when allocationMode is 'All'"
        return [invalid(f"{field}.count", count, text)] if count else []
    if mode == "ExactCount":
        return [] if count > 0 else [invalid(f"{field}.count", count, "must be greater than zero")]
    return [not_supported(f"{field}.allocationMode", mode, ("All", "ExactCount"))]


def selectors_errors(selectors: Sequence[Object], field: str) -> list[FieldError]:
    """Findings about a list of device selectors."""

    def check(selector: Object, where: str) -> list[FieldError]:
        cel = selector.get("cel")
        if cel is None:
            return [required(f"{where}.cel")]
        return selector_errors(cel.get("expression", ""), f"{where}.cel.expression")

    return list_errors(selectors, MAX_SELECTORS, field, check)


def toleration_errors(toleration: Object, field: str) -> list[FieldError]:
    """Findings about one device toleration."""
    found: list[FieldError] = []
    key, value = toleration.get("key", ""), toleration.get("value", "")
    if key:
        found += [invalid(f"{field}.key", key, text) for text in qualified_name(key)]
    operator = toleration.get("operator", "")
    if operator == "Exists" and value:
        found.append(invalid(f"{field}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        found += [invalid(f"{field}.value", value, text) for text in label_value(value)]
    elif not operator:
        found.append(required(f"{field}.operator"))
    elif operator != "Exists":
        found.append(not_supported(f"{field}.operator", operator, ("Equal", "Exists")))
    return found + effect_errors(toleration.get("effect", ""), f"{field}.effect")


def effect_errors(effect: str, field: str) -> list[FieldError]:
    """Findings about a taint effect that may be empty."""
    if effect in ("", "NoSchedule", "NoExecute", "None"):
        return []
    return [not_supported(field, effect, ("NoExecute", "NoSchedule", "None"))]


def _constraint(item: Object, field: str, names: set[str]) -> list[FieldError]:
    found = references(item.get("requests") or [], f"{field}.requests", names)
    for kind in ("matchAttribute", "distinctAttribute"):
        if kind in item:
            return found + _fully_qualified(item[kind], f"{field}.{kind}")
    text = (
        'exactly one of "matchAttribute" or "distinctAttribute" is required, '
        "but multiple fields are set"
    )
    return [*found, required(field, text)]


def references(items: Sequence[str], field: str, names: set[str]) -> list[FieldError]:
    """Findings about a list of request names."""
    return list_errors(items, MAX_REQUESTS, field, lambda n, w: reference(n, w, names))


def reference(name: str, field: str, names: set[str]) -> list[FieldError]:
    """Findings about one request name, `main` or `main/sub`."""
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid(field, name, _REQUEST_REF)]
    found = [error for part in parts for error in _name(part, field)]
    if name not in names:
        found.append(invalid(field, name, _REQUEST_REF))
    return found


def _name(name: str, field: str) -> list[FieldError]:
    if not name:
        return [required(field)]
    return [invalid(field, name, text) for text in dns_label(name)]


def config_errors(item: Object, field: str, names: set[str]) -> list[FieldError]:
    """Findings about a config of a claim."""
    found = references(item.get("requests") or [], f"{field}.requests", names)
    return found + opaque_errors(item.get("opaque"), f"{field}.opaque")


def opaque_errors(opaque: Object | None, field: str) -> list[FieldError]:
    """Findings about an opaque driver configuration."""
    if opaque is None:
        return [required(field)]
    found = driver_errors(opaque.get("driver", ""), f"{field}.driver")
    parameters, where = opaque.get("parameters"), f"{field}.parameters"
    if parameters is None:
        return [*found, required(where)]
    if not isinstance(parameters, dict):
        text = 'Invalid value: "<value omitted>": must be a valid JSON object'
        return [*found, FieldError("FieldValueInvalid", where, text)]
    if len(go_value(parameters).encode()) > MAX_OPAQUE_BYTES:
        found.append(too_long(where, MAX_OPAQUE_BYTES))
    return found


def driver_errors(driver: str, field: str) -> list[FieldError]:
    """Findings about a driver name."""
    if not driver:
        return [required(field)]
    found = [too_long(field, MAX_DRIVER_BYTES)] if len(driver) > MAX_DRIVER_BYTES else []
    return found + [invalid(field, driver, text) for text in dns_subdomain(driver.lower())]


def qualified_errors(name: str, field: str) -> list[FieldError]:
    """Findings about an attribute or capacity name, `id` or `domain/id`."""
    domain, slash, identifier = name.rpartition("/")
    found: list[FieldError] = []
    if slash:
        if not domain:
            found.append(invalid(field, "", "the domain must not be empty"))
        else:
            found += driver_errors(domain, field)
        if not identifier:
            return [*found, invalid(field, "", "the name must not be empty")]
    if len(identifier) > MAX_IDENTIFIER_BYTES:
        found.append(too_long(field, MAX_IDENTIFIER_BYTES))
    return found + [invalid(field, identifier, text) for text in c_identifier(identifier)]


def _fully_qualified(name: str, field: str) -> list[FieldError]:
    found = qualified_errors(name, field)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        found.append(invalid(field, name, text))
    return found
