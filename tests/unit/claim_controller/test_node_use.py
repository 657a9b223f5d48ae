"""What a node's fact says of what its pods take."""

from typing import Any

from dray.api.pods import HostPort, Node
from dray.kube.ports import NODES, PODS, Changed, Deleted, Object
from dray.messages.facts import NodeObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of


def node(cache: ObjectCache) -> Node:
    fact = fact_of(cache, FactKey("node", "n"), NodeHistory())
    assert isinstance(fact, NodeObserved)
    return fact.node


def pod(uid: str, port: int = 0, status: Object | None = None, **amounts: str) -> Object:
    container: dict[str, Any] = {"name": "c", "resources": {"requests": amounts}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "ns", "resourceVersion": "5"},
        "spec": {"containers": [container], "nodeName": "n"},
        "status": status or {"phase": "Running"},
    }


def picture_with(*pods: Object) -> ObjectCache:
    cache = ObjectCache()
    cache.apply(
        NODES,
        Changed(
            {
                "metadata": {"name": "n", "uid": "n", "resourceVersion": "1"},
                "status": {"allocatable": {"cpu": "8", "pods": "110", "example.com/nic": "4"}},
            }
        ),
    )
    for one in pods:
        cache.apply(PODS, Changed(one))
    return cache


def test_all_resources_and_ports_of_running_pods_are_published() -> None:
    over = {"phase": "Succeeded"}
    cache = picture_with(
        pod("a", 9100, **{"example.com/nic": "1", "ephemeral-storage": "1Ki"}),
        pod("b", 80, **{"example.com/nic": "2"}),
        pod("c", 80),
        pod("over", 443, over, **{"example.com/nic": "1"}),
    )
    found = node(cache)
    assert found.resources == {"example.com/nic": 4}
    assert found.used_resources == {"ephemeral-storage": 1024, "example.com/nic": 3}
    assert found.used_ports == (HostPort(80), HostPort(9100))

    cache.apply(PODS, Deleted(pod("a")))
    assert node(cache).used_resources == {"example.com/nic": 2}
    assert node(cache).used_ports == (HostPort(80),)


def test_a_pod_under_a_resize_takes_what_it_still_has() -> None:
    has = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
    cache = picture_with(pod("a", 0, {"phase": "Running", "containerStatuses": [has]}, cpu="1"))
    assert node(cache).used_cpu_milli == 3000
