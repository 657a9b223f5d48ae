"""Many node-agents in one process share one watch of each kind of objects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from dray.kube.memory import MemoryKube
from dray.kube.ports import PODS, Changed, Deleted, Listed, RefusedError, WatchEvent
from dray_sandbox.shared_watches import SharedWatches


def pod(name: str, node: str = "") -> dict[str, Any]:
    spec = {"containers": [{"name": "app", "image": "app"}]} | ({"nodeName": node} if node else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": spec,
    }


def shown(event: WatchEvent) -> tuple[str, ...]:
    match event:
        case Listed(objects):
            return "listed", *sorted(one["metadata"]["name"] for one in objects)
        case Changed(obj):
            return "changed", obj["metadata"]["name"]
        case Deleted(obj):
            return "deleted", obj["metadata"]["name"]


@asynccontextmanager
async def shared(kube: MemoryKube) -> AsyncIterator[SharedWatches]:
    watches = SharedWatches(kube, PODS)  # type: ignore[arg-type]
    task = asyncio.create_task(watches.run())
    try:
        yield watches
    finally:
        task.cancel()


async def next_of(events: AsyncIterator[WatchEvent]) -> tuple[str, ...]:
    async with asyncio.timeout(10):
        return shown(await anext(events))


async def test_each_node_sees_what_a_watch_of_its_own_would_show() -> None:
    kube = MemoryKube()
    await kube.create(PODS, pod("first", "n1"), "team")
    await kube.create(PODS, pod("elsewhere", "n2"), "team")
    async with shared(kube) as watches:
        seen = watches.watch(PODS, field_selector="spec.nodeName=n1")
        own = kube.watch(PODS, field_selector="spec.nodeName=n1")
        async with aclosing(seen), aclosing(own):  # type: ignore[type-var]
            assert await next_of(seen) == await next_of(own) == ("listed", "first")
            await kube.create(PODS, pod("second"), "team")
            stored = await kube.get(PODS, "second", "team")
            await kube.bind("second", "team", uid=stored["metadata"]["uid"], node="n1")
            assert await next_of(seen) == await next_of(own) == ("changed", "second")
            await kube.delete(PODS, "elsewhere", "team", grace_period_s=0)
            await kube.delete(PODS, "first", "team", grace_period_s=0)
            assert await next_of(seen) == await next_of(own) == ("deleted", "first")
            kube.expire_watches()
            assert await next_of(seen) == await next_of(own) == ("listed", "second")

            late = watches.watch(PODS, field_selector="spec.nodeName=n1")
            assert await next_of(late) == ("listed", "second")


async def test_a_refused_watch_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = MemoryKube()
    refused = [True]

    def watch(*arguments: Any, **options: Any) -> AsyncIterator[WatchEvent]:
        if refused.pop():
            raise RefusedError("GET /api/v1/pods: forbidden", 403)
        return MemoryKube.watch(kube, *arguments, **options)

    monkeypatch.setattr(kube, "watch", watch)
    refused.insert(0, False)
    async with shared(kube) as watches:
        seen = watches.watch(PODS, field_selector="spec.nodeName=n1")
        assert await next_of(seen) == ("listed",)
    assert not refused


async def test_pods_that_were_bound_and_deleted_are_not_kept() -> None:
    """Nothing would say that a pod without a node goes, once it has one."""
    kube = MemoryKube()
    await kube.create(PODS, pod("listed"), "team")
    async with shared(kube) as watches:
        seen = watches.watch(PODS, field_selector="spec.nodeName=n1")
        assert await next_of(seen) == ("listed",)
        await kube.create(PODS, pod("created"), "team")
        for name in ("listed", "created"):
            stored = await kube.get(PODS, name, "team")
            await kube.bind(name, "team", uid=stored["metadata"]["uid"], node="n1")
            assert await next_of(seen) == ("changed", name)
            await kube.delete(PODS, name, "team", grace_period_s=0)
            assert await next_of(seen) == ("deleted", name)
        assert not any(watches._kinds[PODS]._by_node.values())


async def test_other_watches_are_not_shared() -> None:
    kube = MemoryKube()
    await kube.create(PODS, pod("first", "n1"), "team")
    await kube.create(PODS, pod("waiting"), "team")
    async with shared(kube) as watches:
        unbound = watches.watch(PODS, field_selector="spec.nodeName=")
        assert await next_of(unbound) == ("listed", "waiting")
        assert await next_of(watches.watch(PODS)) == ("listed", "first", "waiting")
        named = watches.watch(PODS, "other", field_selector="spec.nodeName=n1")
        assert await next_of(named) == ("listed",)
        assert (await watches.get(PODS, "first", "team"))["spec"]["nodeName"] == "n1"


async def test_an_object_without_a_spec_ends_nothing() -> None:
    kube = MemoryKube()
    await kube.create(PODS, pod("first", "n1"), "team")
    async with shared(kube) as watches:
        seen = watches.watch(PODS, field_selector="spec.nodeName=n1")
        assert await next_of(seen) == ("listed", "first")
        watch, odd = watches._kinds[PODS], {"metadata": {"uid": "odd", "resourceVersion": "7"}}
        watch._change(odd, Changed(odd))
        watch._list((odd,), 8)
        assert await next_of(seen) == ("listed",)
