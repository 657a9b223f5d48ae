"""Which other pools have a say in a node, a claim or a pod: named too long, never too short."""

from typing import Any

from dray.api.names import DEVICE_CLASS, DRIVER, GPUPOOL, POOL_LABEL
from dray.api.pods import Node
from dray.kube.ports import CLAIMS, PODS, Changed, Deleted, Object
from dray.messages.facts import ClaimObserved, NodeObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of, key_of
from dray_claim_controller.facts.outbox import Outbox
from dray_claim_controller.facts.pool_dependencies import dependent_pools, former_pools


def claim(revision: int, pool: str, *, node: str = "", name: str = "c", **marks: str) -> Object:
    labels = {POOL_LABEL: pool} if pool else {}
    annotations = {f"tensor-fusion.ai/{mark}": value for mark, value in marks.items()}
    metadata = {
        "uid": name,
        "name": name,
        "namespace": "ns",
        "resourceVersion": str(revision),
        "labels": labels,
        "annotations": annotations,
    }
    exactly = {"deviceClassName": DEVICE_CLASS}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    status: Any = {"allocation": {"devices": {"results": [result]}}} if node else {}
    return {"metadata": metadata, "spec": spec, "status": status}


def pod(uid: str, pool: str, *claims: str, revision: int = 5) -> Object:
    metadata = {
        "uid": uid,
        "name": uid,
        "namespace": "ns",
        "resourceVersion": str(revision),
        "annotations": {GPUPOOL: pool},
    }
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    return {"metadata": metadata, "spec": {"containers": [], "resourceClaims": entries}}


def node(pool: str, *, leaving: str = "", former: tuple[str, ...] = ()) -> NodeObserved:
    return NodeObserved(revision=1, node=Node("n", "u", pool, leaving=leaving), former=former)


def seen(*objects: Object) -> ObjectCache:
    cache = ObjectCache()
    for obj in objects:
        cache.apply(PODS if "containers" in obj["spec"] else CLAIMS, Changed(obj))
    return cache


MOVED = Node("n", "u", "b")


def test_a_pool_whose_claims_are_on_the_node_is_a_dependency_for_any_allocator() -> None:
    assert former_pools(seen(claim(5, "a", node="n")), MOVED, None) == ("a",)
    assert former_pools(seen(claim(5, "b", node="n")), MOVED, None) == ()
    assert former_pools(seen(claim(5, "a", node="m")), MOVED, None) == ()


def test_a_former_pool_is_a_dependency_while_one_of_its_claims_is_without_allocation() -> None:
    """It may have been cleared, and be written again."""
    for before in (
        node("", leaving="a"),
        node("a"),
        node("b", former=("a",)),
        node("", former=("a",)),
    ):
        assert former_pools(seen(claim(5, "a", decision="7")), MOVED, before) == ("a",)
        assert former_pools(seen(claim(5, "a", node="m")), MOVED, before) == ()
        assert former_pools(seen(claim(5, "z")), MOVED, before) == ()


def test_a_claim_without_a_pool_may_be_of_the_one_that_was_left() -> None:
    assert former_pools(seen(claim(5, "", node="n")), MOVED, node("", leaving="a")) == ("a",)
    assert former_pools(seen(claim(5, "", node="n")), MOVED, node("b")) == ()


def test_a_claim_of_another_pool_than_its_pod_names_both() -> None:
    cache = seen(claim(5, "a"), pod("p", "b", "c"))
    held, user = cache.claims["c"].claim, cache.pods["p"].pod
    assert user is not None
    assert (dependent_pools(cache, held), dependent_pools(cache, user)) == (("b",), ("a",))


def test_pods_of_one_pool_need_no_word_about_a_claim_without_a_pool() -> None:
    cache = seen(claim(5, ""), pod("p", "b", "c"))
    assert dependent_pools(cache, cache.claims["c"].claim) == ()
    cache = seen(claim(5, ""), pod("p", "b", "c"), pod("q", "a", "c"))
    assert dependent_pools(cache, cache.claims["c"].claim) == ("a", "b")


def test_both_are_published_again_whichever_comes_last_and_when_one_is_deleted() -> None:
    cache = seen(claim(5, "a"))
    cache.take_dirty()
    cache.apply(PODS, Changed(pod("p", "b", "c")))
    assert {key for key, _ in cache.take_dirty()} == {FactKey("pod", "p"), FactKey("claim", "c")}
    cache.apply(PODS, Deleted(pod("p", "b", "c", revision=9)))
    assert FactKey("claim", "c") in dict(cache.take_dirty())
    fact = fact_of(cache, FactKey("claim", "c"), NodeHistory())
    assert isinstance(fact, ClaimObserved)
    assert fact.beside == ()


def test_what_kube_scheduler_allocates_is_news_for_its_node() -> None:
    cache = seen(claim(5, "a"))
    cache.take_dirty()
    cache.apply(CLAIMS, Changed(claim(6, "a", node="n")))
    assert FactKey("node", "n") in dict(cache.take_dirty())


def test_a_claim_that_moved_to_another_pool_does_not_look_gone() -> None:
    cache = seen(claim(5, ""))
    before = fact_of(cache, FactKey("claim", "c"), NodeHistory())
    assert before is not None
    outbox = Outbox()
    outbox.published(before)
    cache.apply(CLAIMS, Changed(claim(6, "a")))
    after = fact_of(cache, FactKey("claim", "c"), NodeHistory())
    tombstone, newer = outbox.plan(key_of(before), after, 6)
    assert isinstance(tombstone, ClaimObserved)
    assert (tombstone.deleted, tombstone.moved_to, newer) == (True, "a", after)
