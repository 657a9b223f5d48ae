"""For any requests: no device is allocated twice, and claims' allocations are what is held."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api import names
from dray.api.quantities import parse_quantity
from dray.kube.convert import allocation_to
from dray_allocator.values.options import AllocatorOptions

NVIDIA = "gpu.nvidia.com"
KINDS = ("plain", "shared", "bare", "counting")
MEMORY = {"capacity": {"requests": {"memory": "15Gi"}}}


@st.composite
def clusters(draw: Any) -> list[list[str]]:
    """Kinds of the devices on each of one or two nodes."""
    devices = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)
    return draw(st.lists(devices, min_size=1, max_size=2))


WISHES = st.lists(
    st.sampled_from(["one", "two", "every", "either", "watch", "memory", "twice", "plain"]),
    min_size=1,
    max_size=8,
)


def requests_of(kube: Any, wish: str) -> list[Any]:
    """What a pod asks for."""
    one = kube.request("a", NVIDIA)
    some = kube.request("b", NVIDIA, **MEMORY)
    return {
        "one": [kube.first_of(one)],
        "two": [kube.first_of(kube.request("a", NVIDIA, count=2))],
        "every": [kube.request("a", NVIDIA, allocationMode="All")],
        "either": [kube.first_of(kube.request("a", NVIDIA, count=2, **MEMORY), one)],
        "watch": [kube.request("a", NVIDIA, allocationMode="All", adminAccess=True)],
        "memory": [kube.first_of(some)],
        "twice": [kube.first_of(one), kube.first_of(some, name="gpu2")],
        "plain": [some],
    }[wish]


def device_of(kube: Any, name: str, kind: str) -> Any:
    """A device of a kind."""
    uses = [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]
    memory = {"memory": {"value": "40Gi"}}
    return {
        "plain": kube.device(name, capacity=memory),
        "shared": kube.device(name, capacity=memory, allowMultipleAllocations=True),
        "bare": kube.device(name, allowMultipleAllocations=True),
        "counting": kube.device(name, capacity=memory, consumesCounters=uses),
    }[kind]


def published(kube: Any, kinds_by_node: list[list[str]]) -> Any:
    """The cluster's slices, a card of 80Gi on each node."""
    sets = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    for number, kinds in enumerate(kinds_by_node):
        node = f"n{number}"
        kube.node(node)
        devices = [device_of(kube, f"d{at}", kind) for at, kind in enumerate(kinds)]
        of_pool = {"driver": NVIDIA, "pool": node, "count": 2, "nodeName": node}
        kube.publish(f"{node}-sets", sharedCounters=sets, **of_pool)
        kube.publish(node, *devices, **of_pool)
    return kube


def uses_of(kube: Any) -> dict[str, Any]:
    """What is in use of every device."""
    fleet, device_usage = kube.world.state.published, kube.world.state.device_usage
    devices = [card.id for node in ("n0", "n1") for card in fleet.of(node).cards]
    return {str(one): device_usage.of(one) for one in devices}


def is_sound(kube: Any, kinds_by_node: list[list[str]]) -> None:
    """No device and no counter gives more than it has."""
    state = kube.world.state
    assert not kube.world.oversold()
    for number, kinds in enumerate(kinds_by_node):
        cards = state.published.of(f"n{number}").cards
        assert not [
            state.device_usage.double_allocation(card.id, card)
            for card in cards
            if state.device_usage.double_allocation(card.id, card)
        ]
        kind_of = {f"d{at}": kind for at, kind in enumerate(kinds)}
        counting = [one for one in cards if kind_of[one.id.device] == "counting"]
        used = sum(state.device_usage.of(one.id).shares for one in counting)
        assert used * parse_quantity("40Gi").nano <= parse_quantity("80Gi").nano


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kinds_by_node=clusters(), wishes=WISHES, gone=st.sets(st.integers(0, 7), max_size=4))
def test_nothing_is_allocated_twice_and_statuses_tell_what_is_held(
    make_world: Any, kube: Any, kinds_by_node: list[list[str]], wishes: list[str], gone: set[int]
) -> None:
    options = AllocatorOptions(writer="one", drivers=(names.DRIVER, NVIDIA))
    now = published(type(kube)(make_world(options).open()), kinds_by_node)
    for number, wish in enumerate(wishes):
        now.submit(f"p{number}", *requests_of(now, wish))
        is_sound(now, kinds_by_node)
    for number in sorted(gone & set(range(len(wishes)))):
        claim = now.world.state.facts.claims[f"claim-p{number}"]
        now.world.claim(claim, deleted=True)
        is_sound(now, kinds_by_node)

    again = published(type(kube)(make_world(options).open()), kinds_by_node)
    for uid, allocation in now.world.state.device_usage.claims():
        name = uid.removeprefix("claim-")
        again.claim(name, {"spec": {}, "status": {"allocation": allocation_to(allocation)}})
    assert uses_of(again) == uses_of(now)
