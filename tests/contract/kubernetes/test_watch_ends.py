"""Watches that end early, and versions that are too old."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

GROUP = "ends.example.com"


async def version(api: Any, plural: str) -> str:
    return str((await api.get(plural))["metadata"]["resourceVersion"])


async def test_short_consecutive_watches_neither_lose_nor_repeat_events(api: Any) -> None:
    after = await version(api, "configmaps")
    names = [f"n{number:02d}" for number in range(24)]

    async def write() -> None:
        for name in names:
            await api.create("configmaps", {"metadata": {"name": name}})
            await api.delete("configmaps", name)
            await asyncio.sleep(0.1)

    writing = asyncio.create_task(write())
    reported: list[tuple[str, str]] = []
    watches = 0
    while ("DELETED", names[-1]) not in reported:
        watches += 1
        query = {"resourceVersion": after, "timeoutSeconds": 1}
        async with aclosing(api.watch("configmaps", **query)) as stream:
            async for event in stream:
                after = event["object"]["metadata"]["resourceVersion"]
                reported.append((event["type"], event["object"]["metadata"]["name"]))
    await writing

    assert watches > 1
    assert reported == [(kind, name) for name in names for kind in ("ADDED", "DELETED")]


async def test_a_watch_that_its_reader_leaves_can_be_resumed(api: Any) -> None:
    after = await version(api, "configmaps")
    for name in ("a", "b", "c"):
        await api.create("configmaps", {"metadata": {"name": name}})
    query = {"timeoutSeconds": 20}
    async with aclosing(api.watch("configmaps", resourceVersion=after, **query)) as stream:
        first = await anext(stream)
    seen = first["object"]["metadata"]["resourceVersion"]

    async with aclosing(api.watch("configmaps", resourceVersion=seen, **query)) as stream:
        rest = [(await anext(stream))["object"]["metadata"]["name"] for _ in range(2)]

    assert [first["object"]["metadata"]["name"], *rest] == ["a", "b", "c"]


@pytest.fixture
async def served_late(api: Any) -> Any:
    """A custom resource that the server knows for a moment only."""
    plural = f"e{api.namespace}s"
    names = {"plural": plural, "singular": plural[:-1], "kind": plural.title()}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": "v1", "served": True, "storage": True}
    described = {"group": GROUP, "scope": "Namespaced", "names": names}
    body = {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {**described, "versions": [{**served, "schema": {"openAPIV3Schema": schema}}]},
    }
    await api.create("customresourcedefinitions", body)

    async def listed() -> bool:
        try:
            await api.get(f"{GROUP}/v1/{plural}")
        except AssertionError:
            return False
        return True

    await api.until(listed)
    return f"{GROUP}/v1/{plural}"


async def test_a_watch_from_a_forgotten_version_ends_with_an_error(
    api: Any, served_late: str
) -> None:
    query = {"resourceVersion": "1", "timeoutSeconds": 20}

    async with aclosing(api.watch(served_late, **query)) as stream:
        [event] = [event async for event in stream]

    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_a_watch_from_the_version_of_a_new_list_gets_later_events(
    api: Any, served_late: str
) -> None:
    plural = served_late.rpartition("/")[2]
    after = await version(api, served_late)
    body = {"apiVersion": f"{GROUP}/v1", "kind": plural.title(), "metadata": {"name": "one"}}
    await api.create(served_late, body)

    query = {"resourceVersion": after, "timeoutSeconds": 20}
    async with aclosing(api.watch(served_late, **query)) as stream:
        event = await anext(stream)

    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "one")
