"""Devices that draw on counters which are not there: left out as in Kubernetes, with the reason on
the claims that only they could serve. What Kubernetes does is recorded in
``tests/vectors/alloc-counters.jsonl``."""

from typing import Any

import pytest

from dray.api import names
from dray_allocator.values.options import AllocatorOptions

NVIDIA = "gpu.nvidia.com"
Object = dict[str, Any]


def drawing_on(*uses: tuple[str, str, str]) -> Object:
    """A device that consumes counters: set, counter, amount."""
    consumed = [{"counterSet": card, "counters": {name: {"value": n}}} for card, name, n in uses]
    return {"name": "part", "consumesCounters": consumed}


def sets(*cards: str) -> list[Object]:
    """Counter sets of 10 of memory."""
    return [{"name": card, "counters": {"memory": {"value": "10"}}} for card in cards]


CASES = {
    "a set that does not exist": (
        {"sharedCounters": sets("other")},
        [drawing_on(("card", "memory", "1"))],
        {},
        "counter set card not found",
    ),
    "a counter that its set lacks": (
        {"sharedCounters": sets("card")},
        [drawing_on(("card", "cores", "1"))],
        {},
        "counter cores not found in counter set card",
    ),
    "its set twice, which is too much": (
        {"sharedCounters": sets("card")},
        [drawing_on(("card", "memory", "6"), ("card", "memory", "6"))],
        {},
        "not enough free counter memory of card (12 asked): 1 of 1 device; nearest: n1/part has 10",
    ),
    "more than there ever is": (
        {"sharedCounters": sets("card")},
        [drawing_on(("card", "memory", "11"))],
        {},
        "not enough free counter memory of card (11 asked): 1 of 1 device; nearest: n1/part has 10",
    ),
    "a set that is published twice": (
        {"sharedCounters": sets("card", "card")},
        [drawing_on(("card", "memory", "1"))],
        {},
        "duplicate counter set name card",
    ),
    "a set of another pool": (
        {"sharedCounters": sets("card"), "pool": "elsewhere", "count": 1},
        [drawing_on(("card", "memory", "1"))],
        {"count": 1},
        "counter set card not found",
    ),
    "a set of an older generation": (
        {"sharedCounters": sets("card"), "generation": 1},
        [drawing_on(("card", "memory", "1"))],
        {"generation": 2, "count": 1},
        "counter set card not found",
    ),
    "a set of an older generation, and slices missing": (
        {"sharedCounters": sets("card"), "generation": 1},
        [drawing_on(("card", "memory", "1"))],
        {"generation": 2},
        "not all slices of its newest generation are there",
    ),
    "sets that name each other": (
        {"sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}]},
        [drawing_on(("a", "b", "1"), ("b", "a", "1"))],
        {},
        "counter set b not found",
    ),
}


@pytest.mark.parametrize("mode", ["CompactFirst", "KubernetesCompatible"])
@pytest.mark.parametrize(("counters", "devices", "spec", "reason"), CASES.values(), ids=list(CASES))
def test_the_claim_has_a_reason_and_others_continue(
    make_world: Any,
    kube: Any,
    mode: str,
    counters: Object,
    devices: list[Object],
    spec: Object,
    reason: str,
) -> None:
    options = AllocatorOptions(writer="one", drivers=(names.DRIVER, NVIDIA))
    now = type(kube)(make_world(options).open(mode))
    now.node("n1")
    of_pool = {"driver": NVIDIA, "pool": "n1", "count": 2, "nodeName": "n1"}
    now.publish("sets", **of_pool | counters)
    now.publish("n1", *devices, **of_pool | spec)
    now.publish("n1", now.device("plain"))
    theirs = {"selectors": [{"cel": {"expression": f'device.driver == "{NVIDIA}"'}}]}

    now.submit("bad", now.request(of=NVIDIA, **theirs))
    now.submit("other", now.request(selectors=[]))

    assert reason in now.reasons_of("bad")
    assert now.got("other") == ["gpu=plain"]
    now.node("n2")
    now.publish("n2", now.device("good"), driver=NVIDIA)
    assert now.got("bad") == ["gpu=good"]


def test_a_device_that_draws_on_its_set_twice_has_it_where_both_fit(kube: Any) -> None:
    kube.node("n1")
    of_pool = {"driver": NVIDIA, "pool": "n1", "count": 2, "nodeName": "n1"}
    kube.publish("sets", sharedCounters=sets("card"), **of_pool)
    twice = drawing_on(("card", "memory", "5"), ("card", "memory", "5"))
    kube.publish("n1", twice, **of_pool)
    kube.submit("p", kube.request(of=NVIDIA))
    assert kube.got("p") == ["gpu=part"]
