"""Typed access to the fields of a Kubernetes object, with the field's path in each error."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dray.api.errors import InvalidInputError
from dray.api.quantities import InvalidQuantityError, parse_quantity

_INT64: Final = range(-(2**63), 2**63)
_NAMES: Final = {str: "a string", int: "an integer", bool: "true or false"}


class JsonFields:
    """One JSON object. A field that is null counts as absent, as in Go.

    Every method raises InvalidInputError if the field has another type.
    """

    def __init__(self, obj: Any, path: str) -> None:
        if not isinstance(obj, Mapping):
            raise InvalidInputError(f"{path} is {_seen(obj)}, expected an object")
        self._obj = obj
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self._obj.get(name) is not None

    def text(self, name: str, default: str | None = "") -> str:
        """A string; refused where it is absent and ``default`` is None."""
        found = self._plain(name, str)
        if found is None and default is None:
            raise InvalidInputError(f"{self.path}.{name} is missing")
        return default or "" if found is None else str(found)

    def whole(self, name: str, default: int | None = None) -> int | None:
        """A 64-bit integer."""
        found = self._plain(name, int)
        if found is None:
            return default
        if found not in _INT64:
            raise InvalidInputError(f"{self.path}.{name} exceeds 64 bits")
        return int(found)

    def flag(self, name: str) -> bool | None:
        """true, false, or None where absent."""
        found = self._plain(name, bool)
        return None if found is None else bool(found)

    def quantity(self, name: str) -> str | None:
        """A quantity as text, from a JSON string or number."""
        found = self._obj.get(name)
        return None if found is None else quantity_text(found, f"{self.path}.{name}")

    def child(self, name: str) -> "JsonFields":
        """An object; an empty one where absent."""
        return JsonFields(_or_else(self._obj.get(name), {}), f"{self.path}.{name}")

    def children(self, name: str) -> Iterator["JsonFields"]:
        """The objects of a list."""
        for index, entry in enumerate(self._list(name)):
            yield JsonFields(entry, f"{self.path}.{name}[{index}]")

    def texts(self, name: str) -> tuple[str, ...]:
        """The strings of a list."""
        for index, entry in enumerate(found := self._list(name)):
            _expect(entry, str, f"{self.path}.{name}[{index}]")
        return tuple(found)

    def texts_if_stated(self, name: str) -> tuple[str, ...] | None:
        """The strings of a list, or None where absent: an empty list is stated."""
        return self.texts(name) if name in self else None

    def named(self, name: str) -> Iterator[tuple[str, "JsonFields"]]:
        """The objects of a map, by name."""
        for key, value in self.child(name)._obj.items():
            yield str(key), JsonFields(_or_else(value, {}), f"{self.path}.{name}[{key}]")

    def quantities(self, name: str) -> dict[str, str]:
        """The quantities of a map, as text."""
        values = self.child(name)._obj.items()
        return {str(k): quantity_text(v, f"{self.path}.{name}[{k}]") for k, v in values}

    def labels(self, name: str) -> dict[str, str]:
        """The strings of a map."""
        for key, value in (found := self.child(name)._obj).items():
            _expect(value, str, f"{self.path}.{name}[{key}]")
        return dict(found)

    def raw(self, name: str) -> Any:
        """The value as it is."""
        return self._obj.get(name)

    def _plain(self, name: str, kind: type) -> Any:
        found = self._obj.get(name)
        if found is not None:
            _expect(found, kind, f"{self.path}.{name}")
        return found

    def _list(self, name: str) -> list[Any]:
        found = _or_else(self._obj.get(name), [])
        if not isinstance(found, list):
            raise InvalidInputError(f"{self.path}.{name} is {_seen(found)}, expected a list")
        return found


def quantity_text(value: Any, path: str) -> str:
    """A quantity as text, checked.

    Raises:
        InvalidInputError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidInputError(f"{path} is {_seen(value)}, expected a quantity")
    try:
        parse_quantity(str(value).strip())
    except InvalidQuantityError as error:
        raise InvalidInputError(f"{path}: {error}") from None
    return str(value).strip()


def _expect(value: Any, kind: type, path: str) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidInputError(f"{path} is {_seen(value)}, expected {_NAMES[kind]}")


def _or_else(value: Any, absent: Any) -> Any:
    return absent if value is None else value


def _seen(value: Any) -> str:
    return "null" if value is None else type(value).__name__
