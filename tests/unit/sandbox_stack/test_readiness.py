"""Devices that the scheduler stand-in waits for, as kube-scheduler has it."""

from typing import Any

import pytest

from dray_sandbox.scheduler.readiness import (
    TIMEOUT_S,
    BindingError,
    Readiness,
    are_ready,
    readiness_of,
)

Object = dict[str, Any]
SINCE_UNIX_S = 1_767_225_600.0
LATE_UNIX_S = SINCE_UNIX_S + TIMEOUT_S + 1


def result(device: str, *, asked: bool = True) -> Object:
    found = {"request": "r", "driver": "d", "pool": "p", "device": device}
    conditions = {"bindingConditions": ["up", "named"], "bindingFailureConditions": ["broken"]}
    return found | (conditions if asked else {})


def reported(device: str, **conditions: str) -> Object:
    listed = [
        {"type": name, "status": status, "reason": "Why", "message": "so it is"}
        for name, status in conditions.items()
    ]
    return {"driver": "d", "pool": "p", "device": device, "conditions": listed}


def readiness(results: list[Object], *devices: Object, stamp: bool = True) -> Readiness:
    since = {"allocationTimestamp": "2026-01-01T00:00:00Z"} if stamp else {}
    allocation = {"devices": {"results": results}, **since}
    return readiness_of({"allocation": allocation, "devices": list(devices)})


def test_a_claim_without_conditions_is_ready_and_one_without_devices_is_not() -> None:
    plain = readiness([result("a", asked=False)])
    assert (plain.has_conditions, plain.is_ready) == (False, True)
    assert not readiness_of({}).is_ready


@pytest.mark.parametrize(
    ("devices", "ready"),
    [
        ((), False),
        ((reported("a", up="True"),), False),
        ((reported("a", up="True", named="False"),), False),
        ((reported("b", up="True", named="True"),), False),
        ((reported("a", up="True", named="True", broken="False"),), True),
    ],
)
def test_it_is_ready_when_all_its_conditions_are_true(
    devices: tuple[Object, ...], ready: bool
) -> None:
    found = readiness([result("a"), result("x", asked=False)], *devices)
    assert (found.has_conditions, found.is_ready, found.failure) == (True, ready, "")
    assert are_ready([("c", found)], SINCE_UNIX_S) is ready


def test_a_failure_ends_the_waiting_and_gives_the_claim_up() -> None:
    found = readiness([result("a")], reported("a", up="True", named="True", broken="True"))
    assert found.needs_reallocation(SINCE_UNIX_S)
    with pytest.raises(BindingError) as ended:
        are_ready([("mine", found)], SINCE_UNIX_S)
    assert str(ended.value) == (
        'running PreBind plugin "DynamicResources": device binding failed: claim=mine, '
        'reason=Why, message="so it is"'
    )


def test_nobody_sees_what_failed_behind_a_device_that_is_merely_not_ready() -> None:
    found = readiness([result("a"), result("b")], reported("b", broken="True"))
    assert not found.needs_reallocation(SINCE_UNIX_S)
    failed = readiness([result("b")], reported("b", broken="True"))
    assert not are_ready([("a", readiness([result("a")])), ("b", failed)], SINCE_UNIX_S)


def test_time_ends_it_for_devices_that_are_not_ready_alone() -> None:
    ready = readiness([result("a")], reported("a", up="True", named="True"))
    assert not ready.needs_reallocation(LATE_UNIX_S)
    assert are_ready([("c", ready)], LATE_UNIX_S)
    late = readiness([result("a")])
    assert not late.needs_reallocation(SINCE_UNIX_S + TIMEOUT_S)
    assert late.needs_reallocation(LATE_UNIX_S)
    with pytest.raises(BindingError, match="device binding timeout: claim=mine"):
        are_ready([("mine", late)], LATE_UNIX_S)
    assert not readiness([result("a")], stamp=False).needs_reallocation(LATE_UNIX_S)
