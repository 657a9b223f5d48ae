"""The functions that can be evaluated, with the overloads that Kubernetes declares for them.

Written as CEL's own documentation writes them. ``A``, ``B`` and ``V`` are type variables; a
leading ``A.`` or ``list(A).`` marks a method. The order is cel-go's: where an operand's type is
still open, the first overload settles it.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from dray.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
    variable,
)


@dataclass(frozen=True, slots=True)
class Overload:
    """One form of a function; a method's receiver is its first parameter."""

    is_method: bool
    parameters: tuple[Type, ...]
    result: Type
    variables: tuple[Type, ...] = ()


_STANDARD: Final = """
!_(bool) -> bool
-_(double) -> double | -_(int) -> int
_+_(bytes, bytes) -> bytes | _+_(double, double) -> double | _+_(int, int) -> int
_+_(list(A), list(A)) -> list(A) | _+_(string, string) -> string | _+_(uint, uint) -> uint
_-_(double, double) -> double | _-_(int, int) -> int | _-_(uint, uint) -> uint
_*_(double, double) -> double | _*_(int, int) -> int | _*_(uint, uint) -> uint
_/_(double, double) -> double | _/_(int, int) -> int | _/_(uint, uint) -> uint
_%_(int, int) -> int | _%_(uint, uint) -> uint
_==_(A, A) -> bool | _!=_(A, A) -> bool
_in_(A, list(A)) -> bool | _in_(A, map(A, B)) -> bool
_[_](list(A), int) -> A | _[_](map(A, B), A) -> B
_[_](optional(list(A)), int) -> optional(A) | _[_](optional(map(A, B)), A) -> optional(B)
_[?_](list(A), int) -> optional(A) | _[?_](map(A, B), A) -> optional(B)
_[?_](optional(list(A)), int) -> optional(A) | _[?_](optional(map(A, B)), A) -> optional(B)
_?_:_(bool, A, A) -> A
size(string) -> int | size(bytes) -> int | size(list(A)) -> int | size(map(A, B)) -> int
string.size() -> int | bytes.size() -> int | list(A).size() -> int | map(A, B).size() -> int
bool(bool) -> bool | bool(string) -> bool | type(A) -> type(A) | dyn(A) -> dyn
bytes(bytes) -> bytes | bytes(string) -> bytes
int(int) -> int | int(uint) -> int | int(double) -> int | int(string) -> int
uint(uint) -> uint | uint(int) -> uint | uint(double) -> uint | uint(string) -> uint
double(double) -> double | double(int) -> double | double(uint) -> double | double(string) -> double
string(string) -> string | string(bool) -> string | string(int) -> string | string(uint) -> string
string(double) -> string | string(bytes) -> string
string.startsWith(string) -> bool | string.endsWith(string) -> bool
string.contains(string) -> bool
string.matches(string) -> bool | matches(string, string) -> bool
"""
_OPTIONALS: Final = """
optional.of(A) -> optional(A) | optional.ofNonZeroValue(A) -> optional(A)
optional.none() -> optional(A)
optional(A).value() -> A | optional(A).hasValue() -> bool
optional(A).or(optional(A)) -> optional(A) | optional(A).orValue(A) -> A
"""
_STRINGS: Final = """
string.charAt(int) -> string | string.lowerAscii() -> string | string.upperAscii() -> string
string.trim() -> string | strings.quote(string) -> string
string.indexOf(string) -> int | string.indexOf(string, int) -> int
string.lastIndexOf(string) -> int | string.lastIndexOf(string, int) -> int
list(string).join() -> string | list(string).join(string) -> string
string.replace(string, string) -> string | string.replace(string, string, int) -> string
string.split(string) -> list(string) | string.split(string, int) -> list(string)
string.substring(int) -> string | string.substring(int, int) -> string
string.find(string) -> string
string.findAll(string) -> list(string) | string.findAll(string, int) -> list(string)
"""
_KUBERNETES: Final = """
quantity(string) -> quantity | isQuantity(string) -> bool
sign(quantity) -> int | quantity.isInteger() -> bool | quantity.asInteger() -> int
quantity.asApproximateFloat() -> double
quantity.add(quantity) -> quantity | quantity.add(int) -> quantity
quantity.sub(quantity) -> quantity | quantity.sub(int) -> quantity
quantity.compareTo(quantity) -> int
quantity.isGreaterThan(quantity) -> bool | quantity.isLessThan(quantity) -> bool
semver(string) -> semver | semver(string, bool) -> semver
isSemver(string) -> bool | isSemver(string, bool) -> bool
semver.major() -> int | semver.minor() -> int | semver.patch() -> int
semver.compareTo(semver) -> int
semver.isGreaterThan(semver) -> bool | semver.isLessThan(semver) -> bool
sets.contains(list(A), list(A)) -> bool | sets.equivalent(list(A), list(A)) -> bool
sets.intersects(list(A), list(A)) -> bool
"""
_LISTS: Final = """
list(A).indexOf(A) -> int | list(A).lastIndexOf(A) -> int
lists.range(int) -> list(int) | list(A).slice(int, int) -> list(A)
list(list(A)).flatten() -> list(A) | list(dyn).flatten(int) -> list(dyn)
list(A).reverse() -> list(A) | list(A).distinct() -> list(A)
"""
_ORDERED: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
_NUMBERS: Final = (INT, UINT, DOUBLE)

_UNSUPPORTED: Final = """
duration timestamp getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours
getMilliseconds getMinutes getMonth getSeconds format
url isURL getScheme getHost getHostname getPort getEscapedPath getQuery
ip isIP ip.isCanonical family isUnspecified isLoopback isLinkLocalMulticast
isLinkLocalUnicast isGlobalUnicast cidr isCIDR containsIP containsCIDR masked prefixLength
validate format.named format.dns1123Label format.dns1123Subdomain format.dns1035Label
format.qualifiedName format.dns1123LabelPrefix format.dns1123SubdomainPrefix
format.dns1035LabelPrefix format.labelValue format.uri format.uuid format.byte format.date
format.datetime authorizer path group resource subresource namespace name serviceAccount
check allowed reason errored error includes
sortBy first last
"""
UNSUPPORTED: Final = frozenset(_UNSUPPORTED.split())
"""What Kubernetes has beyond it, by name: refused with its name, and this list only shrinks."""

_NAMED: Final = {
    **{t.name: t for t in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, DYN, ANY)},
    "quantity": QUANTITY,
    "semver": SEMVER,
    "null": NULL,
}
_NAMESPACES: Final = ("optional", "strings", "sets", "lists")


@cache
def overloads(name: str) -> tuple[Overload, ...]:
    """The overloads of ``name``; operators are named as in ``_+_``, ``!_`` and ``_[_]``."""
    return tuple(_table().get(name, ()))


def known_names() -> list[str]:
    """All function names, for suggestions."""
    return sorted({*_table(), *UNSUPPORTED} - {n for n in _table() if "_" in n})


@cache
def _table() -> dict[str, list[Overload]]:
    found: dict[str, list[Overload]] = {}
    for text in (_STANDARD, _OPTIONALS, _STRINGS, _KUBERNETES, _LISTS):
        for form in re.split(r"\s*[|\n]\s*", text.strip()):
            name, overload = _parse_form(form)
            found.setdefault(name, []).append(overload)
    for operator in ("<", "<=", ">", ">="):
        pairs = {(t, t) for t in _ORDERED} | {(a, b) for a in _NUMBERS for b in _NUMBERS}
        ordered = sorted(pairs, key=str)
        found[f"_{operator}_"] = [Overload(False, pair, BOOL) for pair in ordered]
    for item in _ORDERED:
        given = (list_of(item),)
        found.setdefault("isSorted", []).append(Overload(True, given, BOOL))
        for name in ("min", "max"):
            found.setdefault(name, []).append(Overload(True, given, item))
        found.setdefault("sort", []).append(Overload(True, given, given[0]))
        if item in (*_NUMBERS, DURATION):
            found.setdefault("sum", []).append(Overload(True, given, item))
    return found


def _parse_form(form: str) -> tuple[str, Overload]:
    call, _, result = form.partition(" -> ")
    opening = _last_opening(call)
    head = call[:opening]
    receiver, dot, name = head.rpartition(".")
    parameters = [_parse_type(part) for part in _split(call[opening + 1 : -1])]
    is_method = bool(dot) and receiver not in _NAMESPACES
    if is_method:
        parameters.insert(0, _parse_type(receiver))
    names = [variable(v) for v in "AB" if re.search(rf"\b{v}\b", form)]
    full = name if is_method else head
    return full, Overload(is_method, tuple(parameters), _parse_type(result), tuple(names))


def _last_opening(call: str) -> int:
    """Where the argument list begins that ends ``call``."""
    depth = 0
    for at in range(len(call) - 1, -1, -1):
        depth += (call[at] == ")") - (call[at] == "(")
        if depth == 0:
            return at
    raise ValueError(call)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _parse_type(text: str) -> Type:
    if text in _NAMED:
        return _NAMED[text]
    name, bracket, rest = text.partition("(")
    if not bracket:
        return variable(text)
    parts = [_parse_type(part) for part in _split(rest[:-1])]
    if name == "list":
        return list_of(parts[0])
    if name == "map":
        return map_of(parts[0], parts[1])
    return optional_of(parts[0]) if name == "optional" else type_of(parts[0])
