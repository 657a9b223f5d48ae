"""The picture: what watches and answers add up to."""

from typing import Any

import pytest
from tests.counted import our_pods

from dray.api.devices import DeviceId
from dray.api.names import DEVICE_CLASS, DRIVER, SHAPE
from dray.kube.ports import CLAIMS, NODES, PODS, SLICES, Changed, Deleted, Listed, Object
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of


def pod(uid: str, revision: int, **spec: Any) -> Object:
    metadata = {"uid": uid, "name": uid, "namespace": "ns", "resourceVersion": str(revision)}
    return {"metadata": metadata, "spec": {"containers": [], **spec}}


def claim(revision: int, uid: str = "c", **status: Any) -> Object:
    metadata = {"uid": uid, "name": "claim", "namespace": "ns", "resourceVersion": str(revision)}
    exactly = {"deviceClassName": DEVICE_CLASS}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {"metadata": metadata, "spec": spec, "status": status}


def allocated(device: str = "gpu-0") -> Object:
    result = {"request": "r", "driver": DRIVER, "pool": "n", "device": device}
    return {"devices": {"results": [result]}}


def test_older_states_do_not_replace_newer_ones() -> None:
    cache = ObjectCache()
    cache.apply_response(CLAIMS, claim(9, allocation=allocated()))
    cache.apply(CLAIMS, Changed(claim(5)))

    assert cache.claims["c"].claim.allocation is not None


def test_the_watch_has_shown_an_answer_once_it_reached_its_revision() -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(claim(5)))
    cache.apply_response(CLAIMS, claim(9, allocation=allocated()))
    assert not cache.claims["c"].allocation_watched

    cache.apply(CLAIMS, Changed(claim(9, allocation=allocated())))
    assert cache.claims["c"].allocation_watched


def test_an_answer_that_comes_after_the_deletion_revives_nothing() -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(claim(5)))
    cache.apply(CLAIMS, Deleted(claim(7)))
    cache.apply_response(CLAIMS, claim(6))

    assert not cache.claims
    assert cache.claim_named("ns", "claim") is None


def test_a_list_drops_what_is_gone_but_not_what_is_newer_than_the_list() -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(claim(5, "old")))
    cache.apply_response(CLAIMS, claim(12, "new"))
    cache.apply(CLAIMS, Listed((), 10))

    assert set(cache.claims) == {"new"}


def test_a_claim_made_again_under_the_same_name_is_found_by_name() -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(claim(5, "first")))
    cache.apply(CLAIMS, Changed(claim(8, "second")))
    cache.apply(CLAIMS, Deleted(claim(9, "first")))

    found = cache.claim_named("ns", "claim")
    assert found is not None
    assert found.claim.uid == "second"


def test_holders_follow_allocations() -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(claim(5, allocation=allocated("gpu-0"))))
    cache.apply(CLAIMS, Changed(claim(6)))
    cache.apply(CLAIMS, Changed(claim(7, allocation=allocated("gpu-1"))))

    held = {device.device for device, claims in cache.devices.holders.items() if claims}
    assert held == {"gpu-1"}


def test_a_pod_of_a_hand_written_claim_is_ours_whichever_comes_first() -> None:
    user = pod("p", 5, resourceClaims=[{"name": "x", "resourceClaimName": "claim"}])
    pod_first, claim_first = ObjectCache(), ObjectCache()
    pod_first.apply(PODS, Changed(user))
    assert not our_pods(pod_first)
    pod_first.apply(CLAIMS, Changed(claim(6)))
    claim_first.apply(CLAIMS, Changed(claim(6)))
    claim_first.apply(PODS, Changed(user))

    assert [seen.uid for seen in our_pods(pod_first)] == ["p"]
    assert [seen.uid for seen in our_pods(claim_first)] == ["p"]


def test_a_node_sums_what_has_not_ended_and_names_the_pods_of_ours() -> None:
    cache = ObjectCache()
    node = {"metadata": {"uid": "n", "name": "n", "resourceVersion": "1"}}
    cache.apply(NODES, Changed(node))
    container = {"name": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    cache.apply(PODS, Changed(pod("foreign", 2, nodeName="n", containers=[container])))
    ours = pod(
        "ours",
        3,
        nodeName="n",
        containers=[container],
        resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}],
    )
    ours["metadata"]["annotations"] = {SHAPE: "{}"}
    cache.apply(PODS, Changed(ours))
    ended = pod("ended", 4, nodeName="n", containers=[container])
    ended["status"] = {"phase": "Succeeded"}
    cache.apply(PODS, Changed(ended))

    fact: Any = fact_of(cache, FactKey("node", "n"), NodeHistory())

    assert (fact.node.used_cpu_milli, fact.node.used_memory_bytes) == (2000, 2 * 2**30)
    assert fact.node.used_pods == 2
    assert fact.counted_pods == ("ours",)
    assert fact.revision == 4


@pytest.mark.parametrize("was_known", [True, False])
@pytest.mark.parametrize(("phase", "used"), [("Running", 1), ("Succeeded", 0), (["Failed"], 1)])
def test_a_pod_that_can_t_be_read_takes_nothing_of_its_node_once_it_has_ended(
    phase: Any, used: int, was_known: bool
) -> None:
    cache = ObjectCache()
    metadata = {"uid": "n", "name": "n", "resourceVersion": "1"}
    cache.apply(NODES, Changed({"metadata": metadata, "status": {"allocatable": {"pods": "1"}}}))
    if was_known:
        cache.apply(PODS, Changed(pod("odd", 2, nodeName="n")))
    unreadable = pod("odd", 3, nodeName="n", containers=7) | {"status": {"phase": phase}}
    cache.apply(PODS, Changed(unreadable))

    fact: Any = fact_of(cache, FactKey("node", "n"), NodeHistory())

    assert fact.node.used_pods == used


def test_an_object_that_cannot_be_understood_hides_no_other() -> None:
    cache = ObjectCache()
    broken = {"metadata": {"uid": "b", "name": "b", "resourceVersion": "1"}, "spec": {}}
    fine = {
        "metadata": {"uid": "f", "name": "f", "resourceVersion": "2"},
        "spec": {"driver": DRIVER, "pool": {"name": "n", "generation": 1}, "nodeName": "n"},
    }
    cache.apply(SLICES, Listed((broken, fine), 3))

    assert set(cache.devices.slices) == {"f"}
    assert cache.unreadable[FactKey("resourceslices", "b")].why == (
        "can't be read: its shape is unknown to dray (KeyError: 'pool')"
    )


def test_of_two_generations_of_a_slice_the_newer_device_counts() -> None:
    cache = ObjectCache()
    for generation, value in ((1, "10"), (2, "20")):
        device = {"name": "gpu-0", "capacity": {"v": {"value": value}}}
        pool = {"name": "n", "generation": generation, "resourceSliceCount": 1}
        metadata = {"uid": value, "name": value, "resourceVersion": value}
        spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": [device]}
        cache.apply(SLICES, Changed({"metadata": metadata, "spec": spec}))

    found = cache.devices.device(DeviceId(DRIVER, "n", "gpu-0"))
    assert found is not None
    assert found.capacity["v"].value == "20"


def test_a_pod_that_is_on_no_node_any_more_takes_nothing_of_one() -> None:
    cache = ObjectCache()
    metadata = {"name": "p", "uid": "p", "namespace": "default"}
    bound = {"metadata": metadata | {"resourceVersion": "1"}, "spec": {"nodeName": "n1"}}
    cache.apply(PODS, Changed(bound))
    assert [seen.uid for seen in cache.pods_on("n1")] == ["p"]
    cache.apply(PODS, Changed({"metadata": metadata | {"resourceVersion": "2"}, "spec": {}}))
    assert list(cache.pods_on("n1")) == []


MANAGED = [{"manager": "kubelet", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}}]


def managed(obj: Object) -> Object:
    return obj | {"metadata": obj["metadata"] | {"managedFields": MANAGED}}


def test_managed_fields_are_dropped_at_the_watch() -> None:
    cache = ObjectCache()
    node = {"metadata": {"name": "n", "uid": "n", "resourceVersion": "3"}, "spec": {}}
    entry = {"name": "gpu", "resourceClaimName": "claim"}
    cache.apply(CLAIMS, Changed(managed(claim(1))))
    cache.apply(PODS, Changed(managed(pod("p", 2, resourceClaims=[entry]))))
    cache.apply(NODES, Changed(managed(node)))

    version = cache.plain[NODES.plural].version("n")
    assert version is not None
    kept = (cache.claims["c"].text, cache.pods["p"].text, version.text)
    assert all(kept)
    assert not any(b"managedFields" in text for text in kept)
