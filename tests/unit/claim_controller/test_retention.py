"""What is kept of decision logs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.bus.ports import StoreUse
from dray.bus.store_limit import store_problem
from dray.messages.facts import CheckpointPosition
from dray_claim_controller.logs.decisions.retention import Kept, Retention, is_over, kept

HOUR_S = 3600.0


def checkpoints(*times_s: float) -> tuple[CheckpointPosition, ...]:
    """At these times, a thousand records apart."""
    return tuple(
        CheckpointPosition(sequence=1000 * at, now_unix_s=time_s)
        for at, time_s in enumerate(times_s, 1)
    )


def test_nothing_is_trimmed_before_there_are_two_checkpoints() -> None:
    for known in (checkpoints(), checkpoints(0)):
        assert kept(known, 10**9, 10**6, Retention(0, 0)) == Kept(known, 1)


def test_the_last_two_checkpoints_stay() -> None:
    known = checkpoints(0, 600, 1200)
    assert kept(known, 10**6, 1200, Retention(0, 10**9)) == Kept(known[1:], 2000)


def test_records_stay_for_their_time() -> None:
    known = checkpoints(0, 600, 1200, 1800)
    assert kept(known, 0, 1800, Retention(HOUR_S, 10**9)).first_sequence == 1
    assert kept(known, 0, HOUR_S + 700, Retention(HOUR_S, 10**9)).first_sequence == 2000


def test_a_log_that_is_too_large_loses_its_past_before_its_time() -> None:
    known = checkpoints(0, 600, 1200)
    assert kept(known, 501, 1200, Retention(HOUR_S, 500)) == Kept(known[1:], 2000)


@given(st.lists(st.integers(1, 2000), min_size=2, max_size=60), st.integers(0, 20_000))
def test_a_log_keeps_a_bounded_number_of_checkpoints_and_never_less_than_two(
    apart_s: list[int], keep_for_s: int
) -> None:
    """As the leader sees them: one after the other."""
    keep = Retention(float(keep_for_s), 10**9)
    known: tuple[CheckpointPosition, ...] = ()
    now_s, written, trimmed = 0, [], 1
    for sequence, more_s in enumerate(apart_s, 1):
        now_s += more_s
        written.append(CheckpointPosition(sequence=sequence * 10, now_unix_s=now_s))
        result = kept((*known, written[-1]), 0, now_s, keep)
        known = result.checkpoints
        assert list(known) == sorted(set(known), key=lambda one: one.sequence)
        assert known[-2:] == tuple(written[-2:])
        assert len(known) <= 12
        assert trimmed <= result.first_sequence <= (written[-2].sequence if sequence > 1 else 1)
        trimmed = result.first_sequence
        assert trimmed == 1 or trimmed == known[0].sequence
        young = [one for one in written if now_s - one.now_unix_s < keep_for_s]
        if young and len(young) < len(written):
            assert trimmed <= young[0].sequence


@pytest.mark.parametrize(
    ("epoch", "current", "over"), [(1, 3, True), (2, 3, False), (3, 3, False), (1, 0, False)]
)
def test_the_current_epoch_and_the_one_before_stay(epoch: int, current: int, over: bool) -> None:
    assert is_over(epoch, current) is over


def test_a_store_is_reported_before_it_is_full() -> None:
    assert store_problem(StoreUse(79, 100)) is None
    assert store_problem(StoreUse(10**12, None)) is None
    assert "80 of 100 bytes" in (store_problem(StoreUse(80, 100)) or "")
