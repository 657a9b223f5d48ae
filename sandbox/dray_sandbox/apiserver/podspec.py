"""Validation of the parts of a pod's spec that dray uses."""

from typing import Any

from .names import dns_label, dns_subdomain, qualified_name
from .podresources import amount_errors, env_errors
from .status import FieldError, Object, duplicate, go_value, invalid, not_supported, required

_ONE_OF = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
_AT_MOST_ONE = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"


def container_errors(spec: Object, field: str, *, required_list: bool) -> list[FieldError]:
    containers = spec.get(field) or []
    if required_list and not containers:
        return [required(f"spec.{field}")]
    claims = [claim.get("name") for claim in spec.get("resourceClaims") or []]
    found: list[FieldError] = []
    seen: list[str] = []
    for index, container in enumerate(containers):
        where, name = f"spec.{field}[{index}]", container.get("name", "")
        if not name:
            found.append(required(f"{where}.name"))
        found += [invalid(f"{where}.name", name, text) for text in dns_label(name) if name]
        if name in seen:
            found.append(duplicate(f"{where}.name", name))
        seen.append(name)
        found += _image(container, where)
        found += env_errors(container.get("env") or [], f"{where}.env")
        found += _used_claims(container, f"{where}.resources.claims", claims)
        found += amount_errors(container.get("resources") or {}, f"{where}.resources")
    return found


def _image(container: Object, field: str) -> list[FieldError]:
    image, policy = container.get("image", ""), container.get("imagePullPolicy", "")
    found = [] if image else [required(f"{field}.image")]
    if image != image.strip():
        text = "must not have leading or trailing whitespace"
        found.append(invalid(f"{field}.image", image, text))
    if policy not in _PULLS:
        found.append(not_supported(f"{field}.imagePullPolicy", policy, _PULLS))
    return found


_PULLS = ("Always", "IfNotPresent", "Never")


def _used_claims(container: Object, field: str, claims: list[Any]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: list[tuple[Any, Any]] = []
    for index, claim in enumerate((container.get("resources") or {}).get("claims") or []):
        name, where = claim.get("name", ""), f"{field}[{index}]"
        if not name:
            found.append(required(where))
        elif name not in claims:
            listed = "must be one of the names in pod.spec.resourceClaims"
            body = f"Not found: {go_value(name)}: {listed}"
            found.append(FieldError("FieldValueNotFound", where, body))
        request = claim.get("request", "")
        where_request = f"{where}.request"
        found += [invalid(where_request, request, t) for t in dns_label(request) if request]
        earlier = [other for named, other in seen if named == name]
        # A claim that is listed without a request name can't be listed again with one.
        if request in earlier or (earlier and (not request or "" in earlier)):
            found.append(duplicate(where, name))
        seen.append((name, request))
    return found


def claim_errors(claims: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: list[str] = []
    for index, claim in enumerate(claims):
        field, name = f"spec.resourceClaims[{index}]", claim.get("name", "")
        if not name:
            found.append(required(f"{field}.name"))
        elif name in seen:
            found.append(duplicate(f"{field}.name", name))
        else:
            found += [invalid(f"{field}.name", name, text) for text in dns_label(name)]
        seen.append(name)
        references = [k for k in ("resourceClaimName", "resourceClaimTemplateName") if k in claim]
        if len(references) == 2:
            found.append(invalid(field, _go_struct(claim), _AT_MOST_ONE))
        if not references:
            found.append(invalid(field, _go_struct(claim), _ONE_OF))
        for key in references:
            found += [invalid(f"{field}.{key}", claim[key], t) for t in dns_subdomain(claim[key])]
    return found


def _go_struct(claim: Object) -> Object:
    """A pod's claim as Go prints it."""
    names = ("name", "resourceClaimName", "resourceClaimTemplateName")
    return {name[0].upper() + name[1:]: claim.get(name) for name in names}


def toleration_errors(tolerations: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        field = f"spec.tolerations[{index}]"
        key, effect = toleration.get("key", ""), toleration.get("effect", "")
        operator, value = toleration.get("operator", ""), toleration.get("value", "")
        found += [invalid(f"{field}.key", key, text) for text in qualified_name(key) if key]
        if not key and operator != "Exists":
            text = (
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"'
            )
            found.append(invalid(f"{field}.operator", operator, text))
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(invalid(f"{field}.effect", effect, text))
        if operator == "Exists" and value:
            text = "value must be empty when `operator` is 'Exists'"
            found.append(invalid(f"{field}.operator", value, text))
        elif operator not in ("", "Equal", "Exists"):
            found.append(not_supported(f"{field}.operator", operator, ("Equal", "Exists")))
        if effect not in ("", *_EFFECTS):
            found.append(not_supported(f"{field}.effect", effect, _EFFECTS))
    return found


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def gate_errors(gates: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: list[str] = []
    for index, gate in enumerate(gates):
        field, name = f"spec.schedulingGates[{index}]", gate.get("name", "")
        found += [invalid(field, name, text) for text in qualified_name(name)]
        if name in seen:
            found.append(duplicate(field, name))
        seen.append(name)
    return found
