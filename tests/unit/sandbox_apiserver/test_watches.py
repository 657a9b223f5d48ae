"""What the sandbox can do to its watchers on demand, which a real server does at its own time."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from dray_sandbox.apiserver.store import Store
from dray_sandbox.apiserver.watch import Watches, WatchRequest, WatchSettings


def put(store: Store, name: str) -> None:
    key = ("/pods", "n", name)
    item = {"metadata": {"name": name, "namespace": "n", "uid": name}}
    store.write(key, item, store.get(key))


def request(**more: Any) -> WatchRequest:
    base = {
        "resource_key": "/pods",
        "kind": "Pod",
        "api_version": "v1",
        "namespace": "",
        "predicate": lambda item: True,
        "version": "1",
        "timeout_s": 20.0,
    }
    return WatchRequest(**(base | more))


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["object"]["metadata"].get("name", "") for event in events]


async def test_a_forgotten_version_is_one_error_event() -> None:
    store = Store()
    put(store, "a")
    put(store, "b")
    store.compact()

    events = [event async for event in Watches(store, WatchSettings()).events(request())]

    [event] = events
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"] == "too old resource version: 1 (3)"


async def test_a_watch_ends_early_and_resumes_without_loss() -> None:
    store = Store()
    watches = Watches(store, WatchSettings(life_s=(0.0, 0.01)))
    seen: list[str] = []
    version = "1"
    for name in "abc":
        put(store, name)
        async for event in watches.events(request(version=version, timeout_s=None)):
            seen.append(event["object"]["metadata"]["name"])
            version = event["object"]["metadata"]["resourceVersion"]

    assert seen == ["a", "b", "c"]


async def test_all_watches_can_be_ended_at_once() -> None:
    store = Store()
    watches = Watches(store, WatchSettings())

    async def collect() -> list[str]:
        return names([event async for event in watches.events(request())])

    put(store, "a")
    tasks = [asyncio.create_task(collect()) for _ in range(3)]
    await asyncio.sleep(0)
    put(store, "b")
    watches.end_all()

    assert await asyncio.gather(*tasks) == [["a", "b"]] * 3


async def test_a_slow_watcher_is_cut_off() -> None:
    store = Store()
    watches = Watches(store, WatchSettings(buffer=2))
    async with aclosing(watches.events(request(version=""))) as stream:
        put(store, "a")
        first = await anext(stream)
        for name in "bcde":
            put(store, name)
        rest = [event async for event in stream]

    assert names([first]) == ["a"]
    assert names(rest) == ["b", "c"]


@pytest.mark.parametrize("bookmarks", [True, False])
async def test_bookmarks_come_only_when_asked_for(bookmarks: bool) -> None:
    store = Store()
    put(store, "a")
    watches = Watches(store, WatchSettings(bookmark_interval_s=0.01))

    wanted = request(bookmarks=bookmarks, timeout_s=0.1)
    events = [event async for event in watches.events(wanted)]

    kinds = [event["type"] for event in events]
    assert kinds[0] == "ADDED"
    assert ("BOOKMARK" in kinds) == bookmarks
