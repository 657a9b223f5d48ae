"""Label and field selectors as the API server reads them."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.kube.ports import Object, RefusedError

Test = Callable[[Mapping[str, str]], bool]
_SET: Final = re.compile(r"\s*([^\s,!=()]+)\s+(in|notin)\s*\(([^)]*)\)\s*")
_EQUAL: Final = re.compile(r"\s*([^\s,!=()]+)\s*(==|=|!=)\s*([^\s,!=()]*)\s*")
_EXISTS: Final = re.compile(r"\s*(!?)\s*([^\s,!=()]+)\s*")


def matcher(namespace: str, labels: str, fields: str) -> Callable[[Object], bool]:
    """Whether an object is in the namespace (empty: in any) and satisfies both selectors."""
    by_label, by_field = _label_matcher(labels), _field_matcher(fields)
    return lambda obj: (
        (not namespace or obj["metadata"].get("namespace") == namespace)
        and by_label(obj)
        and by_field(obj)
    )


def _label_matcher(selector: str) -> Callable[[Object], bool]:
    """Whether an object's labels satisfy the selector. Raises RefusedError (400)."""
    tests = _requirements(selector)
    return lambda obj: all(test(obj["metadata"].get("labels") or {}) for test in tests)


def _field_matcher(selector: str) -> Callable[[Object], bool]:
    """Whether an object's fields satisfy ``path=value`` terms."""
    terms = [_field_term(term) for term in selector.split(",") if term.strip()]
    return lambda obj: all((_field(obj, path) == value) is equal for path, equal, value in terms)


def _requirements(selector: str) -> list[Test]:
    tests: list[Test] = []
    position = 0
    while position < len(selector):
        test, position = _requirement(selector, position)
        tests.append(test)
        if position < len(selector):
            if selector[position] != ",":
                raise RefusedError(f"unable to parse requirement in {selector!r}", 400)
            position += 1
    return tests


def _requirement(selector: str, position: int) -> tuple[Test, int]:
    if match := _SET.match(selector, position):
        name, values = match[1], {value.strip() for value in match[3].split(",")}
        return _in(name, values, wanted=match[2] == "in"), match.end()
    if match := _EQUAL.match(selector, position):
        return _in(match[1], {match[3]}, wanted=match[2] != "!="), match.end()
    if match := _EXISTS.match(selector, position):
        name, wanted = match[2], not match[1]
        return lambda labels: (name in labels) is wanted, match.end()
    raise RefusedError(f"unable to parse requirement in {selector!r}", 400)


def _in(name: str, values: set[str], *, wanted: bool) -> Test:
    if wanted:
        return lambda labels: labels.get(name) in values
    return lambda labels: labels.get(name) not in values


def _field_term(term: str) -> tuple[list[str], bool, str]:
    path, operator, value = re.split(r"(!=|==|=)", term.strip(), maxsplit=1)
    return path.split("."), operator != "!=", value


def _field(obj: Object, path: list[str]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)
