"""A decision log, folded into open work."""

from typing import Any

from msgspec.structs import replace

from dray.messages.decisions import (
    AnyRecord,
    Checkpoint,
    Decided,
    NodeLeft,
    PodDecision,
    Release,
    Released,
    Waiting,
)
from dray.reasons import Reason
from dray_claim_controller.execution.executions import DecisionVersions, OpenExecutions

COMMON: dict[str, Any] = {
    "domain": "p",
    "epoch": 1,
    "writer": "t",
    "facts_sequence": 1,
    "now_unix_s": 0.0,
}


def decided(*pods: PodDecision) -> Decided:
    return Decided(**COMMON, policy_version=0, pods=pods)


def released(why: str, attempt: int = 1_000_001) -> Released:
    return Released(**COMMON, releases=(Release(claim_uid="c", attempt=attempt, why=why),))


def folded(*records: AnyRecord) -> OpenExecutions:
    executions = OpenExecutions("p", 1)
    for sequence, record in enumerate(records, start=1):
        executions.fold(sequence, record)
    return executions


def test_a_decision_is_open_until_it_is_finished(make: Any) -> None:
    executions = folded(decided(make.decision()))
    assert list(executions.open) == ["p"]

    executions.finish("p", 1_000_001)
    assert not executions.open


def test_an_order_knows_what_its_decision_was_taken_by_where_the_record_is_at_hand(
    make: Any,
) -> None:
    record = replace(decided(make.decision()), policy_version=2, learned_version=7)
    summed_up = Checkpoint(**COMMON, in_flight=(make.decision(),))

    assert folded(record).open["p"].by == DecisionVersions(2, 7)
    assert folded(record, summed_up).open["p"].by == DecisionVersions(2, 7)
    assert folded(summed_up).open["p"].by is None


def test_a_committed_release_keeps_the_order_because_the_binding_may_be_missing(make: Any) -> None:
    executions = folded(decided(make.decision()), released("committed"))

    assert executions.open["p"].committed == frozenset("c")


def test_a_void_release_closes_the_order(make: Any) -> None:
    assert not folded(decided(make.decision()), released("voided")).open


def test_an_old_release_does_not_close_a_newer_decision(make: Any) -> None:
    newer = make.decision(attempt=1_000_002)
    executions = folded(decided(make.decision()), decided(newer), released("voided"))

    assert executions.open["p"].decision is newer
    executions.finish("p", 1_000_001)
    assert executions.open["p"].decision is newer


def test_a_record_folded_twice_changes_nothing(make: Any) -> None:
    executions = folded(decided(make.decision()), released("voided"))
    executions.fold(1, decided(make.decision()))

    assert not executions.open
    assert executions.sequence == 2


def test_a_checkpoint_brings_what_is_in_flight(make: Any) -> None:
    executions = folded(Checkpoint(**COMMON, in_flight=(make.decision(),)))

    assert list(executions.open) == ["p"]


def test_waiting_lasts_until_the_decision(make: Any) -> None:
    reasons = (Reason("capacity", "virtual_vram", 2, 2),)
    waiting = Waiting(**COMMON, pod_uid="p", namespace="ns", name="pod", reasons=reasons)

    assert list(folded(waiting).waiting) == ["p"]
    assert not folded(waiting, decided(make.decision())).waiting


def test_the_highest_departure_of_a_node_counts() -> None:
    executions = folded(
        NodeLeft(**COMMON, node="n", node_revision=9),
        NodeLeft(**COMMON, node="n", node_revision=4),
    )

    assert executions.left == {"n": 9}
