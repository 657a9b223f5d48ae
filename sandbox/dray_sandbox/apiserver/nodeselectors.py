"""Validation of node selectors in allocations and slices."""

from .names import dns_subdomain, label_value, qualified_name
from .status import FieldError, Object, forbidden_field, invalid, required

_NO_OPERATOR = "not a valid selector operator"


def node_selector_errors(selector: Object, field: str) -> list[FieldError]:
    """Findings about a node selector."""
    where = f"{field}.nodeSelectorTerms"
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        return [required(where, "must have at least one node selector term")]
    found: list[FieldError] = []
    for index, term in enumerate(terms):
        for name, check in (("matchExpressions", _expression), ("matchFields", _field)):
            for number, item in enumerate(term.get(name) or []):
                found += check(item, f"{where}[{index}].{name}[{number}]")
    return found


def terms_shown(selector: Object) -> list[Object]:
    """The terms as Go prints them."""

    def requirement(item: Object) -> Object:
        operator, values = item.get("operator", ""), item.get("values") or None
        return {"Key": item.get("key", ""), "Operator": operator, "Values": values}

    def requirements(items: list[Object] | None) -> list[Object] | None:
        return [requirement(item) for item in items] if items else None

    return [
        {
            "MatchExpressions": requirements(term.get("matchExpressions")),
            "MatchFields": requirements(term.get("matchFields")),
        }
        for term in selector.get("nodeSelectorTerms") or []
    ]


def _expression(item: Object, field: str) -> list[FieldError]:
    operator, key, values = item.get("operator", ""), item.get("key", ""), item.get("values") or []
    where = f"{field}.values"
    found: list[FieldError] = []
    match operator:
        case "In" | "NotIn":
            if not values:
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                found.append(required(where, text))
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(forbidden_field(where, text))
        case "Gt" | "Lt":
            if len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                found.append(required(where, text))
        case _:
            found.append(invalid(f"{field}.operator", operator, _NO_OPERATOR))
    found += [invalid(f"{field}.key", key, text) for text in qualified_name(key)]
    return found + [
        invalid(f"{where}[{index}]", value, text)
        for index, value in enumerate(values)
        for text in label_value(value)
    ]


def _field(item: Object, field: str) -> list[FieldError]:
    operator, key, values = item.get("operator", ""), item.get("key", ""), item.get("values") or []
    found: list[FieldError] = []
    if operator not in ("In", "NotIn"):
        found.append(invalid(f"{field}.operator", operator, _NO_OPERATOR))
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(f"{field}.values", text))
    if key != "metadata.name":
        return [*found, invalid(f"{field}.key", key, "not a valid field selector key")]
    return found + [
        invalid(f"{field}.values[{index}]", value, text)
        for index, value in enumerate(values)
        for text in dns_subdomain(value)
    ]
