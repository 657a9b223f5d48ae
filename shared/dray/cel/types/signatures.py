"""The functions that an environment declares, and which of their overloads fit given types.

Overloads have cel-go's names, because costs depend on them. Their order is also cel-go's: if an
operand's type is still open, the first overload determines it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from dray.cel.environment import DEFAULT, Environment
from dray.cel.types import types
from dray.cel.types.declarations import extensions, kubernetes, operators
from dray.cel.types.types import Substitution, Type, instantiated, may_fit, variable

_FORM: Final = re.compile(r"(\S+): (?:(\S+(?:, \S+)*)\.)?\((.*)\) -> (.+)")
_NAMED: Final = {
    **{t.name: t for t in (types.BOOL, types.INT, types.UINT, types.DOUBLE, types.STRING)},
    **{t.name: t for t in (types.BYTES, types.DYN, types.ANY)},
    "duration": types.DURATION,
    "timestamp": types.TIMESTAMP,
    "quantity": types.QUANTITY,
    "semver": types.SEMVER,
    "url": types.URL,
    "format": types.NAMED_FORMAT,
    "ip": types.IP,
    "cidr": types.CIDR,
}
_MADE_OF: Final[dict[str, Callable[..., Type]]] = {
    "list": types.list_of,
    "map": types.map_of,
    "optional": types.optional_of,
    "type": types.type_of,
}
_MOST_KEPT: Final = 4096


class Overload(NamedTuple):
    """One form of a function. A method's receiver is its first parameter."""

    name: str
    is_method: bool
    parameters: tuple[Type, ...]
    result: Type
    variables: tuple[Type, ...]


class OverloadResolution(NamedTuple):
    """The overloads that fit, and the type of the result: dyn if they disagree."""

    overloads: tuple[str, ...]
    result: Type


class Functions:
    """The functions of one environment. Each form is parsed when it is first needed."""

    def __init__(self, libraries: Iterable[dict[str, str]]) -> None:
        self._forms: dict[str, str] = {}
        for library in libraries:
            self._forms.update(library)
        self._read: dict[str, tuple[Overload, ...]] = {}
        self._kept: dict[tuple[object, ...], OverloadResolution] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._forms

    def __iter__(self) -> Iterator[str]:
        """All names that an expression can write, for suggestions."""
        return iter(sorted(name for name in self._forms if name.replace(".", "").isalnum()))

    def overloads(self, name: str) -> tuple[Overload, ...]:
        """The overloads of ``name``; none if it is not declared."""
        found = self._read.get(name)
        if found is None:
            lines = self._forms.get(name, "").strip().split("\n")
            found = self._read[name] = tuple(_read_form(line.strip()) for line in lines if line)
        return found

    def resolve(
        self, name: str, given: tuple[Type, ...], known: Substitution, *, is_method: bool = False
    ) -> OverloadResolution | None:
        """Which overloads of ``name`` fit ``given``; None if none does.

        The types that a fit determines for open types are added to ``known``.
        """
        key = (name, is_method, *given)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        if any(found.is_open for found in given):
            return self._matched(name, given, known, is_method)
        found = self._matched(name, given, Substitution(), is_method)
        if found is None:
            return None
        if found.result.is_open:
            return self._matched(name, given, known, is_method)
        if len(self._kept) < _MOST_KEPT:
            self._kept[key] = found
        return found

    def _matched(
        self, name: str, given: tuple[Type, ...], known: Substitution, is_method: bool
    ) -> OverloadResolution | None:
        fitting, result = list[str](), None
        for overload in self.overloads(name):
            if overload.is_method != is_method or not may_fit(given, overload.parameters):
                continue
            fresh = {v: known.fresh() for v in overload.variables}
            wanted = tuple(instantiated(parameter, fresh) for parameter in overload.parameters)
            if known.assign(given, wanted):
                found = known.resolve(instantiated(overload.result, fresh))
                result = found if result is None or result is found else types.DYN
                fitting.append(overload.name)
        return None if result is None else OverloadResolution(tuple(fitting), result)


@lru_cache(maxsize=64)
def functions_of(environment: Environment) -> Functions:
    """The functions of an environment. There is one object for each, because it caches results."""
    libraries = [
        operators.OPERATORS,
        operators.STANDARD,
        operators.TIMES,
        extensions.OPTIONALS,
        extensions.STRINGS,
        extensions.LISTS,
        kubernetes.KUBERNETES,
        kubernetes.NETWORK,
        kubernetes.AUTHORIZATION,
    ]
    if environment.knows_list_library:
        libraries.append(extensions.LIST_LIBRARY)
    is_newest = environment.minor >= 37
    if is_newest:
        libraries.append(kubernetes.SINCE_137)
    if environment.knows_includes:
        libraries.append(kubernetes.INCLUDES_137 if is_newest else kubernetes.INCLUDES)
    return Functions(libraries)


def overloads(name: str) -> tuple[Overload, ...]:
    """The overloads of ``name`` in the default environment."""
    return functions_of(DEFAULT).overloads(name)


def _read_form(line: str) -> Overload:
    match = _FORM.fullmatch(line)
    if match is None:
        raise ValueError(f"{line!r} is not a form of a function")
    name, receiver, parameters, result = match.groups()
    written = ([receiver] if receiver else []) + _split(parameters)
    names = dict.fromkeys(re.findall(r"\b[A-Z]\b", line))
    return Overload(
        name,
        receiver is not None,
        tuple(map(_read_type, written)),
        _read_type(result),
        tuple(map(variable, names)),
    )


def _read_type(text: str) -> Type:
    if text in _NAMED:
        return _NAMED[text]
    name, bracket, rest = text.partition("(")
    if bracket:
        return _MADE_OF[name](*map(_read_type, _split(rest[:-1])))
    return (
        variable(text) if len(text) == 1 else Type(f"kubernetes.authorization.{text}", (), "struct")
    )


def _split(text: str) -> list[str]:
    """The parts of ``text`` between commas that are not in brackets."""
    parts, depth, start = list[str](), 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
