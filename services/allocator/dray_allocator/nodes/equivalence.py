"""Equivalence classes ("kinds") of nodes or cards: a pod is evaluated once per kind.

Ten thousand equal cards differ by uuid; if no selector reads it, they are of one kind.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")
Read = Callable[[T], Hashable]

MOST_VALUES: Final = 256
"""A property with more values than this does not distinguish kinds: every item would be a kind of
its own. Selectors that read it are evaluated item by item instead."""
_BATCH: Final = 1024
"""Items that are numbered between two checks for properties with too many values."""
_LEAST_OLD_KINDS: Final = 128
_MOST_OLD_KINDS: Final = 4096
"""Kinds that may become unused before all kinds are renumbered: as many as there are items, within
these limits. So few items keep few kinds, and renumbering costs little per new kind."""


@dataclass(slots=True)
class _Level(Generic[T]):
    """One property, and how it divides the kinds of the level above."""

    property_key: Hashable
    read: Read[T]
    kinds: dict[tuple[int, Hashable], int] = field(default_factory=dict)
    """By the kind above and the value."""
    values: dict[Hashable, None] = field(default_factory=dict)


class EquivalenceClasses(Generic[T]):
    """Numbers the kinds from 0. Items of one kind are equal in ``base`` and in all properties."""

    def __init__(self, base: Read[T]) -> None:
        self._base = base
        self._properties: dict[Hashable, Read[T]] = {}
        self._dropped: dict[Hashable, None] = {}
        self._bases: dict[Hashable, int] = {}
        self._levels: list[_Level[T]] = []
        self._examples: list[T] = []
        self._after_renumbering = 0
        self._items = 0
        """The number of items at the last renumbering."""

    @property
    def count(self) -> int:
        """The number of kinds."""
        return len(self._examples)

    @property
    def needs_renumbering(self) -> bool:
        """Whether ``renumber`` should be called: many kinds are unused, or a property has too many
        values."""
        most_old = min(_MOST_OLD_KINDS, max(_LEAST_OLD_KINDS, self._items))
        return self.count > 2 * self._after_renumbering + most_old or self._is_wide()

    def distinguishes(self, property_key: Hashable) -> bool:
        """Whether items of one kind are equal in this property."""
        return property_key in self._properties

    def has_property(self, property_key: Hashable) -> bool:
        """Whether the property was added, even if it has too many values to distinguish kinds."""
        return property_key in self._properties or property_key in self._dropped

    def example(self, kind: int) -> T:
        """An item that is or was of this kind."""
        return self._examples[kind]

    def of(self, item: T) -> int:
        """The kind of an item; a new one if there is none for it."""
        kind = self._bases.setdefault(self._base(item), len(self._bases))
        for level in self._levels:
            value = level.read(item)
            found = level.kinds.get((kind, value))
            if found is None:
                level.values[value] = None
                found = level.kinds[kind, value] = len(level.kinds)
            kind = found
        if kind == len(self._examples):
            self._examples.append(item)
        return kind

    def renumber(self, properties: Mapping[Hashable, Read[T]], items: Iterable[T]) -> list[int]:
        """Add properties, and renumber all kinds.

        ``items``: all items. Returns their kinds, in the same order.
        """
        known = tuple(items)
        for property_key, read in properties.items():
            if not self.has_property(property_key):
                self._properties[property_key] = read
        found: list[int] | None = None
        while found is None:
            found = self._numbered(known)
        self._after_renumbering = self.count
        self._items = len(known)
        return found

    def _numbered(self, items: Sequence[T]) -> list[int] | None:
        """The kinds of all items; None if a property has too many values: the next call drops
        it."""
        self._drop_wide()
        self._bases, self._examples = {}, []
        self._levels = [_Level(key, read) for key, read in self._properties.items()]
        found: list[int] = []
        for start in range(0, len(items), _BATCH):
            found += map(self.of, items[start : start + _BATCH])
            if self._is_wide():
                return None
        return found

    def _is_wide(self) -> bool:
        return any(len(level.values) > MOST_VALUES for level in self._levels)

    def _drop_wide(self) -> None:
        """Remove the properties with too many values."""
        for level in self._levels:
            if len(level.values) > MOST_VALUES:
                self._dropped[level.property_key] = None
                del self._properties[level.property_key]
