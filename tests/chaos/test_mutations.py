"""The simulation notices a dray that lacks one of its protections, within sixteen seeds each.

Each mutation takes one line of defence away; each is met by the fault made for it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

import pytest
from tests.mutations import Mutation, allocator_forgetting_reservations, executor_ignoring_void

from dray.bus.memory_store import MemoryStream
from dray.bus.ports import Fence
from dray.messages.base import Outgoing
from dray_allocator.state.domain import Reservation, Stage
from tools.simulation.run import Size, simulate

SEEDS = range(16)


def log_without_fence() -> AbstractContextManager[Any]:
    """Any replica may append, whatever it has folded."""

    def append(
        self: MemoryStream,
        message: Outgoing,
        expected_last: int,
        *,
        identity: str = "",
        after: str = "",
    ) -> int:
        return self.store(message, deduplicate=False)

    return mock.patch.object(MemoryStream, "append", append)


def facts_without_fence() -> AbstractContextManager[Any]:
    """Facts of a leader that was replaced are stored."""

    def publish(self: MemoryStream, message: Outgoing, fence: Fence | None) -> int:
        return self.store(message, deduplicate=True)

    return mock.patch.object(MemoryStream, "publish", publish)


def executor_without_second_line() -> AbstractContextManager[Any]:
    """Writes whatever was decided."""
    return mock.patch(
        "dray_claim_controller.execution.decisions.in_flight_allocations.double_allocation",
        return_value=None,
    )


def checkpoints_without_reservations() -> AbstractContextManager[Any]:
    """They have what is committed alone."""

    def is_needed(_: object, reservation: Reservation) -> bool:
        return reservation.stage is Stage.COMMITTED

    return mock.patch("dray_allocator.cycle.records._is_needed", is_needed)


def failures(size: Size, *mutations: Mutation) -> Iterator[list[str]]:
    """Of each seed."""
    with ExitStack() as stack:
        for mutate in mutations:
            stack.enter_context(mutate())
        for seed in SEEDS:
            yield simulate(seed, size).failures


@pytest.mark.parametrize(
    ("mutation", "fault"),
    [
        (log_without_fence, "concurrent_allocators"),
        (facts_without_fence, "pause_before_publish"),
        (executor_ignoring_void, "delay_claim_patch"),
        (checkpoints_without_reservations, "delay_claim_patch"),
        (allocator_forgetting_reservations, "concurrent_allocators"),
    ],
)
def test_a_missing_protection_is_noticed(mutation: Mutation, fault: str) -> None:
    assert any(failures(Size(only=(fault,)), mutation))


def test_without_the_second_line_of_defence_a_wrong_decision_sells_a_device_twice() -> None:
    """By Kubernetes' objects alone; alarms count for nothing here."""
    size = Size(only=("concurrent_allocators",), ignore_alarms=True)
    broken = failures(size, allocator_forgetting_reservations, executor_without_second_line)
    assert any("DOUBLE ALLOCATION" in failure for found in broken for failure in found)


def test_with_it_a_wrong_decision_sells_nothing_twice() -> None:
    small = Size(
        pods=12, faults=4, seconds=15.0, only=("concurrent_allocators",), ignore_alarms=True
    )
    found = next(failures(small, allocator_forgetting_reservations))
    assert not any("DOUBLE ALLOCATION" in failure for failure in found)
