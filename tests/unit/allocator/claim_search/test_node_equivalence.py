"""Verdicts that the search keeps change no answer; they decide which pods are tried again, and how
long others wait."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api import names
from dray_allocator.core.handle import handle
from dray_allocator.cycle import step
from dray_allocator.cycle.step import Step
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.explain import class_reasons
from dray_allocator.explain.pods import explain_pod
from dray_allocator.placement import class_search, node_equivalence_cache
from dray_allocator.placement.choice import Pause
from dray_allocator.placement.class_search import ClassSearch
from dray_allocator.placement.node_trial import evaluate_node
from dray_allocator.placement.pod_request import wanted
from dray_allocator.placement.schedule import find, may_fit, schedule_pod
from dray_allocator.values.events import Continue
from dray_allocator.values.options import AllocatorOptions

NVIDIA = "gpu.nvidia.com"
MEMORY = {"capacity": {"requests": {"memory": "15Gi"}}}
KINDS = ("plain", "shared", "other", "counting")
WISHES = ("one", "two", "every", "either", "memory", "model", "pair")


def requests_of(kube: Any, wish: str) -> tuple[list[Any], dict[str, Any]]:
    """What a pod asks for, and its constraints."""
    one = kube.request("a", NVIDIA)
    model = {"selectors": [{"cel": {"expression": f'device.attributes["{NVIDIA}"].model == "B"'}}]}
    pair = {"constraints": [{"matchAttribute": f"{NVIDIA}/model"}]}
    return {
        "one": ([kube.first_of(one)], {}),
        "two": ([kube.first_of(kube.request("a", NVIDIA, count=2))], {}),
        "every": ([kube.request("a", NVIDIA, allocationMode="All")], {}),
        "either": ([kube.first_of(kube.request("a", NVIDIA, count=2, **MEMORY), one)], {}),
        "memory": ([kube.first_of(kube.request("b", NVIDIA, **MEMORY))], {}),
        "model": ([kube.first_of(kube.request("b", NVIDIA, **model))], {}),
        "pair": ([kube.first_of(kube.request("a", NVIDIA, count=2))], pair),
    }[wish]


def publish(kube: Any, node: str, kinds: list[str]) -> None:
    """The slices of a node: a card of 80Gi, and devices."""
    sets = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    of_pool = {"driver": NVIDIA, "pool": node, "count": 2, "nodeName": node}
    kube.publish(f"{node}-sets", sharedCounters=sets, **of_pool)
    devices = [kube.device_of(f"{node}-{at}", kind) for at, kind in enumerate(kinds)]
    kube.publish(node, *devices, **of_pool)


def answers(kube: Any) -> list[Any]:
    """What every pod that waits would get now, or why it would get nothing."""
    state = kube.world.state
    domain, found = state.domains["pool"], []
    for uid in sorted(domain.queue.pending):
        want = wanted(state, "pool", state.facts.pods[uid])
        choice = find(state, domain, want)
        if choice is None:
            found.append(explain_pod(state, domain, want))
        else:
            devices = [[(d.request, d.id) for d in one.devices] for one in choice.results]
            found.append((choice.node, devices, choice.considered_devices))
    return found


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    clusters=st.lists(
        st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), min_size=1, max_size=4
    ),
    steps=st.lists(
        st.tuples(st.sampled_from(WISHES), st.sampled_from(["", "free", "slice", "fabric"])),
        min_size=1,
        max_size=8,
    ),
)
def test_nothing_that_is_remembered_changes_an_answer(
    make_world: Any, kube: Any, clusters: list[list[str]], steps: list[tuple[str, str]]
) -> None:
    options = AllocatorOptions(writer="one", drivers=(names.DRIVER, NVIDIA))
    now = type(kube)(make_world(options).open())
    for number, kinds in enumerate(clusters):
        now.node(f"n{number}")
        publish(now, f"n{number}", kinds)
    for number, (wish, then) in enumerate(steps):
        requests, constraints = requests_of(now, wish)
        now.submit(f"p{number}", *requests, **constraints)
        claims = now.world.state.device_usage.claims()
        if then == "free" and (held := sorted(uid for uid, _ in claims)):
            now.world.claim(now.world.state.facts.claims[held[0]], deleted=True)
        elif then == "slice":
            publish(now, f"n{number % len(clusters)}", [*clusters[0], "shared"])
        elif then == "fabric":
            now.publish("fabric", now.device(f"port-{number}"), driver=NVIDIA, allNodes=True)
        remembered = answers(now)
        now.world.state.tables.forget_indexes()
        assert answers(now) == remembered
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node_equivalence_cache, "node_key", lambda *about: object())
            now.world.state.tables.forget_indexes()
            assert answers(now) == remembered
        now.world.state.tables.forget_indexes()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that the search was made on."""
    found: list[str] = []

    def noted(problem: Any, most_looks: int) -> Any:
        found.append(problem.node.name)
        return evaluate_node(problem, most_looks)

    monkeypatch.setattr(class_search, "evaluate_node", noted)
    return found


def fleet_of(kube: Any, nodes: int, model: str = "A100") -> None:
    """Nodes that differ by name alone."""
    for number in range(nodes):
        kube.node(f"n{number:03}")
        kube.publish(f"n{number:03}", kube.device(f"of-{number}", model), driver=NVIDIA)


def of_model(kube: Any, model: str) -> Any:
    """A request for one device of a model, as an alternative."""
    is_it = f'device.attributes["{NVIDIA}"].model == "{model}"'
    return kube.first_of(kube.request("a", NVIDIA, selectors=[{"cel": {"expression": is_it}}]))


def test_nodes_that_are_alike_are_searched_once(kube: Any, looked: list[str]) -> None:
    fleet_of(kube, 50)
    kube.submit("p", of_model(kube, "H100"))
    assert ": 50 of 50 devices" in kube.reasons_of("p")
    assert ": 50 of 50 nodes" in kube.reasons_of("p")
    assert len(looked) == 1


def test_a_pending_pod_is_tried_again_on_nodes_that_changed(kube: Any, looked: list[str]) -> None:
    fleet_of(kube, 20)
    kube.submit("p", of_model(kube, "H100"))
    looked.clear()

    kube.publish("n007", kube.device("new", "B200"), driver=NVIDIA)
    assert (looked, kube.waits("p")) == (["n007"], True)
    assert ": 20 of 20 devices" in kube.reasons_of("p")

    kube.publish("n007", kube.device("new", "H100"), driver=NVIDIA)
    assert kube.got("p") == ["gpu/a=new"]


def test_a_pending_pod_is_unschedulable_until_a_node_may_fit(kube: Any) -> None:
    fleet_of(kube, 4)
    kube.submit("p", of_model(kube, "H100"))
    state = kube.world.state
    domain = state.domains["pool"]
    want = wanted(state, "pool", state.facts.pods["p"])
    assert list(domain.queue.unschedulable_signatures()) == [want.pattern.signature]
    assert not may_fit(state, domain, want)

    kube.node("n004")
    kube.publish("n004", kube.device("new", "A100"), driver=NVIDIA)
    assert not may_fit(state, domain, want), "looked at, and known not to fit"
    kube.publish("fabric", kube.device("port", "H100"), driver=NVIDIA, allNodes=True)
    assert kube.got("p") == ["gpu/a=port"]


def test_a_freed_device_of_many_nodes_activates_pending_pods(kube: Any) -> None:
    kube.node("n1")
    kube.publish("fabric", kube.device("port"), driver=NVIDIA, allNodes=True)
    for name in ("p", "q"):
        kube.submit(name, kube.first_of(kube.request("a", NVIDIA)))
    assert kube.waits("q")
    kube.world.claim(kube.world.state.facts.claims["claim-p"], deleted=True)
    assert kube.got("q") == ["gpu/a=port"]


def odd_fleet(kube: Any, nodes: int) -> None:
    """Nodes that no two are alike."""
    for number in range(nodes):
        kube.node(f"n{number:03}")
        kube.publish(f"n{number:03}", kube.device("a", f"model-{number}"), driver=NVIDIA)


def test_a_long_search_stops_and_goes_on_where_it_was(kube: Any, looked: list[str]) -> None:
    odd_fleet(kube, 12)
    kube.submit("p", of_model(kube, "none"))
    state = kube.world.state
    domain = state.domains["pool"]
    state.tables.forget_indexes()
    looked.clear()

    want, pauses = wanted(state, "pool", state.facts.pods["p"]), 0
    while isinstance(found := schedule_pod(state, domain, want, SearchBudget(8)), Pause):
        pauses += 1
    assert found is None
    assert pauses > 2
    assert sorted(looked) == [f"n{number:03}" for number in range(12)], "each once"


def test_others_are_decided_while_a_long_search_goes_on(
    kube: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd_fleet(kube, 12)
    kube.publish("n000", kube.device("plain"))
    monkeypatch.setattr(step, "STEP_LOOKS", 4)
    state, done = kube.world.state, []

    def stepwise(event: Any) -> Any:
        effects = handle(state, event)
        done.append(isinstance(event, Continue))
        return effects

    monkeypatch.setattr(type(kube.world), "do", lambda self, event: stepwise(event))
    kube.submit("long", of_model(kube, "none"))
    domain = state.domains["pool"]
    assert list(domain.queue.paused) == ["long"]
    kube.submit("short", kube.request())
    assert "short" in domain.current.pods, "it did not wait for the long search"
    assert list(domain.queue.paused) == ["long"]
    while state.unfinished:
        stepwise(Continue())
    assert not domain.queue.paused
    assert "long" in domain.current.waiting


def test_a_search_that_is_paused_ends_with_its_pod(kube: Any) -> None:
    odd_fleet(kube, 4)
    state = kube.world.state
    domain = state.domains["pool"]
    domain.queue.paused["gone"] = None
    Step(state, domain, goes_on=True).take()
    assert not domain.queue.paused
    assert not state.unfinished


def test_nodes_hard_to_search_are_tried_last_and_few_of_them_long(
    kube: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim whose search on a node is exponential: pairs of devices that never match."""
    for number in range(6):
        kube.node(f"n{number}")
        devices = [kube.device(f"d{number}-{at}", f"m{at}-{number}") for at in range(12)]
        kube.publish(f"n{number}", *devices, driver=NVIDIA)
    for module in (class_search, class_reasons):
        monkeypatch.setattr(module, "MAX_FIRST_TRIES_BY_SEARCH", 5)
        monkeypatch.setattr(module, "MAX_TRIES_PER_NODE", 10)
    wish = kube.first_of(kube.request("a", NVIDIA, count=2))
    kube.submit("p", wish, constraints=[{"matchAttribute": f"{NVIDIA}/model"}])
    assert "no choice of devices among the first 10 tried: 4 of 6 nodes" in kube.reasons_of("p")
    assert "no choice of devices among the first 5 tried: 2 of 6 nodes" in kube.reasons_of("p")

    state = kube.world.state
    walk = ClassSearch(state, state.domains["pool"], wanted(state, "pool", state.facts.pods["p"]))
    assert walk.is_open(), "it may be elsewhere with the next change"
