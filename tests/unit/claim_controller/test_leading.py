"""Who may take the Lease, and when an epoch is over."""

from dray.api.claims import last_attempt_before
from dray.bus.ports import StreamState
from dray.kube.ports import Object
from dray_claim_controller.cache.stored_pool_status import RememberedLog, remembered_log
from dray_claim_controller.leader.decisions import lease_spec, may_take, observe
from dray_claim_controller.logs.decisions.rules import is_lost, next_epoch


def lease(version: str, holder: str, duration_s: int = 15) -> Object:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration_s}
    return {"metadata": {"resourceVersion": version}, "spec": spec}


def test_a_renewed_lease_is_anothers_until_it_stands_still_for_its_duration() -> None:
    first = observe(lease("1", "other"), None, 100.0)
    assert not may_take(first, "me", 115.0)
    assert may_take(first, "me", 115.1)

    renewed = observe(lease("2", "other"), first, 114.0)
    assert not may_take(renewed, "me", 128.0)


def test_seeing_the_same_state_again_is_not_a_renewal() -> None:
    first = observe(lease("1", "other"), None, 100.0)

    assert observe(lease("1", "other"), first, 114.0) == first


def test_a_free_lease_and_ones_own_may_be_taken_at_once() -> None:
    assert may_take(observe(lease("1", ""), None, 0.0), "me", 0.0)
    assert may_take(observe(lease("1", "me"), None, 0.0), "me", 0.0)


def test_transitions_are_counted() -> None:
    first = lease_spec(None, "a", 15.0, 1_700_000_000.25)
    again = lease_spec({"spec": first}, "a", 15.0, 1_700_000_002.0)
    taken = lease_spec({"spec": again}, "b", 15.0, 1_700_000_020.0)

    assert first["renewTime"] == "2023-11-14T22:13:20.250000Z"
    assert (first["leaseTransitions"], again["leaseTransitions"]) == (0, 0)
    assert again["acquireTime"] == first["acquireTime"]
    assert taken["leaseTransitions"] == 1
    assert taken["leaseDurationSeconds"] == 15


def state(last: int) -> StreamState:
    return StreamState("s", 1, last, "now")


def test_a_log_is_lost_when_it_is_missing_or_shorter_than_somebody_saw() -> None:
    assert is_lost(RememberedLog(1, 5), None, 0)
    assert is_lost(RememberedLog(1, 5), state(4), 0)
    assert is_lost(RememberedLog(1, 5), state(6), 7)
    assert not is_lost(RememberedLog(1, 5), state(5), 5)


def test_the_next_epoch_is_above_all_that_anybody_used() -> None:
    assert next_epoch(RememberedLog(), 0, []) == 1
    assert next_epoch(RememberedLog(2), 0, []) == 3
    assert next_epoch(RememberedLog(), 4, []) == 5
    assert next_epoch(RememberedLog(1), 1, [3_000_001]) == 4
    assert next_epoch(RememberedLog(1), 1, [2_000_000]) == 2


CREATED_UNIX_S = 1_763_750_000.0


def reborn(*inherited: int, published: int = 0) -> int:
    """The first epoch of a pool that has open claims older than it, with these marks."""
    return next_epoch(
        RememberedLog(),
        published,
        inherited,
        inherited=inherited,
        created_unix_s=CREATED_UNIX_S,
    )


def test_a_pool_younger_than_its_open_claims_begins_above_all_former_epochs() -> None:
    """A sleeping executor may hold a decision of any epoch for a claim that shows none."""
    assert reborn(0) == CREATED_UNIX_S
    assert reborn(0, 3_000_000) == CREATED_UNIX_S
    assert reborn(3_000_000, 3_000_001) == CREATED_UNIX_S
    assert reborn(3_000_001) == CREATED_UNIX_S


def test_epochs_are_counted_on_where_their_number_is_known() -> None:
    assert reborn() == 1
    assert reborn(3_000_000, 3_000_000) == 3
    assert reborn(0, 4_000_001, published=4) == 5
    later = int(CREATED_UNIX_S) + 7
    assert reborn(last_attempt_before(later), 0) == later
    known = next_epoch(RememberedLog(2), 0, (0,), inherited=(0,), created_unix_s=CREATED_UNIX_S)
    assert known == 3


def test_a_pool_without_status_has_no_epoch() -> None:
    assert remembered_log({}) == RememberedLog()
    log = {"epoch": 3, "lastSequence": 9, "factsCreated": "noon"}
    assert remembered_log({"status": {"decisionLog": log}}) == RememberedLog(3, 9, "noon")
