"""Whether devices are ready for their pod, as the claims' statuses tell."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.kube.convert import claim_from
from dray.kube.object_text import text_of
from dray_claim_controller.cache.cached_objects import CachedResourceClaim
from dray_claim_controller.execution.decisions.binding_conditions import (
    ConditionsFailed,
    ConditionsPending,
    readiness,
)

DECIDED_UNIX_S = 1_700_000_000.0
TEN_YEARS_S = 10 * 365 * 86_400.0
TIMEOUT_S = 600.0


def result(device: str = "nic", share: str = "", **terms: list[str]) -> dict[str, Any]:
    named = {"request": "gpu", "driver": "fabric.dev", "pool": "rack", "device": device}
    return {**named, **({"shareID": share} if share else {}), **terms}


def waits(device: str = "nic", *, share: str = "") -> dict[str, Any]:
    return result(
        device,
        share,
        bindingConditions=["attached", "configured"],
        bindingFailureConditions=["broken"],
    )


def reported(device: str = "nic", *, share: str = "", **conditions: str) -> dict[str, Any]:
    entry = result(device, share)
    del entry["request"]
    entry["conditions"] = [
        {"type": name, "status": status, "reason": "Seen", "message": "by the driver"}
        for name, status in conditions.items()
    ]
    return entry


def claim(
    *results: dict[str, Any], devices: tuple[dict[str, Any], ...] = ()
) -> CachedResourceClaim:
    allocation: dict[str, Any] = {"devices": {"results": list(results)}}
    name = "-".join(one["device"] for one in results)
    obj = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
        "spec": {},
        "status": {"allocation": allocation, "devices": list(devices)},
    }
    return CachedResourceClaim(claim_from(obj), text_of(obj), True, 1, 0)


def ready(
    *claims: CachedResourceClaim, after_s: float = 0.0
) -> ConditionsPending | ConditionsFailed | None:
    now_unix_s = DECIDED_UNIX_S + after_s
    return readiness(
        claims, now_unix_s=now_unix_s, since_unix_s=DECIDED_UNIX_S, timeout_s=TIMEOUT_S
    )


def test_devices_without_conditions_are_ready_at_once() -> None:
    assert ready() is None
    assert ready(claim(result()), after_s=10 * TIMEOUT_S) is None


def test_all_conditions_of_all_devices_must_be_true() -> None:
    first = reported("a", attached="True", configured="True")
    second = reported("b", attached="True", configured="False")
    halfway = ready(claim(waits("a"), waits("b"), devices=(first, second)))
    assert isinstance(halfway, ConditionsPending)
    assert halfway.detail == "device fabric.dev/rack/b lacks the condition configured"
    assert halfway.until_unix_s == DECIDED_UNIX_S + TIMEOUT_S

    done = reported("b", attached="True", configured="True")
    assert ready(claim(waits("a"), waits("b"), devices=(first, done))) is None
    assert ready(claim(waits("a"), devices=(first,)), claim(waits("b"), devices=(done,))) is None


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_condition_that_is_not_true_is_waited_for(status: str) -> None:
    lacking = reported(attached=status, configured="True")

    assert isinstance(ready(claim(waits(), devices=(lacking,))), ConditionsPending)
    assert isinstance(ready(claim(waits())), ConditionsPending), "nothing is reported yet"


def test_a_failure_counts_wherever_it_is_reported() -> None:
    broken = reported("b", broken="True", attached="True", configured="True")
    found = ready(claim(waits("a")), claim(waits("b"), devices=(broken,)))

    assert found == ConditionsFailed(
        "binding-failed",
        "device fabric.dev/rack/b has the condition broken (Seen: by the driver)",
    )
    whole = reported("b", broken="False", attached="True", configured="True")
    assert ready(claim(waits("b"), devices=(whole,))) is None


def test_time_is_up_after_the_decision() -> None:
    waiting = claim(waits())

    assert isinstance(ready(waiting, after_s=TIMEOUT_S - 1), ConditionsPending)
    late = ready(waiting, after_s=TIMEOUT_S)
    assert isinstance(late, ConditionsFailed)
    assert late.reason == "binding-timeout"
    assert late.detail == (
        "after 600 s still device fabric.dev/rack/nic lacks the condition attached, configured"
    )


def test_a_decision_with_a_time_that_is_still_to_come_is_not_waited_for_until_then() -> None:
    assert isinstance(ready(claim(waits()), after_s=-TEN_YEARS_S), ConditionsFailed)


def test_each_share_of_a_device_has_its_own_conditions() -> None:
    one, two = "11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"
    other = reported(share=two, attached="True", configured="True")

    assert isinstance(ready(claim(waits(share=one), devices=(other,))), ConditionsPending)
    assert ready(claim(waits(share=two), devices=(other,))) is None


STATUSES = st.sampled_from(["True", "False", "Unknown", None])
CONDITIONS = st.fixed_dictionaries(dict.fromkeys(("attached", "configured", "broken"), STATUSES))


@given(
    st.lists(st.lists(CONDITIONS, min_size=1, max_size=2), min_size=1, max_size=2),
    st.integers(0, 10_000),
)
def test_ready_are_those_of_which_all_is_true_and_nothing_failed(
    claims: list[list[dict[str, str | None]]], after_s: int
) -> None:
    held, every = [], [device for devices in claims for device in devices]
    for number, devices in enumerate(claims):
        names = [f"{number}-{index}" for index in range(len(devices))]
        statuses = tuple(
            reported(name, **{kind: status for kind, status in one.items() if status is not None})
            for name, one in zip(names, devices, strict=True)
        )
        held.append(claim(*map(waits, names), devices=statuses))

    found = ready(*held, after_s=after_s)

    failed = any(one["broken"] == "True" for one in every)
    true = all(one["attached"] == one["configured"] == "True" for one in every)
    assert (found is None) == (true and not failed)
    assert isinstance(found, ConditionsPending) == (not true and not failed and after_s < TIMEOUT_S)
