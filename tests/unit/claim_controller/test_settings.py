"""Settings: every wrong one is named, and the process does not start."""

import pytest

from dray.runtime.settings import load
from dray_allocator.values.options import AllocatorOptions
from dray_claim_controller.settings import ControllerSettings, Lease


def test_lease_times_must_be_ordered() -> None:
    assert ControllerSettings(instance="i").lease.duration == 15.0
    with pytest.raises(ValueError, match="duration > renew_deadline > retry"):
        Lease(duration=5.0, renew_deadline=10.0, retry=2.0)


def test_an_attempt_is_given_up_with_a_reason_before_allocators_void_it_without_one() -> None:
    execution = ControllerSettings(instance="i").execution
    assert execution.give_up_after < AllocatorOptions().uncommitted_after_s


def test_durations_have_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_EXECUTION__WITHDRAW_AFTER", "1m30s")

    assert load(ControllerSettings).execution.withdraw_after == 90.0


def test_all_wrong_settings_are_named_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAY_LEASE__DURATION", "ten")
    monkeypatch.setenv("DRAY_EXECUTION__CONCURRENCY", "0")
    with pytest.raises(SystemExit) as stopped:
        load(ControllerSettings)

    output = capsys.readouterr().err
    assert stopped.value.code == 2
    assert "DRAY_LEASE__DURATION is 'ten'" in output
    assert "DRAY_EXECUTION__CONCURRENCY is '0'" in output
