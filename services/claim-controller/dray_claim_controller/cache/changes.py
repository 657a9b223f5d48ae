"""Changes since a reader's last look, and indexes that drop empty keys. Pure."""

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


def enter(index: dict[K, dict[V, None]], key: K, value: V) -> None:
    """Add a value to an index."""
    index.setdefault(key, {})[value] = None


def leave(index: dict[K, dict[V, None]], key: K, value: V) -> None:
    """Remove a value from an index, and its key with the last value."""
    values = index.get(key)
    if values is not None:
        values.pop(value, None)
        if not values:
            del index[key]


class Unread(Generic[K]):
    """Keys that changed since its reader took them."""

    def __init__(self) -> None:
        self._keys: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[K]) -> None:
        """Note that these keys changed."""
        self._keys.update(dict.fromkeys(keys))

    def take(self, most: int | None = None) -> list[K]:
        """Return and forget the keys that changed first, at most ``most`` of them."""
        taken = list(islice(self._keys, most))
        if len(taken) == len(self._keys):
            self._keys.clear()
        else:
            for key in taken:
                del self._keys[key]
        return taken


class ChangeFeed(Generic[K]):
    """Tells each of its readers what changed."""

    def __init__(self) -> None:
        self._readers: list[Unread[K]] = []

    def subscribe(self, reader: Unread[K]) -> None:
        """Tell a reader what changes from now on."""
        self._readers.append(reader)

    def unsubscribe(self, reader: Unread[K]) -> None:
        """Stop telling a reader what changes."""
        self._readers = [one for one in self._readers if one is not reader]

    @contextmanager
    def subscribed(self, reader: Unread[K]) -> Iterator[None]:
        """Tell a reader what changes in the block."""
        self.subscribe(reader)
        try:
            yield
        finally:
            self.unsubscribe(reader)

    def put(self, *keys: K) -> None:
        """Note, for every reader, that these keys changed."""
        for reader in self._readers:
            reader.add(keys)
