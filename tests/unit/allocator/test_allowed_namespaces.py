"""A pool gives devices to namespaces that it allows, however pods and claims came to name it."""

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import ClaimSpec, DeviceRequest
from dray.api.pods import PodClaim, Pool
from dray.messages.facts import DomainObserved, PodObserved, PoolObserved
from dray_allocator.core.handle import reasons

RESTRICTED = Pool("pool", "u", template="policy", allowed_namespaces=("team-a",))
REFUSED = "namespace team-b may not use pool pool (allowedNamespaces: team-a)"


@pytest.fixture(params=["CompactFirst", names.KUBERNETES_COMPATIBLE])
def restricted(request, make_world) -> Any:
    """A pool for team-a alone with one free node, decided by either way of searching."""
    world = make_world().open(request.param)
    world.see(PoolObserved(revision=2, pool=RESTRICTED))
    return world.nodes(world.a_node("n1"), cards=2)


def submit(world: Any, uid: str, namespace: str, *, claim_pool: str = "pool") -> None:
    """A pod of a namespace and its claim."""
    world.claim(replace(world.a_claim(uid, world.ask(), claim_pool), namespace=namespace))
    world.see(PodObserved(revision=world.next(), pod=world.a_pod(uid, namespace=namespace)))


def texts(world: Any, uid: str) -> list[str]:
    """Why the pod waits, as was last reported."""
    return [str(reason) for reason in world.waits(uid)[-1].reasons]


def test_a_namespace_that_is_allowed_gets_devices(restricted):
    submit(restricted, "p", "team-a")
    assert "p" in restricted.decisions()


@pytest.mark.parametrize("claim_pool", ["pool", ""])
def test_another_namespace_is_refused_with_the_reason(restricted, claim_pool):
    submit(restricted, "p", "team-b", claim_pool=claim_pool)
    assert restricted.decisions() == {}
    assert texts(restricted, "p") == [REFUSED]
    assert [str(reason) for reason in reasons(restricted.state, "p")] == [REFUSED]


def test_a_claim_without_a_pool_gets_nothing_by_a_pod_that_is_annotated_later(restricted):
    restricted.claim(
        replace(restricted.a_claim("p", restricted.ask(), ""), namespace="team-b", pod_uid="")
    )
    pod = restricted.a_pod("p", "", namespace="team-b", scheduler=names.DEFAULT_SCHEDULER)
    restricted.see(PodObserved(revision=restricted.next(), pod=pod))
    annotated = replace(pod, pool="pool", resource_version=2)
    restricted.see(PodObserved(revision=restricted.next(), pod=annotated))
    assert restricted.decisions() == {}
    assert texts(restricted, "p") == [REFUSED]


def test_a_claim_that_several_pods_share_is_refused_for_each(restricted):
    restricted.claim(
        replace(restricted.a_claim("p", restricted.ask()), namespace="team-b", pod_uid="")
    )
    shared = (PodClaim("gpu", "p-gpu"),)
    for uid in ("p", "q"):
        pod = restricted.a_pod(uid, namespace="team-b", claims=shared)
        restricted.see(PodObserved(revision=restricted.next(), pod=pod))
    assert restricted.decisions() == {}
    assert (texts(restricted, "p"), texts(restricted, "q")) == ([REFUSED], [REFUSED])


def test_one_claim_of_several_is_no_way_in(restricted):
    own = replace(restricted.a_claim("p", restricted.ask()), namespace="team-b")
    second = replace(own, uid="second", name="second", pool="")
    restricted.claim(own)
    restricted.claim(second)
    both = (PodClaim(names.CLAIM_REFERENCE, "p-gpu", "template"), PodClaim("more", "second"))
    pod = restricted.a_pod("p", namespace="team-b", claims=both)
    restricted.see(PodObserved(revision=restricted.next(), pod=pod))
    assert restricted.decisions() == {}


def test_administrative_access_is_refused_too(restricted):
    spec = ClaimSpec((DeviceRequest(names.GPU_REQUEST, names.DEVICE_CLASS, admin_access=True),))
    restricted.claim(replace(restricted.a_claim("p", spec), namespace="team-b"))
    pod = restricted.a_pod("p", namespace="team-b")
    restricted.see(PodObserved(revision=restricted.next(), pod=pod))
    assert restricted.decisions() == {}


def test_a_pending_pod_is_decided_once_its_namespace_is_allowed(restricted):
    submit(restricted, "p", "team-b")
    allowed = replace(RESTRICTED, allowed_namespaces=("team-a", "team-b"))
    restricted.see(PoolObserved(revision=3, pool=allowed))
    assert "p" in restricted.decisions()


def test_what_is_allocated_stays_when_the_namespace_is_no_longer_allowed(restricted):
    submit(restricted, "p", "team-a")
    restricted.commit(restricted.decisions()["p"])
    restricted.see(PoolObserved(revision=3, pool=replace(RESTRICTED, allowed_namespaces=("x",))))
    restricted.tick(60.0)
    assert restricted.sent() == []
    assert [uid for uid, _ in restricted.state.device_usage.claims()] == ["claim-p"]
    submit(restricted, "q", "team-a")
    assert "q" not in restricted.decisions()


def test_a_pool_made_after_its_claim_admits_no_more(make_world):
    world = make_world(pools=("pool", "late"))
    world.open()
    world.see(PoolObserved(revision=2, pool=Pool("late", "u"), deleted=True))
    world.nodes(world.a_node("n1", "late"))
    world.claim(replace(world.a_claim("p", world.ask(), "late"), namespace="team-b"))
    pod = world.a_pod("p", "late", namespace="team-b")
    world.see(PodObserved(revision=world.next(), pod=pod))
    late = replace(RESTRICTED, name="late", uid="other")
    world.see(PoolObserved(revision=3, pool=late))
    world.see(DomainObserved(revision=1, domain="late", epoch=1))
    assert world.decisions() == {}
    assert texts(world, "p") == [
        "namespace team-b may not use pool late (allowedNamespaces: team-a)"
    ]


def test_a_long_list_is_cut(restricted):
    many = tuple(f"team-{number}" for number in range(10, 30))
    restricted.see(PoolObserved(revision=3, pool=replace(RESTRICTED, allowed_namespaces=many)))
    submit(restricted, "p", "team-b")
    (line,) = texts(restricted, "p")
    assert line.endswith("team-16, team-17 and 12 more)")


def test_a_pool_that_is_being_deleted_decides_nothing_and_says_so(restricted):
    restricted.see(PoolObserved(revision=3, pool=replace(RESTRICTED, deleting=True)))
    submit(restricted, "p", "team-a")
    assert restricted.decisions() == {}
    assert texts(restricted, "p") == ["pool pool is being deleted: name another one"]


def test_a_pending_pod_gets_the_reason_if_its_pool_is_deleted(restricted):
    submit(restricted, "p", "team-b")
    restricted.sent()
    restricted.see(PoolObserved(revision=3, pool=replace(RESTRICTED, deleting=True)))
    assert texts(restricted, "p") == ["pool pool is being deleted: name another one"]
