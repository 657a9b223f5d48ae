"""The next step of a pod with several claims, some of them taken back."""

from typing import Any

import pytest
from msgspec.structs import replace

from dray_claim_controller.execution.decisions.next_step import BindPod, Done, Stop, next_step

ATTEMPT = 1_000_001


def sibling(make: Any, **fields: Any) -> Any:
    """The pod's other claim, allocated by an earlier decision."""
    held = {"decision": ATTEMPT, "allocation": make.allocation(device="gpu-7"), **fields}
    return replace(make.claim(**held).claim, uid="other", name="other")


def test_a_pod_is_bound_with_a_claim_that_an_earlier_decision_allocated(make: Any) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    observed = make.observed(make.pod(), committed, siblings=(sibling(make),))

    assert isinstance(next_step(observed, make.decision()), BindPod)


@pytest.mark.parametrize("fields", [{"allocation": None}, {"void": ATTEMPT}])
def test_a_pod_whose_other_claim_is_taken_back_is_not_bound(
    make: Any, fields: dict[str, Any]
) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    observed = make.observed(make.pod(), committed, siblings=(sibling(make, **fields),))
    step = next_step(observed, make.decision())

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("sibling-void", True)


def test_what_a_taken_back_claim_still_holds_is_taken_back_together(make: Any) -> None:
    void = sibling(make, void=ATTEMPT)
    step = next_step(make.observed(make.pod(), make.claim(), siblings=(void,)), make.decision())

    assert isinstance(step, Stop)
    assert [(one.uid, one.attempt) for one in step.siblings] == [("other", ATTEMPT)]


def test_a_bound_pod_keeps_what_it_has_whatever_its_other_claim_says(make: Any) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    observed = make.observed(
        make.pod(node="node-1"), committed, siblings=(sibling(make, void=ATTEMPT),)
    )

    assert next_step(observed, make.decision()) == Done()


def test_a_pod_is_not_bound_by_what_it_says_is_taken_back(make: Any) -> None:
    """The claim may be seen as it was before."""
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    step = next_step(make.observed(make.pod(), committed, voids={"c": ATTEMPT}), make.decision())

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("void", True)


def test_what_an_earlier_attempt_left_of_the_same_devices_is_not_taken_for_the_newer(
    make: Any,
) -> None:
    """It is about to be cleared, or was, and this cache of the claim is old."""
    left = make.claim(decision=ATTEMPT, allocation=make.allocation())
    observed = make.observed(make.pod(), left, voids={"c": ATTEMPT})
    step = next_step(observed, make.decision(attempt=ATTEMPT + 1))

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("void", True)


def test_a_newer_attempt_is_bound_whatever_the_pod_says_of_older_ones(make: Any) -> None:
    newer = make.claim(decision=ATTEMPT + 1, void=ATTEMPT, allocation=make.allocation())
    observed = make.observed(make.pod(), newer, voids={"c": ATTEMPT, "gone": ATTEMPT + 7})

    assert isinstance(next_step(observed, make.decision(attempt=ATTEMPT + 1)), BindPod)


def test_a_pod_is_not_bound_with_a_claim_whose_attempt_it_records_as_void(make: Any) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    observed = make.observed(
        make.pod(), committed, siblings=(sibling(make),), voids={"other": ATTEMPT}
    )
    step = next_step(observed, make.decision())

    assert isinstance(step, Stop)
    assert step.reason == "sibling-void"


def test_a_bound_pod_keeps_what_it_has_whatever_it_says_itself(make: Any) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    observed = make.observed(make.pod(node="node-1"), committed, voids={"c": ATTEMPT})

    assert next_step(observed, make.decision()) == Done()
