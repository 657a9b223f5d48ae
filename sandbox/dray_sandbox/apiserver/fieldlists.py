"""Findings about lists and maps of fields: their length, items and duplicates."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from .status import FieldError, duplicate, too_many

Check = Callable[[Any, str], list[FieldError]]
"""Findings about one item at a field."""


def list_errors(items: Sequence[Any], limit: int, field: str, check: Check) -> list[FieldError]:
    """Findings about a list. One that is too long has no other finding."""
    if len(items) > limit:
        return [too_many(field, len(items), limit)]
    return [found for index, item in enumerate(items) for found in check(item, f"{field}[{index}]")]


def set_errors(
    items: Sequence[Any],
    limit: int,
    field: str,
    check: Check,
    key: Callable[[Any], Hashable],
    shown: Callable[[Any], object] | None = None,
) -> list[FieldError]:
    """Findings about a list whose items have a unique key; `shown` formats a key."""
    found = list_errors(items, limit, field, check)
    if len(items) > limit:
        return found
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        value = key(item)
        if value in seen:
            found.append(duplicate(f"{field}[{index}]", shown(item) if shown else value))
        seen.add(value)
    return found


def named(item: Mapping[str, Any]) -> str:
    """The key of items that have a name."""
    return str(item.get("name", ""))


def map_errors(
    items: Mapping[str, Any], limit: int, field: str, check_key: Check
) -> list[FieldError]:
    """Findings about a map's size and keys; a key's field is the map."""
    if len(items) > limit:
        return [too_many(field, len(items), limit)]
    return [found for key in items for found in check_key(key, field)]
