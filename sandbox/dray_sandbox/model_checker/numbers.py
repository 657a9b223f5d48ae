"""Small numbers for large values: equal values share one, so that states are small and fast."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Numbers(Generic[T]):
    """Values by number, counted from 0."""

    def __init__(self) -> None:
        self._of: dict[Hashable, int] = {}
        self._values: list[T] = []

    def of(self, key: Hashable, value: T) -> int:
        """The number of the value that ``key`` identifies; ``value`` is kept if it is new."""
        known = self._of.get(key)
        if known is None:
            known = self._of[key] = len(self._values)
            self._values.append(value)
        return known

    def find(self, key: Hashable) -> int | None:
        """The number of the value that ``key`` identifies, if there is one."""
        return self._of.get(key)

    def __getitem__(self, number: int) -> T:
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)
