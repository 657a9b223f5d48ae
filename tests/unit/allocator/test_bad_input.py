"""Senseless claims and slices: a clear reason on that claim, and other claims go on.

Claims and slices come in as Kubernetes has them, and only ``handle`` is asked, so that what is
said here holds for whatever decides behind it.
"""

from typing import Any

import pytest

from dray.domain import names
from dray.kube.convert import claim_from, slice_from
from dray.kube.convert_dra_slices import slice_in_full
from dray.messages.facts import ClaimObserved, PodObserved, SliceObserved

Object = dict[str, Any]
UUID, GROUP = f"{names.DRIVER}/uuid", f"{names.DRIVER}/group"


def request(name: str = "gpu", **exactly: Any) -> Object:
    """A request of our class for a small share, unless it says otherwise."""
    capacity = {"requests": {"virtual_tflops": "1", "virtual_vram": "1Gi"}}
    return {
        "name": name,
        "exactly": {"deviceClassName": names.DEVICE_CLASS, "capacity": capacity, **exactly},
    }


def of_capacity(**requests: str) -> Object:
    """A request that names these amounts."""
    return request(capacity={"requests": requests})


def devices_of(*requests: Object, constraints: tuple[Object, ...] = ()) -> Object:
    """``spec.devices``."""
    return {"requests": list(requests), "constraints": list(constraints)}


def card(name: str, *, group: str = "one", **fields: Any) -> Object:
    """A device of 100 TFLOPS and 40Gi that may be shared."""
    amounts = {"virtual_tflops": {"value": "100"}, "virtual_vram": {"value": "40Gi"}}
    return {
        "name": name,
        "attributes": {"uuid": {"string": name}, "group": {"string": group}},
        "capacity": amounts | fields.pop("capacity", {}),
        "allowMultipleAllocations": True,
        **fields,
    }


def publish(world: Any, node: str, *cards: Object, count: int = 1, **spec: Any) -> None:
    """The first slice of a node's pool, of ``count``, and the node."""
    obj = {
        "metadata": {"name": f"slice-{node}", "uid": node},
        "spec": {
            "driver": names.DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": count},
            "devices": list(cards),
            **spec,
        },
    }
    known = slice_from(obj)
    whole = slice_in_full(obj, known)
    world.see(SliceObserved(revision=world.next(), slice=known, in_full=whole))
    world.node(world.a_node(node))


def as_alternatives(devices: Object) -> Object:
    """The same, but that every request is the one alternative of itself: this way the structured
    lane decides."""
    alternatives = [
        {"name": one["name"], "firstAvailable": [{"name": "only", **one["exactly"]}]}
        if "exactly" in one
        else one
        for one in devices["requests"]
    ]
    return {**devices, "requests": alternatives}


@pytest.fixture(params=[lambda devices: devices, as_alternatives], ids=["board", "lane"])
def written(request: pytest.FixtureRequest) -> Any:
    """How a claim is written: for the board, or for the structured lane."""
    return request.param


def submit(world: Any, name: str, devices: Object) -> None:
    """A pod and its claim."""
    obj = {
        "metadata": {
            "name": f"{name}-gpu",
            "namespace": "ns",
            "uid": f"claim-{name}",
            "resourceVersion": str(world.next()),
            "labels": {names.POOL_LABEL: "pool"},
        },
        "spec": {"devices": devices},
    }
    world.see(ClaimObserved(revision=world.next(), claim=claim_from(obj)))
    world.see(PodObserved(revision=world.next(), pod=world.a_pod(name)))


def told(world: Any, name: str) -> str:
    """Why it waits, as a person reads it."""
    assert name not in world.decisions()
    reasons = world.waits(name)[-1].reasons
    assert reasons, "it waits without a word"
    assert all(len(str(reason)) < 2000 for reason in reasons)
    return "\n".join(map(str, reasons))


def others_go_on(world: Any) -> None:
    """A claim that makes sense, asked for after the senseless one, gets its card."""
    submit(world, "sensible", devices_of(request()))
    assert "sensible" in world.decisions()


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
def test_a_senseless_claim_is_told_why_and_others_go_on(
    world: Any, devices: Object, reason: str, written: Any
) -> None:
    publish(world, "n1", *(card(f"gpu-{n}") for n in range(4)))

    submit(world, "bad", written(devices))

    assert reason in told(world, "bad")
    others_go_on(world)


SLICES = {
    "no devices": ([], {}, "devices: fails on 1 of 1 node"),
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
                consumesCounters=[{"counterSet": "board", "counters": {"slots": {"value": "1"}}}],
            )
        ],
        {},
        "counter set board not found",
    ),
    "counters that consume each other": (
        [
            card("gpu-0", consumesCounters=[{"counterSet": "a", "counters": {}}]),
            card("gpu-1", consumesCounters=[{"counterSet": "b", "counters": {}}]),
        ],
        {"sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}]},
        "devices: fails on 1 of 1 node",
    ),
}


@pytest.mark.parametrize(("cards", "spec", "reason"), SLICES.values(), ids=SLICES)
def test_a_claim_that_only_a_senseless_slice_could_serve_is_told_why(
    world: Any, cards: list[Object], spec: Object, reason: str, written: Any
) -> None:
    publish(world, "n1", *cards, **spec)

    submit(world, "bad", written(devices_of(request())))

    assert reason in told(world, "bad")
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

    assert told(world, "bad")
    publish(world, "n2", card("gpu-0"))
    others_go_on(world)


def test_a_status_that_claims_less_than_nothing_gives_nobody_more(world: Any) -> None:
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
    assert "free virtual_vram" in told(world, "b")


@pytest.mark.parametrize("text", ["lots", ""])
def test_a_status_that_can_t_be_read_takes_the_whole_card(world: Any, text: str) -> None:
    publish(world, "n1", card("gpu-0"))
    result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
    allocation = {"devices": {"results": [result | {"consumedCapacity": {"virtual_vram": text}}]}}
    metadata = {"name": "odd", "namespace": "ns", "uid": "odd", "resourceVersion": "9"}
    obj = {"metadata": metadata, "spec": {"devices": {}}, "status": {"allocation": allocation}}
    world.see(ClaimObserved(revision=world.next(), claim=claim_from(obj)))

    submit(world, "bad", devices_of(request()))

    assert "not in use" in told(world, "bad")
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
    assert "fails on 10001 of 10001 devices" in told(world, "bad")
    others_go_on(world)


def test_combinations_without_end_are_tried_up_to_a_bound_that_is_told(
    world: Any, written: Any
) -> None:
    """16 devices of 16 groups, where there are 15: whoever tries them all is not done this year.
    Every node is such a one, and a claim that fits is not kept waiting."""
    for node in range(20):
        cards = (card(f"gpu-{n}", group=f"group-{n % 15}") for n in range(64))
        publish(world, f"n{node}", *cards)

    sixteen = devices_of(request(count=16), constraints=({"distinctAttribute": GROUP},))
    submit(world, "bad", written(sixteen))

    reason = told(world, "bad")
    assert "tried" in reason
    assert "ask for fewer, or constrain less" in reason
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
