"""A list is folded in one step; what costs most of that is done before, object by object."""

import asyncio
from typing import Any

import pytest

from dray.api.names import DEVICE_CLASS
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, PODS, Changed, Listed, Object, Resource
from dray_claim_controller.cache import object_cache as folding
from dray_claim_controller.cache.informers import Informers
from dray_claim_controller.cache.object_cache import ObjectCache, convert, version_of

OBJECTS = 40


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


async def test_other_tasks_run_while_a_list_is_converted_and_see_nothing_of_it() -> None:
    kube = MemoryKube()
    for number in range(OBJECTS):
        new = pod(str(number), "c")
        await kube.create(PODS, {**new, "metadata": {"name": f"p{number}"}}, "ns")
    informers, seen = Informers(kube, ObjectCache()), []

    async def other() -> None:
        while True:
            seen.append(len(informers.cache.pods))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await informers.relist()
    task.cancel()
    assert len(informers.cache.pods) == OBJECTS
    assert seen.count(0) >= OBJECTS
    assert set(seen) <= {0, OBJECTS}


@pytest.mark.parametrize("order", [(CLAIMS, PODS), (PODS, CLAIMS)], ids=["claims", "pods"])
def test_what_was_converted_before_folds_as_what_was_not(
    order: tuple[Resource, Resource],
) -> None:
    unreadable = {**pod("odd", "c0"), "spec": {"containers": 7, "resourceClaims": [1]}}
    objects: dict[Resource, tuple[Object, ...]] = {
        CLAIMS: tuple(claim(f"c{n}") for n in range(3)),
        PODS: (*(pod(str(n), f"c{n}") for n in range(4)), unreadable),
    }
    before, now = ObjectCache(), ObjectCache()
    for resource in order:
        ready = {version_of(obj): convert(resource, obj) for obj in objects[resource]}
        before.apply(resource, Listed(objects[resource], 5))
        now.apply(resource, Listed(objects[resource], 5), ready)
    assert (now.claims, now.pods, now.unreadable) == (before.claims, before.pods, before.unreadable)
    assert now.take_dirty() == before.take_dirty()
    assert [seen.uid for seen in now.our_pods()] == [f"uid-pod-{n}" for n in range(3)]


def test_what_was_converted_is_of_that_version_alone() -> None:
    cache, old, new = ObjectCache(), pod("p", "c"), pod("p", "other", revision=2)
    cache.apply(PODS, Listed((new,), 2), {version_of(old): convert(PODS, old)})
    cache.apply(CLAIMS, Changed(claim("other", 3)))
    assert len(cache.our_pods()) == 1


def test_a_claim_costs_no_look_at_pods_that_do_not_name_it(monkeypatch: Any) -> None:
    """A tenant may have thousands of pods whose claims are another driver's, or don't exist."""
    cache = ObjectCache()
    for number in range(OBJECTS):
        cache.apply(PODS, Changed(pod(str(number), f"c{number}")))
    looked_at: list[str] = []

    def counted(resource: Resource, obj: Object) -> Any:
        looked_at.append(obj["metadata"]["name"])
        return convert(resource, obj)

    monkeypatch.setattr(folding, "convert", counted)
    for number in range(OBJECTS):
        cache.apply(CLAIMS, Changed(claim(f"c{number}")))
    assert len(cache.our_pods()) == OBJECTS
    assert len(looked_at) == 2 * OBJECTS


def test_a_pod_that_is_gone_or_names_another_claim_is_adopted_by_no_claim() -> None:
    cache = ObjectCache()
    for name in ("gone", "moved"):
        cache.apply(PODS, Changed(pod(name, "c")))
    cache.apply(PODS, Listed((pod("moved", "other", revision=2),), 2))
    cache.apply(CLAIMS, Changed(claim("c", 3)))
    assert cache.our_pods() == []


async def test_each_problem_of_an_object_is_logged_once(monkeypatch: Any) -> None:
    reported: list[str] = []
    kube = MemoryKube()
    informers = Informers(kube, ObjectCache())

    class Log:
        def error(self, _: str, **more: Any) -> None:
            reported.append(more["name"])

    monkeypatch.setattr("dray_claim_controller.cache.informers.structlog.get_logger", lambda: Log())
    odd = {**pod("odd", "c"), "spec": {"containers": 7, "resourceClaims": [1]}}
    for revision, obj in enumerate((odd, odd, pod("odd", "c"), odd), start=1):
        obj = {**obj, "metadata": _metadata("pod-odd", revision)}
        await informers._fold(PODS, Changed(obj))
    assert reported == ["pod-odd", "pod-odd"]
