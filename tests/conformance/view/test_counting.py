"""The independent count notices what it is there for, and the steps are the same every time."""

from typing import Any

import pytest
from tests.conformance.stand import recount
from tests.conformance.view.churn import Create, Delete, steps

SHARED = {"name": "card", "capacity": {"memory": {"value": "10Gi"}}}
COUNTED = [{"counterSet": "set", "counters": {"slices": {"value": "3"}}}]


def published(*devices: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    place = {"driver": "d", "pool": {"name": "p"}}
    return [
        {"spec": {**place, "devices": list(devices)}},
        *({"spec": {**place, key: value}} for key, value in more.items()),
    ]


def claim(name: str, device: str = "card", memory: str = "", share: str = "") -> dict[str, Any]:
    result = {"driver": "d", "pool": "p", "device": device}
    result |= {"shareID": share} if share else {}
    result |= {"consumedCapacity": {"memory": memory}} if memory else {}
    allocation = {"devices": {"results": [result]}}
    return {"metadata": {"name": name}, "status": {"allocation": allocation}}


def test_shares_within_a_card_are_fine_and_the_rest_is_reported() -> None:
    claims = [claim("a", memory="4Gi", share="1"), claim("b", memory="6Gi", share="2")]
    counted = recount(published(SHARED), claims)
    assert counted.free["d", "p", "card"]["memory"].nano == 0
    assert counted.wholly == set()


@pytest.mark.parametrize(
    ("claims", "complaint"),
    [
        ([claim("a", memory="4Gi", share="1"), claim("b", memory="7Gi", share="2")], "oversold"),
        ([claim("a"), claim("b", memory="1Gi", share="2")], "card"),
        ([claim("a", "nowhere")], "not published"),
        ([claim("a", "part-0"), claim("b", "part-1")], "overdrawn"),
    ],
    ids=["beyond its capacity", "shared though held wholly", "unpublished", "beyond its counters"],
)
def test_what_may_not_be_is_found(claims: list[dict[str, Any]], complaint: str) -> None:
    parts = ({"name": f"part-{number}", "consumesCounters": COUNTED} for number in range(2))
    counters = [{"name": "set", "counters": {"slices": {"value": "5"}}}]
    with pytest.raises(AssertionError, match=complaint):
        recount(published(SHARED, *parts, sharedCounters=counters), claims)


def test_a_seed_gives_the_same_steps_and_deletes_only_what_it_made() -> None:
    first, again = (list(steps(1, 300, ("p", "q"), 40)) for _ in range(2))
    assert first == again
    living: set[str] = set()
    for step in first:
        if isinstance(step, Create):
            living.add(step.name)
        else:
            living.remove(step.name)
    assert sum(isinstance(step, Delete) for step in first) > 100
    assert {step.pool for step in first if isinstance(step, Create)} == {"p", "q"}
    assert list(steps(2, 300, ("p", "q"), 40)) != first
