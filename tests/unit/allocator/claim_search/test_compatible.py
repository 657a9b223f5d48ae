"""KubernetesCompatible: what the service decides is what kube-scheduler's allocator decides, node
by node; which node it is follows from a stated tie."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api import names
from dray.messages.facts import ClusterObserved, PodObserved
from dray_allocator.devices.allocate import Problem, allocate
from dray_allocator.devices.devices_in_use import devices_in_use
from dray_allocator.devices.errors import AllocationError, NodeAllocationError
from dray_allocator.devices.published_devices import readable_part
from dray_allocator.devices.versions import DEVICE_BINDING, scheduler_version
from dray_allocator.nodes.tie_break import tie
from dray_allocator.values.options import AllocatorOptions

NVIDIA = "gpu.nvidia.com"
KINDS = ("plain", "shared", "other", "counting", "nameless")
WISHES = ("one", "two", "every", "either", "memory", "model", "pair")
VERSIONS = ("v1.36.3", "v1.37.0")


@pytest.fixture
def compatible(make_world: Any, kube: Any) -> Any:
    """A world that decides as kube-scheduler does."""
    options = AllocatorOptions(writer="one", drivers=(names.DRIVER, NVIDIA))
    return lambda: type(kube)(make_world(options).open("KubernetesCompatible"))


def observed(kube: Any, version: str) -> None:
    """The API server says who it is."""
    kube.world.see(ClusterObserved(revision=1, version=version))


def requests_of(kube: Any, wish: str) -> tuple[list[Any], dict[str, Any]]:
    """What a pod asks for, and its constraints."""
    one = kube.request("a", NVIDIA)
    memory = {"capacity": {"requests": {"memory": "15Gi"}}}
    model = {"selectors": [{"cel": {"expression": f'device.attributes["{NVIDIA}"].model == "B"'}}]}
    pair = {"constraints": [{"matchAttribute": f"{NVIDIA}/model"}]}
    return {
        "one": ([one], {}),
        "two": ([kube.request("a", NVIDIA, count=2)], {}),
        "every": ([kube.request("a", NVIDIA, allocationMode="All")], {}),
        "either": ([kube.first_of(kube.request("a", NVIDIA, count=2, **memory), one)], {}),
        "memory": ([kube.request("b", NVIDIA, **memory)], {}),
        "model": ([kube.request("b", NVIDIA, **model)], {}),
        "pair": ([kube.request("a", NVIDIA, count=2)], pair),
    }[wish]


def publish(kube: Any, node: str, kinds: list[str]) -> None:
    """A node and its slices: a card of 80Gi, and devices."""
    kube.node(node)
    sets = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    of_pool = {"driver": NVIDIA, "pool": node, "count": 2, "nodeName": node}
    kube.publish(f"{node}-sets", sharedCounters=sets, **of_pool)
    devices = [kube.device_of(f"{node}-{at}", kind) for at, kind in enumerate(kinds)]
    kube.publish(node, *devices, **of_pool)


def expected(kube: Any, uid: str, version: str) -> tuple[str, list[Any]] | str | None:
    """Node and devices, kube-scheduler's error, or nothing: every node is asked, in the order of
    the tie, with everything that there is."""
    state = kube.world.state
    known = scheduler_version(version.removeprefix("v").rpartition(".")[0])
    expected_version = replace(known, features=known.features - {DEVICE_BINDING})
    slices = [
        readable_part(part).slice
        for node in (*sorted(state.facts.nodes), "")
        for part in state.published.published_for(node)
        if part.node == node
    ]
    held = [one for _, allocation in state.device_usage.claims() for one in allocation.devices]
    claims = [state.facts.claims[f"claim-{uid}"]]
    classes = tuple(state.facts.classes.values())
    usage = devices_in_use(held, expected_version)
    best: tuple[int, str, list[Any]] | None = None
    for node in sorted(state.facts.nodes, key=lambda name: tie(f"uid-{name}")):
        try:
            found = allocate(
                Problem(state.facts.nodes[node].node, slices, classes, usage, claims),
                expected_version,
            )
        except NodeAllocationError:
            continue
        except AllocationError as error:
            return str(error)
        if found is None:
            continue
        devices = [(one.request, one.id, one.consumed) for one in found[0].devices]
        alternatives = [one.name for one in claims[0].spec.requests[0].first_available]
        rank = alternatives.index(devices[0][0].partition("/")[2]) if alternatives else 0
        if best is None or rank < best[0]:
            best = rank, node, devices
        if not rank:
            break
    return None if best is None else best[1:]


def got(kube: Any, uid: str) -> tuple[str, list[Any]]:
    """Node and devices that were decided."""
    allocation = kube.allocation(uid)
    return kube.world.decisions()[uid].node, [
        (one.request, one.id, one.consumed) for one in allocation.devices
    ]


@pytest.mark.parametrize("version", VERSIONS)
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    clusters=st.lists(
        st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), min_size=1, max_size=4
    ),
    steps=st.lists(st.tuples(st.sampled_from(WISHES), st.booleans()), min_size=1, max_size=8),
)
def test_the_service_decides_what_kube_scheduler_s_allocator_decides(
    compatible: Any, version: str, clusters: list[list[str]], steps: list[tuple[str, bool]]
) -> None:
    now = compatible()
    observed(now, version)
    for number, kinds in enumerate(clusters):
        publish(now, f"n{number}", kinds)
    for number, (wish, frees) in enumerate(steps):
        uid = f"p{number}"
        requests, constraints = requests_of(now, wish)
        now.claim(uid, {"spec": {"devices": {"requests": requests, **constraints}}})
        answer = expected(now, uid, version)
        now.world.see(PodObserved(revision=now.world.next(), pod=now.world.a_pod(uid)))
        if isinstance(answer, tuple):
            assert got(now, uid) == answer
        else:
            assert now.waits(uid)
            named = (answer or "").replace(f"claim ns/{uid}-gpu", "the claim")
            assert named in now.reasons_of(uid)
        held = sorted(one for one, _ in now.world.state.device_usage.claims())
        if frees and held:
            now.world.claim(now.world.state.facts.claims[held[0]], deleted=True)


def odd_selector(kube: Any) -> Any:
    """A request with a selector that not every device can answer."""
    says = f'device.attributes["{NVIDIA}"].model == "A100"'
    return kube.request(of=NVIDIA, selectors=[{"cel": {"expression": says}}])


def test_a_selector_that_fails_ends_the_attempt_with_the_error(compatible: Any) -> None:
    now = compatible()
    now.node("n1")
    now.publish("n1", {"name": "bare"}, now.device("a"), driver=NVIDIA)
    now.submit("p", odd_selector(now))
    reasons_of = now.reasons_of("p")
    assert "the search for devices failed: 1 of 1 node (on n1: " in reasons_of
    assert "the claim: selector #0 on device gpu.nvidia.com/n1/bare" in reasons_of
    assert "no such key: model" in reasons_of

    now.publish("n1", now.device("a"), driver=NVIDIA)
    assert now.got("p") == ["gpu=a"]


def test_scored_placements_forgive_such_a_selector(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", {"name": "bare"}, kube.device("a"), driver=NVIDIA)
    kube.submit("p", odd_selector(kube))
    assert kube.got("p") == ["gpu=a"]


def test_devices_come_as_the_driver_lists_them_whatever_is_in_use(compatible: Any) -> None:
    now = compatible()
    now.node("n1")
    shared = {"capacity": {"memory": {"value": "40Gi"}}, "allowMultipleAllocations": True}
    now.publish("n1", *(now.device(name, **shared) for name in ("a", "b")), driver=NVIDIA)
    large = {"capacity": {"requests": {"memory": "30Gi"}}}
    small = {"capacity": {"requests": {"memory": "5Gi"}}}
    for name, amount in (("p", small), ("q", large), ("r", large), ("s", small)):
        now.submit(name, now.request(of=NVIDIA, **amount))
    assert [now.got(name) for name in "pqrs"] == [["gpu=a"], ["gpu=a"], ["gpu=b"], ["gpu=a"]]


def test_nodes_come_by_their_tie_not_by_load_or_name(compatible: Any) -> None:
    now = compatible()
    nodes = [f"n{number}" for number in range(5)]
    for node in nodes:
        now.node(node)
        now.publish(node, now.device("a"), now.device("b"), driver=NVIDIA)
    for number in range(10):
        now.submit(f"p{number}", now.request(of=NVIDIA))
    decided = now.world.decisions()
    in_order = sorted(nodes, key=lambda name: tie(f"uid-{name}"))
    assert in_order != nodes
    expected_nodes = [node for node in in_order for _ in range(2)]
    assert [decided[f"p{number}"].node for number in range(10)] == expected_nodes


@pytest.mark.parametrize(("pool", "own"), [("KubernetesCompatible", ""), ("", "Kubernetes")])
def test_a_pod_may_ask_for_it_or_for_something_else(
    make_world: Any, kube: Any, pool: str, own: str
) -> None:
    """Whose claim says ``placement`` is decided by that."""
    options = AllocatorOptions(writer="one", drivers=(names.DRIVER, NVIDIA))
    now = type(kube)(make_world(options).open(pool or "CompactFirst"))
    now.node("n1")
    now.publish("n1", {"name": "bare"}, now.device("a"), driver=NVIDIA)
    says = "KubernetesCompatible" if own else "LowLoadFirst"
    parameters = {"kind": names.LIMITS_KIND, names.PLACEMENT_FIELD: says}
    config = [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}]
    now.submit("own", odd_selector(now), config=config)
    now.submit("pools", odd_selector(now))
    waits = {name: now.waits(name) for name in ("own", "pools")}
    assert waits == {"own": bool(own), "pools": bool(pool)}


def test_a_percent_of_a_card_is_refused_with_the_reason(compatible: Any) -> None:
    now = compatible()
    now.node("n1")
    now.publish("n1", now.device("a"))
    parameters = {"kind": names.LIMITS_KIND, "computePercentRequest": "30"}
    config = [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}]
    now.submit("p", now.request(), config=config)
    assert "a percentage of a card can't be requested with placement KubernetesC" in now.reasons_of(
        "p"
    )
    assert "request amounts (tensor-fusion.ai/tflops-request, " in now.reasons_of("p")


def joined(**exactly: Any) -> Any:
    """What a claim says whose cards must be joined."""
    parameters = {"kind": names.LIMITS_KIND, names.TOPOLOGY_FIELD: "hard", **exactly}
    return [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}]


def test_cards_that_must_be_joined_are_refused_with_the_reason_and_others_go_on(
    compatible: Any,
) -> None:
    now = compatible()
    now.node("n1")
    now.publish("n1", *(now.device(name) for name in "abcd"))
    now.submit("p", now.request(count=2), config=joined())
    assert 'tensor-fusion.ai/gpu-topology "hard" is not supported with placement' in now.reasons_of(
        "p"
    )
    now.submit("every", now.request(allocationMode="All"), config=joined())
    assert "matchAttribute" in now.reasons_of("every")
    now.submit("one", now.request(), config=joined())
    assert now.got("one") == ["gpu=a"], "one card is joined to itself"
    now.submit("soft", now.request(count=2), config=joined(**{names.TOPOLOGY_FIELD: "soft"}))
    assert now.got("soft") == ["gpu=b", "gpu=c"]


def test_connected_cards_are_refused_with_alternatives(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"), kube.device("b"))
    kube.submit("p", kube.first_of(kube.request("two", count=2)), config=joined())
    assert "or for requests that only Kubernetes' allocation can decide" in kube.reasons_of("p")
    kube.submit("own", kube.first_of(kube.request("one")), config=joined())
    assert kube.got("own") == ["gpu/one=a"]


def test_devices_that_the_node_table_does_not_read_must_be_connected_too(
    kube: Any, partitions: Any, counters: Any
) -> None:
    kube.node("n1")
    kube.publish("sets", driver=NVIDIA, pool="n1", count=2, nodeName="n1", sharedCounters=counters)
    kube.publish("n1", *partitions, driver=NVIDIA, count=2)
    kube.publish("n1", kube.device("a"), kube.device("b"))
    kube.submit("p", kube.request(count=2), config=joined())
    assert "joined by NVLink, on one NUMA node or under one PCIe root" in kube.reasons_of("p")
