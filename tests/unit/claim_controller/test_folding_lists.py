"""Lists are applied in steps, and what the cache has already costs nothing."""

import asyncio
from typing import Any

import pytest
from tests.counted import our_pods

from dray.api.names import DEVICE_CLASS
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, NODES, PODS, Changed, Listed, Object, Resource
from dray_claim_controller.cache import object_cache as folding
from dray_claim_controller.cache.converted_objects import ConvertedObject, convert
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.informers import Informers

OBJECTS = 40
AT_ONCE = folding._PUT_AT_ONCE


def pod(name: str, claim: str, revision: int = 1) -> Object:
    return {
        "metadata": _metadata(f"pod-{name}", revision),
        "spec": {
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
    }


def claim(name: str, revision: int = 1) -> Object:
    requests = [{"name": "r", "exactly": {"deviceClassName": DEVICE_CLASS}}]
    return {"metadata": _metadata(name, revision), "spec": {"devices": {"requests": requests}}}


def _metadata(name: str, revision: int) -> Object:
    version = str(revision)
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": version}


async def test_a_first_list_is_applied_in_steps_and_a_later_one_in_one() -> None:
    kube, many = MemoryKube(), 3 * AT_ONCE
    await _create(kube, range(many))
    informers, seen = Informers(kube, ObjectCache()), []

    async def other() -> None:
        while True:
            seen.append(len(informers.cache.pods))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await informers.relist()
    assert len(informers.cache.pods) == many
    assert {AT_ONCE, 2 * AT_ONCE} <= set(seen)
    seen.clear()
    await _create(kube, range(many, 2 * many))
    await kube.delete(PODS, "p0", "ns")
    await informers.relist()
    task.cancel()
    assert len(informers.cache.pods) == 2 * many - 1
    assert set(seen) <= {many, 2 * many - 1}


async def _create(kube: MemoryKube, numbers: range) -> None:
    for number in numbers:
        new = pod(str(number), "c")
        await kube.create(PODS, {**new, "metadata": {"name": f"p{number}"}}, "ns")


def test_objects_that_the_cache_has_are_not_converted_again(monkeypatch: Any) -> None:
    cache, converted = ObjectCache(), []
    monkeypatch.setattr(
        folding, "convert", lambda resource, obj: converted.append(obj) or convert(resource, obj)
    )
    node = {"metadata": {"name": "n", "uid": "n", "resourceVersion": "3"}}
    objects = {CLAIMS: claim("c"), PODS: pod("p", "c"), NODES: node}
    for resource, obj in objects.items():
        cache.apply(resource, Listed((obj,), 5))
    assert converted == list(objects.values())
    cache.take_dirty()
    for resource, obj in objects.items():
        cache.apply(resource, Listed((obj,), 6))
    assert converted == list(objects.values())
    assert not cache.take_dirty()
    cache.apply(CLAIMS, Listed((claim("c", revision=7),), 7))
    assert converted[3:] == [claim("c", revision=7)]


def test_a_list_shows_that_the_watch_has_seen_the_response_to_an_own_write() -> None:
    cache = ObjectCache()
    cache.apply_response(CLAIMS, claim("c", revision=4))
    assert not cache.claims["uid-c"].allocation_watched
    cache.apply(CLAIMS, Listed((claim("c", revision=4),), 4))
    assert cache.claims["uid-c"].allocation_watched


def test_an_object_that_is_made_again_under_its_name_replaces_the_one_before() -> None:
    cache = ObjectCache()
    for uid, revision in (("n1", 3), ("n2", 4)):
        metadata = {"name": "n", "uid": uid, "resourceVersion": str(revision)}
        cache.apply(NODES, Listed(({"metadata": metadata},), revision))
    assert cache.plain[NODES.plural]["n"]["metadata"]["uid"] == "n2"
    assert cache.is_gone("n1")


@pytest.mark.parametrize("order", [(CLAIMS, PODS), (PODS, CLAIMS)], ids=["claims", "pods"])
def test_a_list_folds_as_its_objects_do_one_by_one(order: tuple[Resource, Resource]) -> None:
    unreadable = {**pod("odd", "c0"), "spec": {"containers": 7, "resourceClaims": [1]}}
    objects: dict[Resource, tuple[Object, ...]] = {
        CLAIMS: tuple(claim(f"c{n}") for n in range(3)),
        PODS: (*(pod(str(n), f"c{n}") for n in range(4)), unreadable),
    }
    listed, watched = ObjectCache(), ObjectCache()
    for resource in order:
        listed.apply(resource, Listed(objects[resource], 5))
        for obj in objects[resource]:
            watched.apply(resource, Changed(obj))
    assert (listed.claims, listed.pods) == (watched.claims, watched.pods)
    assert listed.unreadable == watched.unreadable
    assert listed.take_dirty() == watched.take_dirty()
    assert [seen.uid for seen in our_pods(listed)] == [f"uid-pod-{n}" for n in range(3)]


def test_a_claim_costs_no_look_at_pods_that_do_not_name_it(monkeypatch: Any) -> None:
    """A tenant may have thousands of pods whose claims are another driver's, or don't exist."""
    cache = ObjectCache()
    for number in range(OBJECTS):
        cache.apply(PODS, Changed(pod(str(number), f"c{number}")))
    looked_at: list[str] = []

    def counted(resource: Resource, obj: Object) -> ConvertedObject:
        looked_at.append(obj["metadata"]["name"])
        return convert(resource, obj)

    monkeypatch.setattr(folding, "convert", counted)
    for number in range(OBJECTS):
        cache.apply(CLAIMS, Changed(claim(f"c{number}")))
    assert len(our_pods(cache)) == OBJECTS
    assert len(looked_at) == OBJECTS


def test_a_pod_that_is_gone_or_names_another_claim_is_adopted_by_no_claim() -> None:
    cache = ObjectCache()
    for name in ("gone", "moved"):
        cache.apply(PODS, Changed(pod(name, "c")))
    cache.apply(PODS, Listed((pod("moved", "other", revision=2),), 2))
    cache.apply(CLAIMS, Changed(claim("c", 3)))
    assert our_pods(cache) == []


async def test_each_problem_of_an_object_is_logged_once(monkeypatch: Any) -> None:
    reported: list[str] = []
    kube = MemoryKube()
    informers = Informers(kube, ObjectCache())

    class Log:
        def error(self, _: str, **more: Any) -> None:
            reported.append(more["name"])

    monkeypatch.setattr("dray_claim_controller.informers.structlog.get_logger", lambda: Log())
    odd = {**pod("odd", "c"), "spec": {"containers": 7, "resourceClaims": [1]}}
    for revision, obj in enumerate((odd, odd, pod("odd", "c"), odd), start=1):
        obj = {**obj, "metadata": _metadata("pod-odd", revision)}
        await informers._fold(PODS, Changed(obj))
    assert reported == ["pod-odd", "pod-odd"]


async def test_events_that_arrive_together_are_applied_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Burst(MemoryKube):
        """A watch whose events have all arrived."""

        async def watch(self, resource: Resource, **_: Any) -> Any:
            for number in range(OBJECTS if resource is PODS else 0):
                yield Changed(pod(f"p{number}", "c"))
            await asyncio.Event().wait()

    monkeypatch.setattr("dray_claim_controller.informers._FOLDED_AT_ONCE", 10)
    informers, seen = Informers(Burst(), ObjectCache()), []
    task = asyncio.create_task(informers._watch(PODS))
    while not seen or seen[-1] < OBJECTS:
        await asyncio.sleep(0)
        seen.append(len(informers.cache.pods))
    task.cancel()
    assert {10, 20, 30, OBJECTS} <= set(seen)
