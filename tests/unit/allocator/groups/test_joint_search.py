"""The joint search against every possible placement of small groups."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.allocator.groups.support import member, see_group, together

from dray.api import names
from dray.api.claims import ClaimSpec, DeviceRequest
from dray_allocator.values.options import AllocatorOptions

Ask = tuple[int, int]
"""Number of cards, and how much of each."""
Asks = tuple[Ask, ...]
"""Alternatives of one pod, the preferred one first."""


def spec_of(asks: Asks) -> ClaimSpec:
    def request(name: str, ask: Ask) -> DeviceRequest:
        count, amount = ask
        capacity = {"virtual_tflops": str(amount), "virtual_vram": "1Gi"}
        return DeviceRequest(name, names.DEVICE_CLASS, capacity=capacity, count=count)

    if len(asks) == 1:
        return ClaimSpec((request(names.GPU_REQUEST, asks[0]),))
    options = tuple(request(f"option-{at}", ask) for at, ask in enumerate(asks))
    return ClaimSpec((DeviceRequest("gpu", "", first_available=options),))


def fits(nodes: list[list[int]], pods: list[Asks]) -> bool:
    """Whether some placement has room for all pods, by trying every one."""
    if not pods:
        return True
    return any(fits(left, pods[1:]) for ask in pods[0] for left in placements(nodes, ask))


def placements(nodes: list[list[int]], ask: Ask) -> Iterator[list[list[int]]]:
    count, amount = ask
    for at, cards in enumerate(nodes):
        room = [index for index, free in enumerate(cards) if free >= amount]
        for chosen in combinations(room, count):
            left = [free - amount * (index in chosen) for index, free in enumerate(cards)]
            yield [*nodes[:at], left, *nodes[at + 1 :]]


AMOUNTS = st.sampled_from([1, 2, 3, 4])
CARDS = st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3)
ASK = st.tuples(st.integers(1, 2), AMOUNTS)
PODS = st.lists(
    st.lists(ASK, min_size=1, max_size=2, unique=True).map(tuple), min_size=2, max_size=4
)


@settings(max_examples=400)
@given(st.lists(CARDS, min_size=1, max_size=3), PODS)
def test_a_group_that_fits_is_placed_and_no_other(
    make_world: Any, nodes: list[list[int]], pods: list[Asks]
) -> None:
    world = make_world(AllocatorOptions(writer="one")).open()
    for at, cards in enumerate(nodes):
        devices = [
            world.a_card(f"n{at}-{index}", tflops=str(free)) for index, free in enumerate(cards)
        ]
        publish(world, f"n{at}", devices)
    see_group(world, len(pods))
    for number, asks in enumerate(pods):
        member(world, f"p{number}", spec_of(asks))
    found = together(world)
    assert world.oversold() == []
    if fits(nodes, pods):
        assert found == [{f"p{number}" for number in range(len(pods))}]
    else:
        assert found == []


def publish(world: Any, name: str, devices: list[Any]) -> None:
    from dray.messages.facts import SliceObserved

    world.see(SliceObserved(revision=world.next(), slice=world.a_slice(name, devices)))
    world.node(world.a_node(name))
