"""Nodes of kube-scheduler's pools say in which order their agents publish devices."""

from typing import Any

import pytest

from dray.api.names import POOL_LABEL
from dray.kube.ports import NODES, POLICIES, POOLS, Changed, Deleted, Object
from dray.messages.facts import NodeObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of


def named(name: str, revision: int = 1, **more: Any) -> Object:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(revision)}} | more


def policy(placement: Object, revision: int = 1) -> Object:
    return named("policy", revision, spec={"placement": placement})


def cluster(owner: str, *policies: Object) -> ObjectCache:
    cache = ObjectCache()
    node = named("n1")
    node["metadata"]["labels"] = {POOL_LABEL: "pool"}
    spec = {"owner": owner, "schedulingConfigTemplate": "policy"}
    for resource, obj in ((POOLS, named("pool", spec=spec)), (NODES, node)):
        cache.apply(resource, Changed(obj))
    for one in policies:
        cache.apply(POLICIES, Changed(one))
    return cache


def order(cache: ObjectCache) -> str:
    fact = fact_of(cache, FactKey("node", "n1"), NodeHistory())
    assert isinstance(fact, NodeObserved)
    return fact.device_order


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ({"mode": "CompactFirst"}, "binpack"),
        ({"mode": "LowLoadFirst"}, "spread"),
        ({"mode": "NodeCompactGPULowLoad"}, "spread"),
        ({"mode": "FragmentationAware"}, "binpack"),
        ({"mode": "KubernetesCompatible"}, ""),
        ({"gpu": "spread"}, "spread"),
    ],
)
def test_the_order_comes_close_to_the_pools_placement(placement: Object, expected: str) -> None:
    assert order(cluster("kube-scheduler", policy(placement))) == expected
    assert order(cluster("dray", policy(placement))) == ""


def test_a_changed_or_deleted_policy_is_a_new_fact_of_the_nodes() -> None:
    cache = cluster("kube-scheduler", policy({"mode": "CompactFirst"}))
    before = order(cache)
    cache.apply(POLICIES, Changed(policy({"mode": "LowLoadFirst"}, 2)))
    assert (before, order(cache)) == ("binpack", "spread")
    assert cache.node_revision["n1"] == 2
    cache.apply(POLICIES, Deleted(named("policy", 3)))
    assert order(cache) == "binpack"
    assert cache.node_revision["n1"] == 3
