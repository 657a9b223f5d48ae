"""Objects, versions and history: the etcd of the sandbox.

Everything is synchronous, so between two awaits nothing else writes. Returned objects are shared
and must not be changed; use `copy` to get a private one.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api import json_codec

from .journal import Line, RequestJournal
from .status import Object, gone

_ANYTHING = msgspec.json.Decoder[Any]()
Key = tuple[str, str, str]
"""(resource as `group/plural`, namespace or empty, name)."""


class Conflict(Exception):
    """The object has changed since the writer read it."""


@dataclass(frozen=True)
class StoreChange:
    """One write: the object before and after (None: absent)."""

    version: int
    key: Key
    old: Object | None
    new: Object | None


def copy(value: Any) -> Any:
    """A deep copy of JSON."""
    return json_codec.decode(msgspec.json.encode(value), _ANYTHING)


class Store:
    """All objects by key, one growing version, and the last `history_size` changes."""

    def __init__(self, journal: RequestJournal | None = None, history_size: int = 20_000) -> None:
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._history: deque[StoreChange] = deque()
        self._history_size = history_size
        self._journal = journal
        self._listeners: list[Callable[[StoreChange], None]] = []
        self.version = 1
        self.compacted = 1
        """Changes up to this version are forgotten."""
        if journal is not None:
            self._load(journal)

    def listen(self, listener: Callable[[StoreChange], None]) -> Callable[[], None]:
        """Call `listener` with every change from now on; call the result to stop this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, key: Key) -> Object | None:
        """The object now, or None."""
        return self._objects.get(key[0], {}).get(key[1:])

    def items(
        self, resource: str, namespace: str = "", matches: Callable[[Object], bool] | None = None
    ) -> list[Object]:
        """Objects of a resource in the order of their keys (namespace, name)."""
        return _items(self._objects.get(resource, {}), namespace, matches)

    def resources(self) -> list[str]:
        """Resources that have ever held an object."""
        return list(self._objects)

    def items_at(
        self,
        resource: str,
        namespace: str,
        version: int,
        matches: Callable[[Object], bool] | None = None,
    ) -> list[Object]:
        """Objects as they were at an old version; 410 if that version is forgotten."""
        if version < self.compacted:
            raise gone(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        found = dict(self._objects.get(resource, {}))
        for change in reversed(self._history):
            if change.version <= version:
                break
            if change.key[0] != resource:
                continue
            if change.old is None:
                found.pop(change.key[1:], None)
            else:
                found[change.key[1:]] = change.old
        return _items(found, namespace, matches)

    def since(self, version: int, resource: str) -> Iterator[StoreChange]:
        """Changes of a resource after `version`; 410 when some are forgotten."""
        if version < self.compacted:
            raise gone(f"too old resource version: {version} ({self.compacted})")
        return iter([c for c in self._history if c.version > version and c.key[0] == resource])

    def write(self, key: Key, new: Object | None, seen: Object | None) -> Object:
        """Replace the object that was read as `seen` by `new`; None: there is no object.

        Returns the stored object (the last state, with the deletion's version, when deleted).
        Raises `Conflict` if the object is no longer `seen`.
        """
        old = self.get(key)
        if old is not seen:
            raise Conflict(key)
        version = self.version + 1
        stamped: Object = dict(new if new is not None else old or {})
        stamped["metadata"] = {**stamped["metadata"], "resourceVersion": str(version)}
        if self._journal is not None:
            self._journal.append(_line(version, key, new and stamped))
        kept = stamped if new is not None else None
        self._put(StoreChange(version, key, old, kept))
        return stamped

    def _put(self, change: StoreChange) -> None:
        self.version = change.version
        objects = self._objects.setdefault(change.key[0], {})
        if change.new is None:
            objects.pop(change.key[1:], None)
        else:
            objects[change.key[1:]] = change.new
        self._history.append(change)
        while len(self._history) > self._history_size:
            self.compacted = self._history.popleft().version
        for listener in list(self._listeners):
            listener(change)

    def compact(self) -> None:
        """Drop the whole history, as a real server does every five minutes."""
        self._history.clear()
        self.compacted = self.version

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()

    def _load(self, journal: RequestJournal) -> None:
        for line in journal.snapshot():
            if "key" not in line:
                self.version = self.compacted = line["version"]
            else:
                resource, namespace, name = line["key"]
                self._objects.setdefault(resource, {})[namespace, name] = line["object"]
        for line in journal.entries():
            if line["version"] > self.version:
                key: Key = tuple(line["key"])
                self._put(StoreChange(line["version"], key, self.get(key), line.get("object")))
        journal.restart(self._snapshot_lines(), self._history_lines())

    def _snapshot_lines(self) -> Iterator[Line]:
        """The state just before the retained history."""
        yield {"version": self.compacted}
        for resource in self._objects:
            for item in self.items_at(resource, "", self.compacted):
                meta = item["metadata"]
                key = (resource, meta.get("namespace", ""), meta["name"])
                yield {"key": key, "object": item}

    def _history_lines(self) -> Iterator[Line]:
        for change in self._history:
            yield _line(change.version, change.key, change.new)


def _line(version: int, key: Key, new: Object | None) -> Line:
    line: Line = {"version": version, "key": key}
    if new is not None:
        line["object"] = new
    return line


def _items(
    objects: Mapping[tuple[str, str], Object],
    namespace: str,
    matches: Callable[[Object], bool] | None,
) -> list[Object]:
    keys = sorted(
        key
        for key, obj in objects.items()
        if (not namespace or key[0] == namespace) and (matches is None or matches(obj))
    )
    return [objects[key] for key in keys]
