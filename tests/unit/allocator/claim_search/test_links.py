"""Cards that must be joined, where Kubernetes' allocation decides, which has no such rule: refused
with the reason, for pod and pool and any number of claims."""

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.api.pods import PodClaim
from dray_allocator.values.options import AllocatorOptions

NO_SUCH_RULE = '"hard" is not supported with placement KubernetesCompatible, or for'


def joined(how: str) -> Any:
    """What a claim says of its cards' links."""
    parameters = {"kind": names.LIMITS_KIND, names.TOPOLOGY_FIELD: how}
    return [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}]


def of_pair(kube: Any, pod: str, claims: tuple[str, ...] = ("left", "right")) -> Any:
    """A pod with two claims, which are to be submitted first."""
    references = tuple(PodClaim(name, f"{name}-gpu", "template") for name in claims)
    return replace(kube.world.a_pod(pod), claims=references)


@pytest.fixture
def make_kube(make_world: Any, kube: Any) -> Any:
    """A world with one node of three cards, and a policy of its own."""

    def make(mode: str, **policy: Any) -> Any:
        now = type(kube)(make_world(AllocatorOptions(writer="one")).open(mode, **policy))
        now.node("n1")
        now.publish("n1", *(now.device(name) for name in "abc"))
        return now

    return make


def test_single_cards_of_two_claims_are_refused_as_several_of_one(make_kube: Any) -> None:
    now = make_kube("KubernetesCompatible")
    exact = [now.request()]
    now.claim("left", {"spec": {"devices": {"requests": exact, "config": joined("hard")}}})
    now.submit("right", *exact, config=joined("hard"), pod=of_pair(now, "p"))
    assert f"tensor-fusion.ai/gpu-topology {NO_SUCH_RULE}" in now.reasons_of("p")
    now.submit("alone", *exact, config=joined("hard"))
    assert now.got("alone") == ["gpu=a"], "one card is joined to itself"


def test_connections_that_the_pool_demands_are_not_others(make_kube: Any) -> None:
    now = make_kube("CompactFirst", placement_topology="hard")
    every = now.request(allocationMode="All")
    now.submit("every", every)
    assert f"placement.topology of the pool {NO_SUCH_RULE}" in now.reasons_of("every")
    now.submit("two", now.first_of(now.request("two", count=2), now.request("one")))
    assert "override it in the pod (tensor-fusion.ai/gpu-topology)" in now.reasons_of("two")
    now.submit("one", now.first_of(now.request("one")))
    assert now.got("one") == ["gpu/one=a"]
    now.submit("plain", now.request(count=2))
    assert "joined by NVLink" in now.reasons_of("plain"), "the table searches for them"


def test_the_pool_demands_connections_of_a_pod_with_a_placement_of_its_own(make_kube: Any) -> None:
    now = make_kube("CompactFirst", placement_topology="hard")
    parameters = {"kind": names.LIMITS_KIND, names.PLACEMENT_FIELD: "KubernetesCompatible"}
    config = [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}]
    now.submit("p", now.request(count=2), config=config)
    assert f"placement.topology of the pool {NO_SUCH_RULE}" in now.reasons_of("p")


def test_admin_access_needs_no_connected_cards(make_kube: Any) -> None:
    now = make_kube("CompactFirst", placement_topology="hard")
    now.submit("watcher", now.request(allocationMode="All", adminAccess=True))
    assert now.got("watcher") == ["gpu=a", "gpu=b", "gpu=c"]


@pytest.mark.parametrize("how", ["soft", "none"])
def test_a_pod_may_say_otherwise_than_its_pool(make_kube: Any, how: str) -> None:
    now = make_kube("CompactFirst", placement_topology="hard")
    now.submit("p", now.request(allocationMode="All"), config=joined(how))
    assert now.got("p") == ["gpu=a", "gpu=b", "gpu=c"]
