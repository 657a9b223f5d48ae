"""Copies of objects, so that callers of the fake API server share nothing with its store."""

from typing import Any, TypeVar, cast

T = TypeVar("T")


def deep_copy(value: T) -> T:
    """A copy of JSON's containers; their other contents are immutable. It takes a third of the time
    of the standard library's, which looks for objects that are contained several times."""
    return cast(T, _copied(value))


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {name: _copied(item) for name, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return value
