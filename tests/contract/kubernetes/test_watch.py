"""Watches: resuming, selecting, bookmarks, ends."""

from contextlib import aclosing
from typing import Any


async def seen(api: Any, plural: str, **query: Any) -> list[tuple[str, str]]:
    """Everything one watch tells until it ends."""
    events = []
    async with aclosing(api.watch(plural, **query)) as stream:
        async for event in stream:
            item = event["object"]
            events.append((event["type"], item["metadata"].get("name", "")))
    return events


async def bookmark(api: Any, name: str) -> tuple[Any, Any]:
    """The first bookmark of a watch, or None, and what was written while it ran.

    The watch selects one object; the other is written once that one was seen. A bookmark that
    tells no version beyond the watch's beginning is not sent: without the second object there may
    be none on a server where nothing else happens.
    """
    start = await version(api)
    await api.create("configmaps", {"metadata": {"name": name, "labels": {"is": name}}})
    query = {"resourceVersion": start, "timeoutSeconds": 6, "allowWatchBookmarks": "true"}
    made = None
    async with aclosing(api.watch("configmaps", labelSelector=f"is={name}", **query)) as stream:
        async for event in stream:
            if event["type"] == "BOOKMARK" and made:
                return event["object"], made
            made = made or await api.create("configmaps", {"metadata": {"name": f"{name}-other"}})
    return None, made


async def version(api: Any, plural: str = "configmaps") -> str:
    return str((await api.get(plural))["metadata"]["resourceVersion"])


async def test_a_watch_resumes_without_losing_or_doubling(api: Any) -> None:
    start = await version(api)
    await api.create("configmaps", {"metadata": {"name": "a"}})
    await api.patch("configmaps", "a", {"data": {"x": "1"}})
    await api.create("configmaps", {"metadata": {"name": "b"}})
    await api.delete("configmaps", "a")

    events = await seen(api, "configmaps", resourceVersion=start, timeoutSeconds=1)

    assert events == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_a_deletion_carries_a_version_of_its_own(api: Any) -> None:
    made = await api.create("configmaps", {"metadata": {"name": "a"}})
    start = made["metadata"]["resourceVersion"]
    await api.delete("configmaps", "a")

    async with aclosing(api.watch("configmaps", resourceVersion=start, timeoutSeconds=1)) as stream:
        events = [event async for event in stream]

    [event] = events
    assert event["type"] == "DELETED"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(start)


async def test_without_a_version_the_present_comes_first(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))

    events = await seen(api, "resourceclaims", timeoutSeconds=1)

    assert events == [("ADDED", "one")]


async def test_a_watch_sees_what_happens_after_it_started(api: Any) -> None:
    start = await version(api)
    query = {"resourceVersion": start, "timeoutSeconds": 20}
    async with aclosing(api.watch("configmaps", **query)) as stream:
        await api.create("configmaps", {"metadata": {"name": "a"}})
        event = await anext(stream)

    assert (event["type"], event["object"]["kind"]) == ("ADDED", "ConfigMap")
    assert event["object"]["metadata"]["name"] == "a"


async def test_leaving_a_selection_looks_like_a_deletion(api: Any) -> None:
    start = await version(api)
    await api.create("configmaps", {"metadata": {"name": "a", "labels": {"in": "yes"}}})
    await api.patch("configmaps", "a", {"metadata": {"labels": {"in": None}}})
    await api.patch("configmaps", "a", {"metadata": {"labels": {"in": "yes"}}})
    query = {"resourceVersion": start, "timeoutSeconds": 1, "labelSelector": "in=yes"}

    events = await seen(api, "configmaps", **query)

    assert events == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_a_bookmark_before_the_end_tells_how_far_the_watch_is(api: Any) -> None:
    # A server aims at 2 s before the end, looks about once a second and promises nothing: one
    # that is short of cpu misses some.
    found = made = None
    for number in range(4):
        if not found:
            found, made = await bookmark(api, f"a{number}")

    assert found
    assert set(found) == {"kind", "apiVersion", "metadata"}
    assert int(found["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


async def test_without_asking_there_are_no_bookmarks(api: Any) -> None:
    events = await seen(api, "configmaps", resourceVersion=await version(api), timeoutSeconds=3)

    assert events == []


async def test_a_version_from_the_future_is_waited_for(api: Any) -> None:
    await api.create("configmaps", {"metadata": {"name": "a"}})

    events = await seen(api, "configmaps", resourceVersion="999999999", timeoutSeconds=1)

    assert events == []


async def test_the_initial_state_may_be_streamed(api: Any) -> None:
    await api.create("configmaps", {"metadata": {"name": "a"}})
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": 20,
        "fieldSelector": "metadata.name=a",
    }

    async with aclosing(api.watch("configmaps", **query)) as stream:
        first, second = await anext(stream), await anext(stream)

    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert second["type"] == "BOOKMARK"
    annotations = second["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}
