"""A decision log, folded into open work."""

from typing import Any

from msgspec.structs import replace

from dray.messages.decisions import (
    AnyRecord,
    Checkpoint,
    CheckpointPart,
    Decided,
    LeftNode,
    NodeLeft,
    PodDecision,
    Release,
    Released,
    ReservedClaim,
    Waiting,
)
from dray.reasons import Reason
from dray_claim_controller.execution.decisions.executions import DecisionVersions, OpenExecutions

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


def checkpoint(*pods: PodDecision, stage: Any = "held", **fields: Any) -> Checkpoint:
    reserved = tuple(
        ReservedClaim(uid=claim.uid, attempt=claim.attempt, decided_unix_s=7.0, stage=stage)
        for pod in pods
        for claim in pod.claims
    )
    known = {"part": 1, "parts": 1, "in_flight": pods, "reserved": reserved}
    return Checkpoint(**COMMON, **(known | fields))


def folded(*records: AnyRecord, first: int = 1) -> OpenExecutions:
    """``first``: sequence of the first record that the log has."""
    executions = OpenExecutions("p", 1)
    for sequence, record in enumerate(records, start=first):
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
    summed_up = checkpoint(make.decision())

    assert folded(record).open["p"].by == DecisionVersions(2, 7)
    assert folded(record, summed_up).open["p"].by == DecisionVersions(2, 7)
    assert folded(summed_up, first=2).open["p"].by is None


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


def test_a_log_that_begins_with_a_checkpoint_has_what_is_in_flight(make: Any) -> None:
    executions = folded(checkpoint(make.decision()), first=9)

    assert list(executions.open) == ["p"]
    assert executions.open["p"].decided_unix_s == 7.0
    committed = folded(checkpoint(make.decision(), stage="committed"), first=9)
    assert committed.open["p"].committed == frozenset("c")


def test_a_checkpoint_opens_nothing_again_for_its_readers_of_all_records(make: Any) -> None:
    executions = folded(decided(make.decision()))
    executions.finish("p", 1_000_001)

    assert not executions.fold(2, checkpoint(make.decision()))
    assert not executions.open


def test_a_decision_of_which_a_claim_was_voided_is_not_open_after_a_checkpoint(make: Any) -> None:
    assert not folded(checkpoint(make.decision(), reserved=()), first=9).open


def test_nothing_of_a_checkpoint_counts_before_its_last_part(make: Any) -> None:
    whole = checkpoint(make.decision(), parts=2)
    rest = CheckpointPart(
        **COMMON, part=2, parts=2, left_nodes=(LeftNode(node="n", node_revision=9),)
    )
    executions = OpenExecutions("p", 1)

    assert not executions.fold(9, whole)
    assert not executions.open
    assert executions.fold(10, rest)
    assert list(executions.open) == ["p"]
    assert executions.left == {"n": 9}
    assert [one.sequence for one in executions.checkpoints] == [9]


def test_a_checkpoint_that_its_writer_did_not_finish_counts_for_nothing(make: Any) -> None:
    whole = checkpoint(make.decision(), parts=2)
    other = released("voided")
    rest = CheckpointPart(**COMMON, part=2, parts=2)
    executions = folded(whole, other, rest, first=9)

    assert not executions.open
    assert executions.checkpoints == ()


def test_a_reader_whose_next_record_was_trimmed_begins_with_the_checkpoint(make: Any) -> None:
    gone, kept = make.decision(), replace(make.decision(), pod_uid="q")
    executions = folded(decided(gone))

    assert executions.fold(50, checkpoint(kept))
    assert list(executions.open) == ["q"]


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
