"""Label and field selectors, as query parameters and as LabelSelector objects."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .status import Object, bad_request

Predicate = Callable[[Object], bool]
_TERM = re.compile(
    r"""\s*(?:
        (?P<not>!)\s*(?P<absent>[\w./-]+)
      | (?P<key>[\w./-]+)\s+(?P<set>in|notin)\s*\((?P<values>[^)]*)\)
      | (?P<key2>[\w./-]+)\s*(?P<op>==|!=|=|>|<)\s*(?P<value>[\w./-]*)
      | (?P<exists>[\w./-]+)
    )\s*(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class SelectorRequirement:
    """One term of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Does a label map satisfy this term?"""
        value = labels.get(self.key)
        match self.operator:
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Gt":
                return value is not None and value.isdigit() and int(value) > int(self.values[0])
            case _:
                return value is not None and value.isdigit() and int(value) < int(self.values[0])


def _parse_labels(text: str) -> list[SelectorRequirement]:
    """Read `a=b,c in (d, e),!f`; 400 if it is not one."""
    terms, position = [], 0
    while position < len(text):
        match = _TERM.match(text, position)
        if not match or match.end() == position:
            raise bad_request(f"unable to parse requirement: {text!r}")
        terms.append(_requirement(match))
        position = match.end()
    return terms


def _requirement(match: re.Match[str]) -> SelectorRequirement:
    if match["absent"]:
        return SelectorRequirement(match["absent"], "DoesNotExist")
    if match["exists"]:
        return SelectorRequirement(match["exists"], "Exists")
    if match["set"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return SelectorRequirement(match["key"], "In" if match["set"] == "in" else "NotIn", values)
    operator = {"!=": "NotIn", ">": "Gt", "<": "Lt"}.get(match["op"], "In")
    return SelectorRequirement(match["key2"], operator, (match["value"],))


def label_selector(selector: Mapping[str, Any] | None) -> list[SelectorRequirement]:
    """A LabelSelector object; an empty one matches everything."""
    if not selector:
        return []
    terms = [
        SelectorRequirement(k, "In", (v,)) for k, v in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or []:
        values = tuple(expression.get("values") or ())
        terms.append(SelectorRequirement(expression["key"], expression["operator"], values))
    return terms


def matches_labels(terms: Sequence[SelectorRequirement], labels: Mapping[str, str] | None) -> bool:
    """Does a label map satisfy every term?"""
    return all(term.matches(labels or {}) for term in terms)


def _parse_fields(text: str, allowed: Sequence[str]) -> list[tuple[str, bool, str]]:
    """Read `metadata.name=x,status.phase!=Running` as (field, equal, value); 400 else."""
    terms = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"([\w./\[\]-]+)\s*(==|=|!=)\s*(.*)", part)
        if not match:
            raise bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        name, operator, value = match.groups()
        if name not in ("metadata.name", "metadata.namespace", *allowed):
            raise bad_request(f"field label not supported: {name}")
        terms.append((name, operator != "!=", value))
    return terms


def field_value(item: Object, path: str) -> str:
    """A selectable field as text; absent is empty."""
    value: Any = item
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if path == "source" and isinstance(value, dict):
        value = value.get("component")
    if value is None and path == "spec.unschedulable":
        value = False
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def predicate(labels: str, fields: str, allowed_fields: Sequence[str]) -> Predicate:
    """One test for both selectors of a request."""
    terms = _parse_labels(labels)
    wanted = _parse_fields(fields, allowed_fields)

    def matches(item: Object) -> bool:
        if terms and not matches_labels(terms, item["metadata"].get("labels")):
            return False
        return all((field_value(item, name) == value) == equal for name, equal, value in wanted)

    return matches
