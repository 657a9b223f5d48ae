"""The second line of defence, for devices that share counters."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray.kube.convert import slice_from
from dray.kube.ports import CLAIMS, SLICES, Changed
from dray.messages.decisions import ClaimDecision
from dray_claim_controller.cache.counters import SharedCounters, shared_counters
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.snapshot import restore_snapshot, take_snapshot
from dray_claim_controller.execution.decisions.double_allocation_check import (
    ClaimHolding,
    overdrawn_counter,
)
from dray_claim_controller.execution.decisions.in_flight_allocations import CommitCheck

DRIVER, NODE = "gpu.nvidia.com", "node-1"
KEY = (DRIVER, NODE)
TOO_MUCH = f"is 40Gi, and {60 * 2**30} of it would be consumed"


def counters_of(obj: dict[str, Any]) -> SharedCounters | None:
    return shared_counters(slice_from(obj))


def partition(name: str, memory: str, card: str = "gpu-0") -> dict[str, Any]:
    uses = {"counterSet": card, "counters": {"memory": {"value": memory}}}
    return {"name": name, "consumesCounters": [uses]}


def published(name: str, *, generation: int = 1, **spec: Any) -> dict[str, Any]:
    pool = {"name": NODE, "generation": generation, "resourceSliceCount": 2}
    metadata = {"name": name, "uid": name, "resourceVersion": str(generation)}
    return {
        "metadata": metadata,
        "spec": {"driver": DRIVER, "nodeName": NODE, "pool": pool, **spec},
    }


def sets(memory: str = "40Gi", **fields: Any) -> dict[str, Any]:
    one = {"name": "gpu-0", "counters": {"memory": {"value": memory}}}
    return published("sets", sharedCounters=[one], **fields)


PARTS = [partition("a", "20Gi"), partition("b", "20Gi"), partition("whole", "40Gi")]


def pool(memory: str = "40Gi") -> dict[tuple[str, str], SharedCounters]:
    card, parts = counters_of(sets(memory)), counters_of(published("parts", devices=PARTS))
    assert card is not None
    assert parts is not None
    return {KEY: SharedCounters(card.sets, parts.uses)}


def holding(claim: str, *devices: str, **fields: Any) -> ClaimHolding:
    results = tuple(AllocatedDevice("r", DeviceId(*KEY, name), **fields) for name in devices)
    return ClaimHolding(claim, Allocation(results, NODE))


def test_partitions_of_a_card_fit_together_or_not() -> None:
    assert overdrawn_counter(holding("p", "a"), [holding("q", "b")], pool()) is None
    problem = overdrawn_counter(holding("p", "whole"), [holding("q", "b")], pool())
    assert problem == f"counter memory of gpu-0 of pool gpu.nvidia.com/node-1 {TOO_MUCH}"


def test_a_claim_counts_by_its_last_word_and_never_against_itself() -> None:
    twice = [holding("q", "whole"), holding("q", "b")]

    assert overdrawn_counter(holding("p", "a"), twice, pool()) is None
    assert overdrawn_counter(holding("p", "a"), [holding("p", "whole")], pool()) is None
    assert overdrawn_counter(holding("p", "a"), [holding("q", "a")], pool("20Gi")) is None, (
        "one device"
    )


def test_administrative_access_takes_nothing_of_counters() -> None:
    admin = holding("q", "whole", admin_access=True)

    assert overdrawn_counter(holding("p", "a"), [admin], pool()) is None
    assert overdrawn_counter(admin, [holding("p", "a")], pool()) is None


def test_what_is_not_published_has_no_say() -> None:
    parts = counters_of(published("parts", devices=PARTS))
    assert parts is not None

    assert overdrawn_counter(holding("p", "a", "b", "whole"), [], {KEY: parts}) is None
    assert overdrawn_counter(holding("p", "a", "b", "whole"), [], {}) is None
    assert counters_of(published("plain", devices=[{"name": "a"}])) is None


@given(st.lists(st.integers(1, 30), max_size=8))
def test_what_passes_one_after_the_other_never_exceeds_a_counter(takes: list[int]) -> None:
    names = [f"part-{index}" for index in range(len(takes))]
    parts = [partition(name, f"{take}Gi") for name, take in zip(names, takes, strict=True)]
    card, uses = counters_of(sets()), counters_of(published("parts", devices=parts))
    assert card is not None
    pools = {KEY: SharedCounters(card.sets, uses.uses if uses is not None else {})}
    held: list[ClaimHolding] = []
    total = 0
    for name, take in zip(names, takes, strict=True):
        fits = overdrawn_counter(holding(name, name), held, pools) is None
        assert fits == (total + take <= 40)
        if fits:
            held.append(holding(name, name))
            total += take


def seen(*claims: tuple[str, str]) -> ObjectCache:
    """A picture of the card, its partitions, and of claims with what they hold."""
    cache = ObjectCache()
    cache.apply(SLICES, Changed(sets()))
    cache.apply(SLICES, Changed(published("parts", devices=PARTS)))
    for revision, (name, device) in enumerate(claims, 10):
        result = {"request": "r", "driver": DRIVER, "pool": NODE, "device": device}
        obj = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": name,
                "resourceVersion": str(revision),
            },
            "spec": {},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
        cache.apply(CLAIMS, Changed(obj))
    return cache


def problem(cache: ObjectCache, device: str, *in_flight: ClaimHolding) -> str:
    wanted = holding("p", device).allocation
    decided = ClaimDecision(uid="p", namespace="ns", name="p", attempt=1, allocation=wanted)
    answers = [
        CommitCheck(claim=decided, in_flight=in_flight).answer(one)
        for one in (cache, restore_snapshot(take_snapshot(cache)))
    ]
    assert answers[0] == answers[1], "a picture taken out of a journal says the same"
    return str(answers[0].problem)


def test_before_a_commit_counters_are_held_against_statuses_and_own_writes() -> None:
    assert problem(seen(), "whole") == "None"
    assert TOO_MUCH in problem(seen(("q", "b")), "whole")
    assert problem(seen(("q", "b")), "a") == "None"
    assert TOO_MUCH in problem(seen(), "whole", holding("q", "b"))
    assert f"{80 * 2**30} of it" in problem(seen(("q", "b")), "whole", holding("r", "a"))


def test_the_newest_generation_of_a_pool_counts() -> None:
    cache = seen(("q", "b"))
    cache.apply(SLICES, Changed(sets("80Gi", generation=2)))
    assert problem(cache, "whole") == "None", "its devices are not published again yet"

    cache.apply(SLICES, Changed(published("parts", generation=2, devices=PARTS)))
    assert problem(cache, "whole") == "None"
    cache.apply(SLICES, Changed(sets("40Gi", generation=3)))
    cache.apply(SLICES, Changed(published("parts", generation=3, devices=PARTS)))
    assert TOO_MUCH in problem(cache, "whole")
