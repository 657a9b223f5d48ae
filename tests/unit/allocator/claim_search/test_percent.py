"""Percent of a card where structured parameters decide: of each device its own amount."""

from typing import Any

import pytest

from dray.api import names
from dray_allocator.values.options import AllocatorOptions

TFLOPS, VRAM = "virtual_tflops", "virtual_vram"


def card(kube: Any, name: str, tflops: str, vram: str, **fields: Any) -> Any:
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
    return kube.device(name, capacity=capacity, allowMultipleAllocations=True, **fields)


def percent(compute: str, *requests: str) -> Any:
    """Configuration that asks for so much of a card, compute and memory."""
    fields = {"computePercentRequest": compute, "vramPercentRequest": compute}
    parameters = {"kind": names.LIMITS_KIND, **fields}
    opaque = {"opaque": {"driver": names.DRIVER, "parameters": parameters}}
    return {**opaque, "requests": list(requests)} if requests else opaque


def consumed(kube: Any, pod: str) -> dict[str, tuple[str, str]]:
    """Compute and memory of every device that the pod got."""
    return {
        one.id.device: (one.consumed[TFLOPS], one.consumed[VRAM])
        for one in kube.allocation(pod).devices
    }


def test_all_cards_give_the_same_percentage_of_different_amounts(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", card(kube, "a", "100", "40Gi"), card(kube, "b", "65", "16Gi"))
    kube.submit("p", kube.request(allocationMode="All"), config=[percent("50")])
    assert consumed(kube, "p") == {"a": ("50", "20Gi"), "b": ("32500m", "8Gi")}
    kube.submit("q", kube.request(allocationMode="All"), config=[percent("50")])
    assert consumed(kube, "q") == consumed(kube, "p")
    kube.submit("r", kube.request(allocationMode="All"), config=[percent("2")])
    reasons_of = (
        "not enough free virtual_tflops (2 % of tflops asked): 2 of 2 devices; nearest: n1/"
    )
    assert reasons_of in kube.reasons_of("r")


@pytest.mark.parametrize(("amount", "stated"), [("30", None), ("30", "7"), ("0.001", None)])
def test_node_table_and_search_agree(make_world: Any, kube: Any, amount: str, stated: Any) -> None:
    found = []
    capacity = {"capacity": {"requests": {TFLOPS: stated}}} if stated else {}
    for wish in (kube.request(**capacity), kube.first_of(kube.request("gpu", **capacity))):
        now = type(kube)(make_world(AllocatorOptions(writer="one")).open())
        now.node("n1")
        now.publish("n1", card(now, "a", "312", "40Gi"))
        now.submit("p", wish, config=[percent(amount)])
        found.append(consumed(now, "p"))
    assert found[0] == found[1]


def test_an_alternative_may_have_a_percentage_of_its_own(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", card(kube, "a", "100", "40Gi"))
    either = kube.first_of(kube.request("large"), kube.request("small"))
    config = [percent("60", "gpu/large"), percent("20", "gpu/small")]
    for name in ("p", "q", "r"):
        kube.submit(name, either, config=config)
    assert [kube.got(name) for name in "pqr"] == [
        ["gpu/large=a"],
        ["gpu/small=a"],
        ["gpu/small=a"],
    ]
    assert consumed(kube, "q") == {"a": ("20", "8Gi")}


def test_pods_whose_alternatives_ask_for_other_percentages_do_not_share_a_verdict(
    kube: Any,
) -> None:
    kube.node("n1")
    kube.publish("n1", card(kube, "a", "100", "40Gi"))
    only = kube.first_of(kube.request("only"))
    for name, amount in (("most", "80"), ("half", "50"), ("tenth", "10")):
        kube.submit(name, only, config=[percent(amount, "gpu/only")])
    assert list(kube.world.decisions()) == ["most", "tenth"]
    assert "not enough free virtual_tflops (50 % of tflops asked)" in kube.reasons_of("half")


def test_a_plain_claim_gets_its_percentage_of_devices_that_the_node_table_does_not_read(
    kube: Any,
) -> None:
    kube.node("n1")
    of_pool = {"driver": names.DRIVER, "pool": "n1", "count": 2, "nodeName": "n1"}
    memory = {"slots": {"value": "1"}}
    kube.publish("sets", sharedCounters=[{"name": "card", "counters": memory}], **of_pool)
    uses = [{"counterSet": "card", "counters": memory}]
    kube.publish("n1", card(kube, "a", "100", "40Gi", consumesCounters=uses), **of_pool)
    kube.submit("p", kube.request(), config=[percent("25")])
    assert consumed(kube, "p") == {"a": ("25", "10Gi")}
