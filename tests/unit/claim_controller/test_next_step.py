"""The state machine of an execution, step by step."""

from typing import Any

import pytest

from dray.api.names import OWNER_KUBE_SCHEDULER
from dray_claim_controller.execution.decisions.binding_conditions import (
    ConditionsFailed,
    ConditionsPending,
)
from dray_claim_controller.execution.decisions.next_step import (
    AwaitDevices,
    AwaitWatch,
    BindPod,
    Commit,
    Done,
    LiftGate,
    Mark,
    Stop,
    next_step,
)

ATTEMPT = 1_000_001


def test_the_steps_of_a_pod_that_dray_binds(make: Any) -> None:
    decision = make.decision()
    pod = make.pod()

    bare = make.claim(protected=False)
    assert isinstance(next_step(make.observed(pod, bare), decision), Mark)
    marked = make.claim(decision=ATTEMPT)
    assert isinstance(next_step(make.observed(pod, marked), decision), Commit)
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    assert isinstance(next_step(make.observed(pod, committed), decision), BindPod)
    bound = make.pod(node="node-1")
    assert next_step(make.observed(bound, committed), decision) == Done()


def test_the_steps_of_a_gated_pod(make: Any) -> None:
    decision = make.decision(binder=OWNER_KUBE_SCHEDULER)
    gated = make.pod(gated=True, scheduler="default-scheduler")
    allocation = make.allocation()

    apply_response = make.claim(decision=ATTEMPT, allocation=allocation, revision=12, watched=10)
    assert next_step(make.observed(gated, apply_response), decision) == AwaitWatch()
    watched = make.claim(decision=ATTEMPT, allocation=allocation, revision=12, watched=12)
    assert next_step(make.observed(gated, watched), decision) == LiftGate()
    lifted = make.pod(scheduler="default-scheduler")
    assert next_step(make.observed(lifted, watched), decision) == Done()


def test_a_mark_without_finalizer_is_made_again(make: Any) -> None:
    claim = make.claim(protected=False, decision=ATTEMPT)

    assert isinstance(next_step(make.observed(make.pod(), claim), make.decision()), Mark)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"void": ATTEMPT}, "void"),
        ({"void": ATTEMPT + 5}, "void"),
        ({"decision": ATTEMPT + 1}, "superseded"),
        ({"deleting": True}, "claim-deleting"),
    ],
)
def test_a_claim_that_says_no_is_not_committed(
    make: Any, fields: dict[str, Any], reason: str
) -> None:
    step = next_step(make.observed(make.pod(), make.claim(**fields)), make.decision())

    assert isinstance(step, Stop)
    assert step.reason == reason


def test_an_attempt_that_is_given_up_is_not_committed(make: Any) -> None:
    marked = make.claim(decision=ATTEMPT)
    given_up = {marked.claim.uid: ATTEMPT}
    step = next_step(make.observed(make.pod(), marked, given_up=given_up), make.decision())

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("void", True)


def test_an_allocation_of_somebody_else_is_never_overwritten(make: Any) -> None:
    other = make.claim(allocation=make.allocation(device="gpu-7"))
    step = next_step(make.observed(make.pod(), other), make.decision())

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("allocated-otherwise", False)
    assert "gpu-7" in step.detail


def test_amounts_are_compared_as_quantities(make: Any) -> None:
    claim = make.claim(
        decision=ATTEMPT, allocation=make.allocation(consumed={"virtual_tflops": "100000m"})
    )

    assert isinstance(next_step(make.observed(make.pod(), claim), make.decision()), BindPod)


def test_a_record_of_an_older_epoch_is_ignored(make: Any) -> None:
    step = next_step(make.observed(make.pod(), make.claim(), epoch=2), make.decision())

    assert isinstance(step, Stop)
    assert step.reason == "old-epoch"


def test_what_an_older_epoch_committed_is_finished(make: Any) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())

    step = next_step(make.observed(make.pod(), committed, epoch=2), make.decision())
    assert isinstance(step, BindPod)


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (None, "pod-gone"),
        ({"uid": "another"}, "pod-gone"),
        ({"deleting": True}, "pod-ended"),
        ({"phase": "Failed"}, "pod-ended"),
        ({"node": "node-9"}, "bound-elsewhere"),
    ],
)
def test_a_pod_that_cannot_use_it_stops_the_execution(
    make: Any, pod: dict[str, Any] | None, reason: str
) -> None:
    seen = None if pod is None else make.pod(**pod)
    step = next_step(make.observed(seen, make.claim()), make.decision())

    assert isinstance(step, Stop)
    assert step.reason == reason


def test_a_missing_claim_stops_the_execution(make: Any) -> None:
    step = next_step(make.observed(make.pod()), make.decision())

    assert isinstance(step, Stop)
    assert step.reason == "claim-gone"


def test_what_was_committed_once_is_never_committed_again_by_the_same_attempt(make: Any) -> None:
    cleared = make.claim(decision=ATTEMPT)
    step = next_step(make.observed(make.pod(), cleared, committed=frozenset("c")), make.decision())

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("cleared", True)


def test_a_mark_of_an_earlier_execution_is_not_trusted_once_the_gate_is_lifted(make: Any) -> None:
    """kube-scheduler may have cleared the allocation in between: PostFilter."""
    decision = make.decision(binder=OWNER_KUBE_SCHEDULER)
    lifted = make.pod(scheduler="default-scheduler")
    marked = make.claim(decision=ATTEMPT)

    found = next_step(make.observed(lifted, marked), decision)
    own = next_step(make.observed(lifted, marked, marked=frozenset("c")), decision)

    assert isinstance(found, Stop)
    assert isinstance(own, Commit)


def test_a_running_pods_void_claim_is_left_alone(make: Any) -> None:
    running = make.pod(node="node-1")
    claim = make.claim(decision=ATTEMPT, void=ATTEMPT, allocation=make.allocation())

    assert next_step(make.observed(running, claim), make.decision()) == Done()


def test_a_pod_is_bound_once_its_devices_are_ready(make: Any) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    unready = ConditionsPending("device d lacks the condition attached", 700.0)

    def step(devices: ConditionsPending | ConditionsFailed | None, **pod: Any) -> Any:
        return next_step(
            make.observed(make.pod(**pod), committed, devices=devices), make.decision()
        )

    assert step(unready) == AwaitDevices(unready.detail, 700.0)
    assert step(None) == BindPod()
    assert step(unready, node="node-1") == Done(), "somebody has bound it already"


def test_devices_that_never_get_ready_are_taken_back_with_what_the_pod_had_before(
    make: Any,
) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    earlier = make.claim(
        uid="e", name="earlier", decision=ATTEMPT, allocation=make.allocation("gpu-1")
    )
    failed = ConditionsFailed("binding-failed", "device d has the condition broken")
    observed = make.observed(make.pod(), committed, siblings=(earlier.claim,), devices=failed)

    step = next_step(observed, make.decision())

    assert isinstance(step, Stop)
    assert (step.reason, step.detail, step.withdraw) == (failed.reason, failed.detail, True)
    assert [made.name for made in step.siblings] == ["earlier"]


def test_where_kube_scheduler_binds_it_waits_for_the_devices_itself(make: Any) -> None:
    gated = make.pod(gated=True, scheduler="default-scheduler")
    allocation = make.allocation()
    watched = make.claim(decision=ATTEMPT, allocation=allocation, revision=12, watched=12)
    unready = ConditionsPending("device d lacks the condition attached", None)

    step = next_step(
        make.observed(gated, watched, devices=unready), make.decision(binder=OWNER_KUBE_SCHEDULER)
    )

    assert step == LiftGate()


def test_devices_are_not_waited_for_on_a_node_that_is_gone(make: Any) -> None:
    committed = make.claim(decision=ATTEMPT, allocation=make.allocation())
    unready = ConditionsPending("device d lacks the condition attached", 700.0)

    step = next_step(
        make.observed(make.pod(), committed, devices=unready, node_gone=True), make.decision()
    )

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("node-gone", True)
