"""Percent of a card where structured parameters decide: of each device its own amount."""

from typing import Any

import pytest

from dray.api import names
from dray_allocator.values.options import AllocatorOptions

TFLOPS, VRAM = "virtual_tflops", "virtual_vram"


def card(lane: Any, name: str, tflops: str, vram: str, **fields: Any) -> Any:
    """A card that is shared, as the node-agent publishes it."""
    fixed = {"default": "0", "validValues": ["0"]}
    capacity = {
        "tflops": {"value": tflops, "requestPolicy": fixed},
        "vram": {"value": vram, "requestPolicy": fixed},
        TFLOPS: {
            "value": tflops,
            "requestPolicy": {"default": tflops, "validRange": {"min": "1"}},
        },
        VRAM: {"value": vram, "requestPolicy": {"default": vram, "validRange": {"min": "1"}}},
    }
    return lane.device(name, capacity=capacity, allowMultipleAllocations=True, **fields)


def percent(compute: str, *requests: str) -> Any:
    """Configuration that asks for so much of a card, compute and memory."""
    fields = {"computePercentRequest": compute, "vramPercentRequest": compute}
    parameters = {"kind": names.LIMITS_KIND, **fields}
    opaque = {"opaque": {"driver": names.DRIVER, "parameters": parameters}}
    return {**opaque, "requests": list(requests)} if requests else opaque


def consumed(lane: Any, pod: str) -> dict[str, tuple[str, str]]:
    """Compute and memory of every device that the pod got."""
    return {
        one.id.device: (one.consumed[TFLOPS], one.consumed[VRAM])
        for one in lane.allocation(pod).devices
    }


def test_all_cards_give_the_same_percentage_of_different_amounts(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", card(lane, "a", "100", "40Gi"), card(lane, "b", "65", "16Gi"))
    lane.submit("p", lane.request(allocationMode="All"), config=[percent("50")])
    assert consumed(lane, "p") == {"a": ("50", "20Gi"), "b": ("32500m", "8Gi")}
    lane.submit("q", lane.request(allocationMode="All"), config=[percent("50")])
    assert consumed(lane, "q") == consumed(lane, "p")
    lane.submit("r", lane.request(allocationMode="All"), config=[percent("2")])
    reasons_of = (
        "not enough free virtual_tflops (2 % of tflops asked): 2 of 2 devices; nearest: n1/"
    )
    assert reasons_of in lane.reasons_of("r")


@pytest.mark.parametrize(("amount", "stated"), [("30", None), ("30", "7"), ("0.001", None)])
def test_both_lanes_give_the_same(make_world: Any, lane: Any, amount: str, stated: Any) -> None:
    found = []
    capacity = {"capacity": {"requests": {TFLOPS: stated}}} if stated else {}
    for wish in (lane.request(**capacity), lane.first_of(lane.request("gpu", **capacity))):
        now = type(lane)(make_world(AllocatorOptions(writer="one")).open())
        now.node("n1")
        now.publish("n1", card(now, "a", "312", "40Gi"))
        now.submit("p", wish, config=[percent(amount)])
        found.append(consumed(now, "p"))
    assert found[0] == found[1]


def test_an_alternative_may_have_a_percentage_of_its_own(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", card(lane, "a", "100", "40Gi"))
    either = lane.first_of(lane.request("large"), lane.request("small"))
    config = [percent("60", "gpu/large"), percent("20", "gpu/small")]
    for name in ("p", "q", "r"):
        lane.submit(name, either, config=config)
    assert [lane.got(name) for name in "pqr"] == [
        ["gpu/large=a"],
        ["gpu/small=a"],
        ["gpu/small=a"],
    ]
    assert consumed(lane, "q") == {"a": ("20", "8Gi")}


def test_pods_whose_alternatives_ask_for_other_percentages_do_not_share_a_verdict(
    lane: Any,
) -> None:
    lane.node("n1")
    lane.publish("n1", card(lane, "a", "100", "40Gi"))
    only = lane.first_of(lane.request("only"))
    for name, amount in (("most", "80"), ("half", "50"), ("tenth", "10")):
        lane.submit(name, only, config=[percent(amount, "gpu/only")])
    assert list(lane.world.decisions()) == ["most", "tenth"]
    assert "not enough free virtual_tflops (50 % of tflops asked)" in lane.reasons_of("half")


def test_a_plain_claim_gets_its_percentage_of_what_the_board_does_not_read(lane: Any) -> None:
    lane.node("n1")
    of_pool = {"driver": names.DRIVER, "pool": "n1", "count": 2, "nodeName": "n1"}
    memory = {"slots": {"value": "1"}}
    lane.publish("sets", sharedCounters=[{"name": "card", "counters": memory}], **of_pool)
    uses = [{"counterSet": "card", "counters": memory}]
    lane.publish("n1", card(lane, "a", "100", "40Gi", consumesCounters=uses), **of_pool)
    lane.submit("p", lane.request(), config=[percent("25")])
    assert consumed(lane, "p") == {"a": ("25", "10Gi")}
