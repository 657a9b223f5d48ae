"""Watches: resumption from a version, bookmarks, 410 as an event, and early ends."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from .selectors import Predicate
from .status import ApiError, Object, gone
from .store import Store, StoreChange

Event = Object
_LAST_BOOKMARK_S = 2.0
"""A watch that requested bookmarks gets one this long before its end."""
_INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True)
class WatchSettings:
    """Limits of watches."""

    bookmark_interval_s: float = 10.0
    """Time between bookmarks; a real server takes about 60 s."""
    life_s: tuple[float, float] = (1800.0, 3600.0)
    """A watch without timeoutSeconds ends after a random time in this range, as on a real one."""
    buffer: int = 2000
    """Unread events after which a slow watcher is cut off ("very short watch")."""
    send_initial_events: bool = True
    """Accept `sendInitialEvents=true` (beta)? Else it is refused with 422."""
    seed: int = 1
    """The seed of the random life times."""


@dataclass(frozen=True)
class WatchRequest:
    """One requested watch."""

    resource_key: str
    kind: str
    api_version: str
    namespace: str
    predicate: Predicate
    version: str
    oldest: int = 0
    """Changes before this version are not sent."""
    bookmarks: bool = False
    initial_events: bool = False
    timeout_s: float | None = None


class Watches:
    """Serves watches of one store; `end_all` cuts every open one."""

    def __init__(self, store: Store, settings: WatchSettings) -> None:
        self._store = store
        self._settings = settings
        self._random = random.Random(settings.seed)
        self._open: dict[int, Callable[[], None]] = {}

    def end_all(self) -> None:
        """End every open watch now, without an error, as a restarting server would."""
        for end in list(self._open.values()):
            end()

    async def events(self, request: WatchRequest) -> AsyncIterator[Event]:
        """Events until the watch ends; a version that is forgotten yields one ERROR event."""
        feed = _Feed(self._store, request, self._settings.buffer)
        self._open[id(feed)] = feed.end
        try:
            try:
                initial = list(feed.start())
            except ApiError as error:
                yield {"type": "ERROR", "object": error.body()}
                return
            for event in initial:
                yield event
            async for event in self._live(feed, request):
                yield event
        finally:
            feed.stop()
            del self._open[id(feed)]

    async def _live(self, feed: _Feed, request: WatchRequest) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        low, high = self._settings.life_s
        life_s = request.timeout_s or self._random.uniform(low, high)
        ends = loop.time() + life_s
        next_bookmark = loop.time() + self._settings.bookmark_interval_s
        if life_s > _LAST_BOOKMARK_S:
            next_bookmark = min(next_bookmark, ends - _LAST_BOOKMARK_S)
        while not feed.finished:
            wait_s = min(ends, next_bookmark if request.bookmarks else ends) - loop.time()
            for event in await feed.next(max(wait_s, 0.0)):
                yield event
            now = loop.time()
            if now >= ends:
                return
            if request.bookmarks and now >= next_bookmark:
                next_bookmark = now + self._settings.bookmark_interval_s
                if now < ends - _LAST_BOOKMARK_S:
                    next_bookmark = min(next_bookmark, ends - _LAST_BOOKMARK_S)
                yield feed.bookmark()


class _Feed:
    """Changes of one resource, turned into the events of one watcher."""

    def __init__(self, store: Store, request: WatchRequest, buffer: int) -> None:
        self._store = store
        self._request = request
        self._buffer = buffer
        self._pending: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._after = 0
        self._unlisten: Callable[[], None] | None = None
        self._ended = False

    def start(self) -> list[Event]:
        """The initial events. From now on, changes are collected."""
        request = self._request
        initial: list[Event] = []
        version = request.version
        if version in ("", "0") or request.initial_events:
            initial = [
                {"type": "ADDED", "object": item}
                for item in self._store.items(request.resource_key, request.namespace)
                if request.predicate(item)
            ]
            if request.initial_events:
                initial.append(self.bookmark({_INITIAL_END: "true"}))
        else:
            self._after = int(version)
            if self._after < request.oldest:
                raise gone(f"too old resource version: {version} ({request.oldest})")
            for change in self._store.since(int(version), request.resource_key):
                event = self._event(change)
                if event is not None:
                    initial.append(event)
        self._unlisten = self._store.listen(self._changed)
        return initial

    def stop(self) -> None:
        """Collect no more."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    @property
    def finished(self) -> bool:
        """Has the feed ended, and has everything before its end been read?"""
        return self._ended and not self._pending

    def end(self) -> None:
        """Let the reader read the pending events and stop."""
        self._ended = True
        self._wake.set()

    async def next(self, timeout_s: float) -> list[Event]:
        """New events; empty if none came within the time."""
        if not self._pending and not self._ended:
            try:
                await asyncio.wait_for(self._wake.wait(), timeout_s)
            except TimeoutError:
                return []
        self._wake.clear()
        events = list(self._pending)
        self._pending.clear()
        return events

    def bookmark(self, annotations: Object | None = None) -> Event:
        """A bookmark: everything up to the store's version has been sent (nothing is pending)."""
        meta: Object = {
            "resourceVersion": str(max(self._store.version, self._after)),
            "creationTimestamp": None,
        }
        if annotations:
            meta["annotations"] = annotations
        item = {
            "kind": self._request.kind,
            "apiVersion": self._request.api_version,
            "metadata": meta,
        }
        return {"type": "BOOKMARK", "object": item}

    def _changed(self, change: StoreChange) -> None:
        # A watch from a future version waits for it.
        if change.key[0] != self._request.resource_key or change.version <= self._after:
            return
        event = self._event(change)
        if event is None:
            return
        if len(self._pending) >= self._buffer:
            self.end()
            return
        if not self._ended:
            self._pending.append(event)
            self._wake.set()

    def _event(self, change: StoreChange) -> Event | None:
        request = self._request
        if request.namespace and change.key[1] != request.namespace:
            return None
        before = change.old is not None and request.predicate(change.old)
        after = change.new is not None and request.predicate(change.new)
        if after:
            return {"type": "MODIFIED" if before else "ADDED", "object": change.new}
        if not before or change.old is None:
            return None
        # Deleted, or no longer selected: its state before, with the version of the change.
        left = dict(change.old)
        left["metadata"] = {**left["metadata"], "resourceVersion": str(change.version)}
        return {"type": "DELETED", "object": left}
