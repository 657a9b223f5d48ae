"""Whatever is asked of the lane: nothing is sold twice, and what claims say is what is held."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api import names
from dray.api.quantities import parse_quantity
from dray.kube.convert import allocation_to
from dray_allocator.devices.device_requests import oversold
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


def requests_of(lane: Any, wish: str) -> list[Any]:
    """What a pod asks for."""
    one = lane.request("a", NVIDIA)
    some = lane.request("b", NVIDIA, **MEMORY)
    return {
        "one": [lane.first_of(one)],
        "two": [lane.first_of(lane.request("a", NVIDIA, count=2))],
        "every": [lane.request("a", NVIDIA, allocationMode="All")],
        "either": [lane.first_of(lane.request("a", NVIDIA, count=2, **MEMORY), one)],
        "watch": [lane.request("a", NVIDIA, allocationMode="All", adminAccess=True)],
        "memory": [lane.first_of(some)],
        "twice": [lane.first_of(one), lane.first_of(some, name="gpu2")],
        "plain": [some],
    }[wish]


def device_of(lane: Any, name: str, kind: str) -> Any:
    """A device of a kind."""
    uses = [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]
    memory = {"memory": {"value": "40Gi"}}
    return {
        "plain": lane.device(name, capacity=memory),
        "shared": lane.device(name, capacity=memory, allowMultipleAllocations=True),
        "bare": lane.device(name, allowMultipleAllocations=True),
        "counting": lane.device(name, capacity=memory, consumesCounters=uses),
    }[kind]


def published(lane: Any, cluster: list[list[str]]) -> Any:
    """The cluster's slices, a card of 80Gi on each node."""
    sets = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    for number, kinds in enumerate(cluster):
        node = f"n{number}"
        lane.node(node)
        devices = [device_of(lane, f"d{at}", kind) for at, kind in enumerate(kinds)]
        of_pool = {"driver": NVIDIA, "pool": node, "count": 2, "nodeName": node}
        lane.publish(f"{node}-sets", sharedCounters=sets, **of_pool)
        lane.publish(node, *devices, **of_pool)
    return lane


def uses_of(lane: Any) -> dict[str, Any]:
    """What is in use of every device."""
    fleet, device_usage = lane.world.state.published, lane.world.state.device_usage
    devices = [card.id for node in ("n0", "n1") for card in fleet.of(node).cards]
    return {str(one): device_usage.of(one) for one in devices}


def is_sound(lane: Any, cluster: list[list[str]]) -> None:
    """No device and no counter gives more than it has."""
    state = lane.world.state
    assert not lane.world.oversold()
    for number, kinds in enumerate(cluster):
        cards = state.published.of(f"n{number}").cards
        assert not [
            oversold(state.device_usage, card, card.id)
            for card in cards
            if oversold(state.device_usage, card, card.id)
        ]
        kind_of = {f"d{at}": kind for at, kind in enumerate(kinds)}
        counting = [one for one in cards if kind_of[one.id.device] == "counting"]
        used = sum(state.device_usage.of(one.id).shares for one in counting)
        assert used * parse_quantity("40Gi").nano <= parse_quantity("80Gi").nano


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cluster=clusters(), wishes=WISHES, gone=st.sets(st.integers(0, 7), max_size=4))
def test_nothing_is_sold_twice_and_statuses_tell_what_is_held(
    make_world: Any, lane: Any, cluster: list[list[str]], wishes: list[str], gone: set[int]
) -> None:
    rules = AllocatorOptions(writer="one", drivers=(names.DRIVER, NVIDIA))
    now = published(type(lane)(make_world(rules).open()), cluster)
    for number, wish in enumerate(wishes):
        now.submit(f"p{number}", *requests_of(now, wish))
        is_sound(now, cluster)
    for number in sorted(gone & set(range(len(wishes)))):
        claim = now.world.state.facts.claims[f"claim-p{number}"]
        now.world.claim(claim, deleted=True)
        is_sound(now, cluster)

    again = published(type(lane)(make_world(rules).open()), cluster)
    for uid, allocation in now.world.state.device_usage.claims():
        name = uid.removeprefix("claim-")
        again.claim(name, {"spec": {}, "status": {"allocation": allocation_to(allocation)}})
    assert uses_of(again) == uses_of(now)
