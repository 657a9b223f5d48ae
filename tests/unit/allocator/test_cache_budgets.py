"""Caches of what pods say are bounded by what they hold, not by how many they are."""

from typing import Any

import pytest

from dray.api.pods import PodNeeds
from dray_allocator.placement import claim_requirements, pod_request
from dray_allocator.placement.pod_request import PodPatterns
from dray_allocator.values.cache_budget import CacheBudget

KIB = 2**10


def test_an_entry_that_does_not_fit_with_the_others_is_alone_afterwards() -> None:
    room = CacheBudget(100 * KIB)
    assert [room.takes(15 * KIB) for _ in range(5)] == [True, True, False, True, False]
    assert not room.takes(KIB**2), "what is larger than all there is"
    assert not room.takes(1)
    assert room.takes(1)


@pytest.fixture
def patterns(make_world: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """How many patterns are kept of pods that differ in their needs, which say so much each."""

    def kept(count: int, length: int) -> int:
        for module in (pod_request, claim_requirements):
            monkeypatch.setattr(module, "_MOST_BYTES", 1000 * KIB)
        world, kept = make_world().open(), PodPatterns()
        claim = world.a_claim("p", world.ask())
        world.claim(claim)
        for number in range(count):
            needs = PodNeeds(cpu_milli=number, node_selector={"zone": "z" * length})
            pod = world.a_pod("p", needs=needs)
            facts, fleet = world.state.facts, world.state.published
            made = kept.of(facts, fleet, "pool", pod, [claim])
            assert made.needs == needs
            assert kept.of(facts, fleet, "pool", pod, [claim]) is made, "the newest stays"
        return sum(map(len, kept._known.values()))

    return kept


def test_pods_that_say_much_are_remembered_less_long(patterns: Any) -> None:
    assert patterns(200, 10) == 200
    assert 0 < patterns(200, 10 * KIB) <= 32
