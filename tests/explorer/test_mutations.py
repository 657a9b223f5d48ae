"""The explorer notices a dray that lacks one of its protections, and shows the way there."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest
from tests.mutations import Mutation, allocator_forgetting_reservations, executor_ignoring_void

from dray.api.pods import Pod
from dray_allocator.cycle import ended_reservations
from dray_allocator.state import pending_allocations
from dray_claim_controller.execution.decisions import next_step as rules
from dray_claim_controller.execution.decisions.joint_step import JointStep
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.groups.decisions.rules import DueForGroup, GroupActions
from tools.model_checker.bounds import (
    CHECKPOINTS,
    CRASH,
    GANG,
    GANG_LAGGING_VOIDS,
    GANG_LAGGING_VOIDS_ONE,
    GANG_REPLACED_ONCE,
    GROUP,
    GROUP_LOSS,
    LAGGING_VOIDS,
    REFUSED,
    REFUSED_STATUS,
    TIME,
    Bound,
    PodKind,
)
from tools.model_checker.search import SearchOutcome, explore
from tools.model_checker.state import ModelBus

RIVALS = Bound("rivals", (PodKind("P", (312,)), PodKind("Q", (312,), late=True)), ("n0",))
FOLLOWERS = Bound("followers", (PodKind("P", (156,)), PodKind("Q", (156,), late=True)))


def writes_without_revision() -> AbstractContextManager[Any]:
    """Writes to whatever the claim has become since it was read."""
    return mock.patch("dray_claim_controller.execution.writes._fence", return_value={})


def reservations_that_expire() -> AbstractContextManager[Any]:
    """Releases after 30 s what nobody has voided."""
    real = pending_allocations.end_of

    def end_of(*about: Any) -> Any:
        end = real(*about)
        return (
            pending_allocations.AttemptEnd("voided")
            if isinstance(end, pending_allocations.VoidRequest)
            else end
        )

    return mock.patch("dray_allocator.cycle.ended_reservations.end_of", end_of)


def siblings_not_looked_at() -> AbstractContextManager[Any]:
    """Binds a pod for whose other claims an earlier decision has cared."""
    return mock.patch.object(rules, "_siblings_stop", return_value=None)


def bindings_without_revision() -> AbstractContextManager[Any]:
    """Binds a pod whatever its current annotations say."""

    async def bind(writes: ExecutionWrites, pod: Pod, node: str, _: Any = None) -> None:
        await writes._kube.bind(pod.name, pod.namespace, uid=pod.uid, node=node)

    return mock.patch.object(ExecutionWrites, "bind", bind)


def pods_without_void() -> AbstractContextManager[Any]:
    """Clears what a pod may be bound by."""
    return mock.patch(
        "dray_claim_controller.execution.decisions.rollback_rules.pod_void_annotation",
        return_value="",
    )


def pods_not_heard() -> AbstractContextManager[Any]:
    """Binds a pod by what it says is taken back."""
    return mock.patch(
        "dray_claim_controller.execution.decisions.next_step.voids_of", return_value={}
    )


def pods_bound_after_their_first_claim() -> AbstractContextManager[Any]:
    """Executes half a decision."""
    real = rules.next_step

    def step(observed: rules.Observed, decision: Any) -> Any:
        seen = observed.claims.get(decision.claims[0].uid)
        held = seen is not None and seen.claim.allocation is not None
        return rules.BindPod() if held and observed.pod else real(observed, decision)

    return mock.patch("dray_claim_controller.execution.decisions.next_step.next_step", step)


def claims_given_up_whatever_they_say() -> AbstractContextManager[Any]:
    """Gives the devices of a claim back that somebody may be about to commit."""
    checked = "dray_claim_controller.cache.abandoned_attempts.may_be_committed"
    return mock.patch(checked, return_value=False)


def reasons_without_the_claim() -> AbstractContextManager[Any]:
    """Keeps devices for a claim that can't be written, and does not say so."""
    return mock.patch("dray_allocator.explain.pods._held_devices", return_value=())


def voids_counted_only_where_written() -> AbstractContextManager[Any]:
    """Keeps the devices of what was given up."""
    counted = "dray_claim_controller.cache.object_cache.with_void"
    return mock.patch(counted, side_effect=lambda claim, _: claim)


def pods_without_reasons() -> AbstractContextManager[Any]:
    """Lets pods wait without a word."""
    return mock.patch("dray_allocator.cycle.step.Step._wait", return_value=None)


def void_claims_not_released() -> AbstractContextManager[Any]:
    """Keeps for ever what was voided."""
    real = ended_reservations.due_releases
    return mock.patch("dray_allocator.cycle.step.due_releases", lambda *of: ((), real(*of)[1]))


def checkpoints_without_reservations() -> AbstractContextManager[Any]:
    """Forgets at a checkpoint which devices claims have."""
    return mock.patch("dray_allocator.cycle.records._is_needed", return_value=False)


def groups_bound_one_by_one() -> AbstractContextManager[Any]:
    """Binds a pod of a group without waiting for the devices of the others."""
    return mock.patch.object(JointStep, "answer", return_value=rules.GO)


def groups_decided_one_by_one() -> AbstractContextManager[Any]:
    """Gives each pod of a group what it fits."""
    met = property(lambda _: True)
    return mock.patch("dray_allocator.gangs.membership.Membership.is_met", met)


def groups_without_deadline() -> AbstractContextManager[Any]:
    """Lets what is left of a group run."""
    return mock.patch.object(DueForGroup, "answer", return_value=GroupActions())


def nothing() -> AbstractContextManager[Any]:
    """All of dray."""
    return nullcontext()


@pytest.mark.parametrize(
    ("mutation", "bus", "bound", "found"),
    [
        (nothing, ModelBus(fenced=False), CRASH, "is decided after"),
        (nothing, ModelBus(chained=False), FOLLOWERS, "is decided after"),
        (executor_ignoring_void, ModelBus(), LAGGING_VOIDS, "although it voids attempts"),
        (writes_without_revision, ModelBus(), LAGGING_VOIDS, "although it voids attempts"),
        (allocator_forgetting_reservations, ModelBus(), RIVALS, "has 312, and 624 are allocated"),
        (reservations_that_expire, ModelBus(), TIME, "may still be carried out"),
        (siblings_not_looked_at, ModelBus(), GANG_LAGGING_VOIDS, "without an allocation of"),
        (bindings_without_revision, ModelBus(), GANG_LAGGING_VOIDS_ONE, "without an allocation of"),
        (pods_without_void, ModelBus(), GANG_LAGGING_VOIDS_ONE, "without an allocation of"),
        (pods_without_void, ModelBus(), GANG_REPLACED_ONCE, "without an allocation of"),
        (pods_not_heard, ModelBus(), GANG_LAGGING_VOIDS_ONE, "without an allocation of"),
        (pods_bound_after_their_first_claim, ModelBus(), GANG, "without an allocation of"),
        (nothing, ModelBus(leased=False), REFUSED, "their devices given back"),
        (claims_given_up_whatever_they_say, ModelBus(), REFUSED, "their devices given back"),
        (
            reasons_without_the_claim,
            ModelBus(),
            REFUSED_STATUS,
            "lacks the claim it waits for",
        ),
        (voids_counted_only_where_written, ModelBus(), REFUSED, "is never released"),
        (pods_without_reasons, ModelBus(), TIME, "neither scheduled nor has an explanation"),
        (void_claims_not_released, ModelBus(), LAGGING_VOIDS, "is never released"),
        (checkpoints_without_reservations, ModelBus(), CHECKPOINTS, "is decided after"),
        (groups_bound_one_by_one, ModelBus(), GROUP, "was never allocated"),
        (groups_decided_one_by_one, ModelBus(), GROUP, "1 pods of the group run"),
        (groups_without_deadline, ModelBus(), GROUP_LOSS, "1 pods of the group run"),
    ],
)
def test_a_missing_protection_is_noticed(
    mutation: Mutation, bus: ModelBus, bound: Bound, found: str
) -> None:
    outcome = searched(mutation, bus, bound)

    assert found in outcome.violation, outcome.report()
    assert outcome.trace


def test_the_way_to_what_is_wrong_is_the_shortest_and_in_words() -> None:
    outcome = searched(allocator_forgetting_reservations, ModelBus(), RIVALS)

    assert len(outcome.trace) == 7
    reported = "\n".join(outcome.trace)
    assert "sends: decided P on n0 (P1 attempt 1), Q on n0 (Q1 attempt 1)" in reported
    assert outcome.trace[-1].endswith("an executor of Q on n0 (Q1 attempt 1): commit Q1")


def searched(mutation: Mutation, bus: ModelBus, bound: Bound) -> SearchOutcome:
    with mutation():
        return explore(bound, bus)
