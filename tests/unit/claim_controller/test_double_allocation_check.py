"""The second line of defence."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import Capacity, Device, DeviceId
from dray.api.names import DRIVER
from dray_claim_controller.execution.decisions.double_allocation_check import (
    ClaimHolding,
    double_allocation,
)

CARD = DeviceId(DRIVER, "node-1", "gpu-0")
SHARED = Device("gpu-0", capacity={"v": Capacity("100")}, allow_multiple_allocations=True)
WHOLE = Device("gpu-0")


def holding(claim: str, amount: str = "", **fields: Any) -> ClaimHolding:
    consumed = {"v": amount} if amount else {}
    device = AllocatedDevice("r", CARD, consumed=consumed, **fields)
    return ClaimHolding(claim, Allocation((device,), "node-1"))


def test_a_whole_card_goes_to_one_claim() -> None:
    assert double_allocation(holding("a"), [], {CARD: WHOLE}) is None
    assert double_allocation(holding("a"), [holding("a")], {CARD: WHOLE}) is None
    assert "held already" in str(double_allocation(holding("a"), [holding("b")], {CARD: WHOLE}))


def test_shares_are_summed_and_a_claim_counts_once() -> None:
    twice = [holding("b", "50"), holding("b", "50")]

    assert double_allocation(holding("a", "50"), twice, {CARD: SHARED}) is None
    problem = double_allocation(holding("a", "50"), [*twice, holding("c", "1")], {CARD: SHARED})
    assert "101 would be consumed" in str(problem)


def test_names_with_and_without_a_domain_are_one_capacity() -> None:
    other = ClaimHolding(
        "b", Allocation((AllocatedDevice("r", CARD, consumed={f"{DRIVER}/v": "60"}),), "node-1")
    )

    assert double_allocation(holding("a", "50"), [other], {CARD: SHARED}) is not None


def test_a_device_that_nobody_publishes_is_not_allocated() -> None:
    assert "no longer published" in str(double_allocation(holding("a"), [], {}))


def test_administrative_access_takes_nothing() -> None:
    admin = holding("b", admin_access=True)

    assert double_allocation(holding("a"), [admin], {CARD: WHOLE}) is None
    assert double_allocation(admin, [holding("a")], {CARD: WHOLE}) is None


@given(st.lists(st.integers(1, 60), max_size=12))
def test_what_passes_one_after_the_other_never_exceeds_the_card(amounts: list[int]) -> None:
    held: list[ClaimHolding] = []
    for index, amount in enumerate(amounts):
        wanted = holding(str(index), str(amount))
        if double_allocation(wanted, held, {CARD: SHARED}) is None:
            held.append(wanted)
        else:
            assert sum(taken(other) for other in held) + amount > 100

    assert sum(taken(other) for other in held) <= 100


def taken(one: ClaimHolding) -> int:
    return int(one.allocation.devices[0].consumed["v"])
