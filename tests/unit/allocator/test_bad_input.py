"""Senseless claims and slices: a clear reason on that claim, and other claims go on.

Claims and slices come in as Kubernetes has them, and only ``handle`` is asked, so that what is
tested here holds for both ways of deciding.
"""

from typing import Any

import pytest
from tests.unit.allocator.objects import (
    Object,
    as_alternatives,
    card,
    devices_of,
    of_capacity,
    others_go_on,
    publish,
    reasons_of,
    request,
    submit,
)

from dray.api import names
from dray.kube.convert import claim_from
from dray.messages.facts import ClaimObserved

UUID, GROUP = f"{names.DRIVER}/uuid", f"{names.DRIVER}/group"


@pytest.fixture(params=[lambda devices: devices, as_alternatives], ids=["table", "search"])
def written(request: pytest.FixtureRequest) -> Any:
    """How a claim is written: for the node table, or for the search."""
    return request.param


CLAIMS = {
    "33 devices": (devices_of(request(count=33)), "more than 32 devices"),
    "33 devices in two requests": (
        devices_of(request("a", count=32), request("b")),
        "more than 32 devices",
    ),
    "a billion devices": (devices_of(request(count=10**9)), "more than 32 devices"),
    "less than no device": (devices_of(request(count=-1)), "count -1"),
    "a negative amount": (devices_of(of_capacity(virtual_vram="-1Gi")), "virtual_vram -1Gi"),
    "no number": (devices_of(of_capacity(virtual_vram="lots")), "lots"),
    "more than any card": (devices_of(of_capacity(virtual_vram="8Ei")), "virtual_vram"),
    "an absurd amount": (devices_of(of_capacity(virtual_vram="1e999")), "virtual_vram"),
    "an unknown capacity": (devices_of(of_capacity(sockets="1")), "sockets"),
    "an unknown class": (devices_of(request(deviceClassName="none")), "DeviceClass none"),
    "a request without a kind": (devices_of({"name": "gpu"}), "gpu"),
    "a constraint without a kind": (
        devices_of(request(), constraints=({"requests": ["gpu"]},)),
        "constraint",
    ),
    "an unknown attribute to match": (
        devices_of(request(), constraints=({"matchAttribute": f"{names.DRIVER}/rack"},)),
        f"matchAttribute {names.DRIVER}/rack",
    ),
    "constraints that contradict each other": (
        devices_of(
            request(count=2), constraints=({"matchAttribute": UUID}, {"distinctAttribute": UUID})
        ),
        f"distinctAttribute {UUID}",
    ),
    "a selector that can't be read": (
        devices_of(request(selectors=[{"cel": {"expression": "device.("}}])),
        "device.(",
    ),
    "a selector of nothing that exists": (
        devices_of(request(selectors=[{"cel": {"expression": "device.attributes['a'].b == 1"}}])),
        "device.attributes['a'].b == 1",
    ),
}


@pytest.mark.parametrize(("devices", "reason"), CLAIMS.values(), ids=CLAIMS)
def test_an_invalid_claim_has_a_reason_and_others_continue(
    world: Any, devices: Object, reason: str, written: Any
) -> None:
    publish(world, "n1", *(card(f"gpu-{n}") for n in range(4)))

    submit(world, "bad", written(devices))

    assert reason in reasons_of(world, "bad")
    others_go_on(world)


SLICES = {
    "no devices": ([], {}, "no devices: 1 of 1 node"),
    "a part that never comes": ([card("gpu-0")], {"count": 2}, "not all slices"),
    "more slices than it says": ([card("gpu-0")], {"count": 0}, "not all slices"),
    "a name twice": ([card("gpu-0"), card("gpu-0")], {}, "not all slices"),
    "a negative capacity": (
        [card("gpu-0", capacity={"virtual_vram": {"value": "-40Gi"}})],
        {},
        "virtual_vram is -40Gi",
    ),
    "no number for a capacity": (
        [card("gpu-0", capacity={"virtual_vram": {"value": "lots"}})],
        {},
        "virtual_vram is lots",
    ),
    "no number in a policy": (
        [
            card(
                "gpu-0",
                capacity={
                    "virtual_vram": {
                        "value": "40Gi",
                        "requestPolicy": {"validRange": {"min": "few", "step": "-1"}},
                    }
                },
            )
        ],
        {},
        "virtual_vram is few",
    ),
    "counters that no slice has": (
        [
            card(
                "gpu-0",
                consumesCounters=[{"counterSet": "table", "counters": {"slots": {"value": "1"}}}],
            )
        ],
        {},
        "counter set table not found",
    ),
    "counters that consume each other": (
        [
            card("gpu-0", consumesCounters=[{"counterSet": "a", "counters": {}}]),
            card("gpu-1", consumesCounters=[{"counterSet": "b", "counters": {}}]),
        ],
        {"sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}]},
        "no devices: 1 of 1 node",
    ),
}


@pytest.mark.parametrize(("cards", "spec", "reason"), SLICES.values(), ids=SLICES)
def test_a_claim_that_only_an_invalid_slice_could_serve_has_a_reason(
    world: Any, cards: list[Object], spec: Object, reason: str, written: Any
) -> None:
    publish(world, "n1", *cards, **spec)

    submit(world, "bad", written(devices_of(request())))

    assert reason in reasons_of(world, "bad")
    publish(world, "n2", card("gpu-0"))
    assert "bad" in world.decisions(), "as soon as there is a card"
    others_go_on(world)


def test_an_unknown_field_does_no_harm(world: Any) -> None:
    publish(world, "n1", card("gpu-0", colour="red"), temper={"hot": True})
    submit(world, "p", devices_of(request(mood="good")) | {"wishes": ["a pony"]})
    assert "p" in world.decisions()


def test_all_devices_of_a_pool_that_is_not_whole_are_not_given_in_part(world: Any) -> None:
    publish(world, "n1", card("gpu-0"), count=2)
    submit(world, "bad", devices_of(request(allocationMode="All")))

    assert reasons_of(world, "bad")
    publish(world, "n2", card("gpu-0"))
    others_go_on(world)


def test_negative_amounts_in_a_status_free_nothing(world: Any) -> None:
    publish(world, "n1", card("gpu-0"))
    result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
    obj = {
        "metadata": {"name": "odd", "namespace": "ns", "uid": "odd", "resourceVersion": "9"},
        "spec": {"devices": devices_of(request())},
        "status": {
            "allocation": {
                "devices": {"results": [result | {"consumedCapacity": {"virtual_vram": "-99Gi"}}]}
            }
        },
    }
    world.see(ClaimObserved(revision=world.next(), claim=claim_from(obj)))
    for name in ("a", "b"):
        submit(world, name, devices_of(of_capacity(virtual_vram="40Gi", virtual_tflops="1")))

    assert list(world.decisions()) == ["a"]
    assert "free virtual_vram" in reasons_of(world, "b")


@pytest.mark.parametrize("text", ["lots", ""])
def test_a_status_that_can_t_be_read_takes_the_whole_card(world: Any, text: str) -> None:
    publish(world, "n1", card("gpu-0"))
    result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
    allocation = {"devices": {"results": [result | {"consumedCapacity": {"virtual_vram": text}}]}}
    metadata = {"name": "odd", "namespace": "ns", "uid": "odd", "resourceVersion": "9"}
    obj = {"metadata": metadata, "spec": {"devices": {}}, "status": {"allocation": allocation}}
    world.see(ClaimObserved(revision=world.next(), claim=claim_from(obj)))

    submit(world, "bad", devices_of(request()))

    assert "in use" in reasons_of(world, "bad")
    publish(world, "n2", card("gpu-0"))
    others_go_on(world)


def test_ten_thousand_devices_in_a_slice_are_one_node_among_others(
    world: Any, written: Any
) -> None:
    publish(world, "n1", *(card(f"gpu-{n}") for n in range(10_000)))
    publish(world, "n2", card("gpu-0"))

    submit(world, "many", written(devices_of(request(count=32))))
    submit(world, "bad", written(devices_of(of_capacity(virtual_vram="41Gi"))))

    assert world.decisions()["many"].node == "n1"
    assert ": 10001 of 10001 devices" in reasons_of(world, "bad")
    others_go_on(world)


def test_combinations_without_end_are_tried_up_to_a_bound_in_the_reason(
    world: Any, written: Any
) -> None:
    """16 devices of 16 groups, where there are 15: trying all would take years.
    Every node is such a one, and a claim that fits is not kept waiting."""
    for node in range(20):
        cards = (card(f"gpu-{n}", group=f"group-{n % 15}") for n in range(64))
        publish(world, f"n{node}", *cards)

    sixteen = devices_of(request(count=16), constraints=({"distinctAttribute": GROUP},))
    submit(world, "bad", written(sixteen))

    reason = reasons_of(world, "bad")
    assert "tried" in reason
    assert "or use fewer constraints" in reason
    submit(world, "p", devices_of(request(count=15), constraints=({"distinctAttribute": GROUP},)))
    assert "p" in world.decisions()
    others_go_on(world)


def test_a_node_that_needs_many_tries_does_not_hide_one_that_needs_few(world: Any) -> None:
    for node in range(20):
        groups = 15 if node < 19 else 16
        cards = (card(f"gpu-{n}", group=f"group-{n % groups}") for n in range(64))
        publish(world, f"n{node}", *cards)

    submit(world, "p", devices_of(request(count=16), constraints=({"distinctAttribute": GROUP},)))

    assert world.decisions()["p"].node == "n19"
