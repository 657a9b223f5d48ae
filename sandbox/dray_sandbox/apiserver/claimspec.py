"""Validation and defaults of `spec.devices` of claims, templates and classes (types.go, v1)."""

from collections.abc import Mapping, Sequence
from typing import Any

from .celcheck import selector_errors
from .devicenames import fully_qualified_errors, label_errors
from .deviceparts import opaque_errors, toleration_errors
from .fieldlists import list_errors, named, set_errors
from .names import dns_subdomain
from .status import FieldError, Object, forbidden_field, invalid, not_supported, required

_MAX_REQUESTS = 32
_MAX_FIRST_AVAILABLE = 8
_MAX_SELECTORS = 32
_MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
_ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"
_REQUEST_REF = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def default_spec(spec: Object) -> None:
    """Set the defaults: allocationMode ExactCount, count 1."""
    requests = spec.setdefault("devices", {}).setdefault("requests", None)
    for request in requests or []:
        for part in [request.get("exactly"), *(request.get("firstAvailable") or [])]:
            if part is None:
                continue
            for toleration in part.get("tolerations") or []:
                toleration["operator"] = toleration.get("operator") or "Equal"
            part["allocationMode"] = part.get("allocationMode") or "ExactCount"
            if part["allocationMode"] == "ExactCount" and not part.get("count"):
                part["count"] = 1


def spec_errors(spec: Mapping[str, Any], field: str) -> list[FieldError]:
    """Findings about a ResourceClaimSpec."""
    devices = spec.get("devices") or {}
    field = f"{field}.devices"
    names = request_names(spec)
    found = set_errors(
        devices.get("requests") or [], _MAX_REQUESTS, f"{field}.requests", _request, named
    )
    found += list_errors(
        devices.get("constraints") or [],
        _MAX_CONSTRAINTS,
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
    """Findings about adminAccess, which only namespaces with its label may use."""
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


def _request(request: Object, field: str) -> list[FieldError]:
    found = label_errors(request.get("name", ""), f"{field}.name")
    exactly, options = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is not None and options:
        return [*found, invalid(field, None, f"{_ONE_OF}, but multiple fields are set")]
    if exactly is None and not options:
        return [*found, required(field, _ONE_OF)]
    if exactly is not None:
        return found + _exact(exactly, f"{field}.exactly")
    where = f"{field}.firstAvailable"
    return found + set_errors(options, _MAX_FIRST_AVAILABLE, where, _subrequest, named)


def _subrequest(request: Object, field: str) -> list[FieldError]:
    return label_errors(request.get("name", ""), f"{field}.name") + _exact(request, field)


def _exact(request: Object, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    name = request.get("deviceClassName", "")
    if not name:
        found.append(required(f"{field}.deviceClassName"))
    found += [invalid(f"{field}.deviceClassName", name, t) for t in dns_subdomain(name) if name]
    found += selectors_errors(request.get("selectors") or [], f"{field}.selectors")
    found += _mode(request, field)
    for index, toleration in enumerate(request.get("tolerations") or []):
        found += toleration_errors(toleration, f"{field}.tolerations[{index}]")
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

    return list_errors(selectors, _MAX_SELECTORS, field, check)


def _constraint(item: Object, field: str, names: set[str]) -> list[FieldError]:
    found = _references(item.get("requests") or [], f"{field}.requests", names)
    for kind in ("matchAttribute", "distinctAttribute"):
        if kind in item:
            return found + fully_qualified_errors(item[kind], f"{field}.{kind}")
    text = (
        'exactly one of "matchAttribute" or "distinctAttribute" is required, '
        "but multiple fields are set"
    )
    return [*found, required(field, text)]


def _references(items: Sequence[str], field: str, names: set[str]) -> list[FieldError]:
    """Findings about a list of request names."""
    return set_errors(items, _MAX_REQUESTS, field, lambda n, w: reference(n, w, names), str)


def reference(name: str, field: str, names: set[str]) -> list[FieldError]:
    """Findings about one request name, `main` or `main/sub`."""
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid(field, name, _REQUEST_REF)]
    found = [error for part in parts for error in label_errors(part, field)]
    if name not in names:
        found.append(invalid(field, name, _REQUEST_REF))
    return found


def config_errors(item: Object, field: str, names: set[str]) -> list[FieldError]:
    """Findings about a config of a claim."""
    found = _references(item.get("requests") or [], f"{field}.requests", names)
    return found + opaque_errors(item.get("opaque"), f"{field}.opaque")
