"""Validation of a container's resources and environment."""

import re

from . import quantities
from .names import qualified_name
from .quantities import ApiQuantity
from .status import FieldError, Object, invalid, not_supported, required

_STANDARD = ("cpu", "memory", "ephemeral-storage")
_NATIVE_DOMAIN = "kubernetes.io/"
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_KEYED = re.compile(r"metadata\.(annotations|labels)\['([^']+)'\]")
_ENV_NAME = re.compile(r"[ -<>-~]+")
_ENV_TEXT = (
    "a valid environment variable name must consist only of printable ASCII characters other "
    "than '='"
)
_ONE_SOURCE = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or "
    "`fileKeyRef`"
)


def amount_errors(resources: Object, field: str) -> list[FieldError]:
    """Findings about a container's limits and requests."""
    limits = {k: quantities.parse(v) for k, v in (resources.get("limits") or {}).items()}
    requests = {k: quantities.parse(v) for k, v in (resources.get("requests") or {}).items()}
    found: list[FieldError] = []
    for what, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{field}.{what}[{name}]"
            found += _name(name, where) + _amount(name, amount, where)
    for name, amount in requests.items():
        found += _within(name, amount, limits.get(name), field)
    return found


def _extended(name: str) -> bool:
    """Whether a resource is extended: whole numbers, not overcommitted."""
    return "/" in name and _NATIVE_DOMAIN not in name


def _name(name: str, field: str) -> list[FieldError]:
    found = [invalid(field, name, text) for text in qualified_name(name)]
    if found and _extended(name):
        return [*found, invalid(field, name, "doesn't follow extended resource name standard")]
    if "/" in name or name in _STANDARD or name.startswith("hugepages-"):
        return found
    if not found and "." not in name:
        text = "must be a standard resource type or fully qualified"
        found.append(invalid(field, name, text))
    return [*found, invalid(field, name, "must be a standard resource for containers")]


def _amount(name: str, amount: ApiQuantity, field: str) -> list[FieldError]:
    if amount.value < 0:
        return [invalid(field, str(amount), "must be greater than or equal to 0")]
    if _extended(name) and amount.value.denominator != 1:
        return [invalid(field, str(amount), "must be an integer")]
    return []


def _within(
    name: str, amount: ApiQuantity, limit: ApiQuantity | None, field: str
) -> list[FieldError]:
    if limit is None:
        text = "Limit must be set for non overcommitable resources"
        return [required(f"{field}.limits", text)] if _extended(name) else []
    where = f"{field}.requests"
    if _extended(name) and amount.value != limit.value:
        return [invalid(where, str(amount), f"must be equal to {name} limit of {limit}")]
    if amount.value > limit.value:
        text = f"must be less than or equal to {name} limit of {limit}"
        return [invalid(where, str(amount), text)]
    return []


def env_errors(variables: list[Object], field: str) -> list[FieldError]:
    """Findings about a container's environment."""
    found: list[FieldError] = []
    for index, variable in enumerate(variables):
        where, name = f"{field}[{index}]", variable.get("name", "")
        if not name:
            found.append(required(f"{where}.name"))
        elif not _ENV_NAME.fullmatch(name):
            found.append(invalid(f"{where}.name", name, _ENV_TEXT))
        source = variable.get("valueFrom")
        if source is not None:
            found += _source(source, variable.get("value", ""), f"{where}.valueFrom")
    return found


def _source(source: Object, value: str, field: str) -> list[FieldError]:
    chosen = [name for name in _SOURCES if name in source]
    found = _field_ref(source["fieldRef"], f"{field}.fieldRef") if "fieldRef" in source else []
    if not chosen:
        found.append(invalid(field, "", _ONE_SOURCE))
    elif value:
        found.append(invalid(field, "", "may not be specified when `value` is not empty"))
    elif len(chosen) > 1:
        found.append(invalid(field, "", "may not have more than one field specified at a time"))
    return found


def _field_ref(reference: Object, field: str) -> list[FieldError]:
    path, where = reference.get("fieldPath", ""), f"{field}.fieldPath"
    if not path:
        return [required(where)]
    if path in _FIELDS or ((match := _KEYED.fullmatch(path)) and not qualified_name(match[2])):
        return []
    if path in ("metadata.annotations", "metadata.labels"):
        return [not_supported(where, path, _FIELDS)]
    text = f"error converting fieldPath: field label not supported: {path}"
    return [invalid(where, path, text)]
