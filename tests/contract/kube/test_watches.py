"""Lists and watches: everything once, in order, for ever."""

import asyncio
from contextlib import aclosing

from dray.api.names import DRIVER
from dray.kube.ports import (
    CLAIMS,
    LEASES,
    PODS,
    SLICES,
    Changed,
    Deleted,
    Listed,
    ObjectVersion,
    Transform,
)
from dray.kube.probe import probe


def lease(name: str, **labels: str) -> dict:
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


async def test_a_list_reads_all_pages(world, kube) -> None:
    names = [f"l{number:04d}" for number in range(520)]
    for start in range(0, len(names), 40):
        await asyncio.gather(
            *(kube.create(LEASES, lease(n), world.namespace) for n in names[start : start + 40])
        )
    listed = await kube.list(LEASES, world.namespace)
    assert sorted(obj["metadata"]["name"] for obj in listed.objects) == names
    assert {(obj["apiVersion"], obj["kind"]) for obj in listed.objects} == {
        ("coordination.k8s.io/v1", "Lease")
    }
    newest = max(int(obj["metadata"]["resourceVersion"]) for obj in listed.objects)
    assert listed.resource_version >= newest


async def test_a_transform_makes_what_lists_hold_and_not_what_changes(world, kube) -> None:
    old = await kube.create(LEASES, lease("old"), world.namespace)
    await kube.create(LEASES, lease("new"), world.namespace)
    transform = Transform(
        known=lambda version: version if version == ObjectVersion.of(old) else None,
        convert=lambda obj: obj["metadata"]["name"],
    )
    expected = {ObjectVersion.of(old), "new"}
    listed = await kube.list(LEASES, world.namespace, transform=transform)
    assert set(listed.objects) == expected
    async with aclosing(kube.watch(LEASES, world.namespace, transform=transform)) as events:
        first = await anext(events)
        assert isinstance(first, Listed)
        assert set(first.objects) == expected
        later = await kube.create(LEASES, lease("later"), world.namespace)
        changed = await anext(events)
        assert isinstance(changed, Changed)
        assert changed.object["metadata"]["uid"] == later["metadata"]["uid"]


async def test_labels_select(world, kube) -> None:
    await kube.create(LEASES, lease("a", tier="front", old="yes"), world.namespace)
    await kube.create(LEASES, lease("b", tier="back"), world.namespace)
    await kube.create(LEASES, lease("c"), world.namespace)

    async def names(selector: str) -> list[str]:
        listed = await kube.list(LEASES, world.namespace, label_selector=selector)
        return sorted(obj["metadata"]["name"] for obj in listed.objects)

    assert await names("tier=front") == ["a"]
    assert await names("tier!=front") == ["b", "c"]
    assert await names("tier in (front, back),!old") == ["b"]
    assert await names("tier notin (front)") == ["b", "c"]
    assert await names("tier") == ["a", "b"]


async def test_fields_select(world, kube, bodies) -> None:
    for name in ("a", "b"):
        await kube.create(PODS, bodies.pod(name), world.namespace)

    async def names(selector: str) -> list[str]:
        listed = await kube.list(PODS, world.namespace, field_selector=selector)
        return sorted(obj["metadata"]["name"] for obj in listed.objects)

    assert await names("metadata.name=a") == ["a"]
    assert await names("spec.nodeName=,status.phase=Pending") == ["a", "b"]
    assert await names("metadata.name!=a") == ["b"]


async def test_a_watch_lists_and_then_follows(world, kube) -> None:
    await kube.create(LEASES, lease("before"), world.namespace)
    async with asyncio.timeout(60), aclosing(kube.watch(LEASES, world.namespace)) as watch:
        first = await anext(watch)
        assert isinstance(first, Listed)
        assert [obj["metadata"]["name"] for obj in first.objects] == ["before"]
        await kube.create(LEASES, lease("after"), world.namespace)
        added = await anext(watch)
        assert isinstance(added, Changed)
        assert (added.object["kind"], added.object["metadata"]["name"]) == ("Lease", "after")
        await kube.patch(LEASES, "after", {"spec": {"holderIdentity": "h"}}, world.namespace)
        changed = await anext(watch)
        assert isinstance(changed, Changed)
        assert changed.object["spec"]["holderIdentity"] == "h"
        await kube.delete(LEASES, "after", world.namespace)
        deleted = await anext(watch)
        assert isinstance(deleted, Deleted)
        assert deleted.object["metadata"]["name"] == "after"
        assert int(deleted.object["metadata"]["resourceVersion"]) > int(
            changed.object["metadata"]["resourceVersion"]
        )


async def test_an_object_that_leaves_a_selection_is_deleted_for_its_watch(world, kube) -> None:
    flow = kube.watch(LEASES, world.namespace, label_selector="tier=front")
    async with asyncio.timeout(60), aclosing(flow) as watch:
        await anext(watch)
        await kube.create(LEASES, lease("a", tier="back"), world.namespace)
        await kube.create(LEASES, lease("b", tier="front"), world.namespace)
        added = await anext(watch)
        assert added.object["metadata"]["name"] == "b"
        await kube.patch(LEASES, "b", {"metadata": {"labels": {"tier": "back"}}}, world.namespace)
        assert isinstance(await anext(watch), Deleted)


async def test_a_watch_misses_nothing_and_repeats_nothing(world, kube) -> None:
    count = 100
    async with asyncio.timeout(60), aclosing(kube.watch(LEASES, world.namespace)) as watch:
        await anext(watch)

        async def write() -> None:
            for number in range(count):
                await kube.create(LEASES, lease(f"l{number:03d}"), world.namespace)

        writing = asyncio.create_task(write())
        names = [(await anext(watch)).object["metadata"]["name"] for _ in range(count)]
        await writing
    assert names == [f"l{number:03d}" for number in range(count)]


async def test_a_watch_reads_objects_longer_than_a_buffer(world, kube, bodies) -> None:
    async with asyncio.timeout(60), aclosing(kube.watch(CLAIMS, world.namespace)) as watch:
        await anext(watch)
        body = bodies.claim()
        body["metadata"]["annotations"] = {"example.com/long": "x" * 200_000}
        await kube.create(CLAIMS, body, world.namespace)
        added = await anext(watch)
    assert len(added.object["metadata"]["annotations"]["example.com/long"]) == 200_000


KEPT_FROM_36 = {
    "consumable_capacity",
    "device_taints",
    "allocation_timestamp",
    "binding_conditions",
    "partitionable_devices",
    "extended_resources",
}
"""What is behind feature gates that are off by default in older minors."""


async def test_the_probe_sees_what_a_server_of_its_minor_keeps(world, kube) -> None:
    found = await probe(kube, world.namespace, revision=7)
    assert found.revision == 7
    minor = int(found.version.removeprefix("v1.").split(".")[0])
    assert {name for name in KEPT_FROM_36 if getattr(found, name)} == (
        KEPT_FROM_36 if minor >= 36 else set()
    )
    assert found.prioritized_list
    assert found.served_versions[0] == "v1"
    slices = await kube.list(SLICES, field_selector=f"spec.driver={DRIVER}")
    assert not slices.objects
