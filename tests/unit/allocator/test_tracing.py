"""Decisions of sampled pods are spans; the one that places a pod tells how long it waited."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.tracing import spans, traced

from dray.api.claims import Allocation
from dray.api.groups import VOLCANO
from dray.api.pods import GroupKey
from dray.bus.ports import StaleSequenceError
from dray.messages.decisions import (
    AnyRecord,
    ClaimDecision,
    Decided,
    DecidedGroup,
    GroupDecision,
    PodDecision,
    Release,
    Released,
    Waiting,
)
from dray.reasons import Reason
from dray.telemetry import parse
from dray_allocator.service.telemetry import Traces

POD = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
BEFORE = POD.replace("-0123456789abcdef-", "-00000000000000dd-")
UNSAMPLED = POD[:-1] + "0"
REASON = Reason("capacity", "free vram", 8, 8)


@pytest.fixture
def trace_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from traced(tmp_path / "trace.jsonl", monkeypatch, "allocator", "a-0")


def waiting(traceparent: str = POD) -> Waiting:
    return Waiting(
        domain="pool",
        epoch=1,
        writer="a-0",
        facts_sequence=1,
        now_unix_s=1.0,
        pod_uid="u",
        namespace="ns",
        name="train",
        reasons=(REASON,),
        traceparent=traceparent,
    )


def decided(*traceparents: str) -> Decided:
    pods = tuple(
        PodDecision(
            pod_uid=f"u{number or ''}",
            namespace="ns",
            name="train",
            node="n1",
            binder="dray",
            claims=(
                ClaimDecision(
                    uid="c", namespace="ns", name="c", attempt=3, allocation=Allocation(())
                ),
            ),
            traceparent=traceparent,
            took_us=500,
        )
        for number, traceparent in enumerate(traceparents)
    )
    return Decided(
        domain="pool",
        epoch=1,
        writer="a-0",
        facts_sequence=1,
        now_unix_s=2.0,
        policy_version=0,
        pods=pods,
    )


def append(traces: Traces, record: AnyRecord) -> str:
    with traces.appending(record) as traceparent:
        return traceparent


def test_a_decision_is_a_span_whose_position_is_sent_with_it(trace_file: Path) -> None:
    sent = append(Traces(), decided(POD))

    (span,) = spans(trace_file)
    assert (span["name"], span["kind"]) == ("decision", "producer")
    assert span["parent_id"] == "0123456789abcdef"
    assert sent == f"00-{span['trace_id']}-{span['span_id']}-01"
    assert span["end_unix_ns"] - span["start_unix_ns"] >= 500_000
    assert span["attributes"]["dray.attempt"] == 3
    assert span["attributes"]["dray.domain"] == "pool"
    assert span["attributes"]["messaging.destination.name"] == "dray.decision.pool.1"


def test_unsampled_records_make_no_span_and_hand_their_position_on(trace_file: Path) -> None:
    traces = Traces()

    assert append(traces, decided(UNSAMPLED)) == UNSAMPLED
    assert append(traces, waiting(UNSAMPLED)) == UNSAMPLED
    assert append(traces, decided("", UNSAMPLED)) == ""
    assert spans(trace_file) == []


def test_a_placed_pod_tells_how_long_it_waited_and_links_to_what_failed(trace_file: Path) -> None:
    traces = Traces()

    failed = append(traces, waiting())
    placed = append(traces, decided(POD))

    first, decision, wait = spans(trace_file)
    assert (first["status"], first["reason"]) == ("error", str(REASON))
    position = parse(failed)
    assert position is not None
    link = {"trace_id": position.trace_id, "span_id": position.span_id}
    assert decision["links"] == wait["links"] == [link]
    assert placed.split("-")[2] == decision["span_id"]
    assert wait["name"] == "waiting"
    assert wait["start_unix_ns"] <= first["end_unix_ns"] <= wait["end_unix_ns"]
    assert [event["attributes"]["dray.reasons"] for event in wait["events"]] == [str(REASON)]


def test_a_replica_that_takes_over_knows_from_the_log_who_waits(trace_file: Path) -> None:
    failed = append(Traces(), waiting())
    successor = Traces()

    successor.folded(waiting(), {"traceparent": failed}, 100.0)
    append(successor, decided(POD))

    wait = spans(trace_file)[-1]
    assert (wait["name"], wait["start_unix_ns"]) == ("waiting", 100_000_000_000)
    assert [link["span_id"] for link in wait["links"]] == [failed.split("-")[2]]


def test_one_reading_of_an_own_record_is_not_a_second_wait(trace_file: Path) -> None:
    traces = Traces()

    failed = append(traces, waiting())
    traces.folded(waiting(), {"traceparent": failed}, 100.0)
    append(traces, decided(POD))

    assert len(spans(trace_file)[-1]["links"]) == 1


def test_who_was_placed_by_another_replica_is_forgotten(trace_file: Path) -> None:
    traces = Traces()

    append(traces, waiting())
    traces.folded(decided(POD), {}, 100.0)
    append(traces, decided(POD))

    assert [span["name"] for span in spans(trace_file)] == ["decision", "decision"]


def test_a_decision_that_was_overtaken_is_linked_by_the_next(trace_file: Path) -> None:
    traces = Traces()

    with pytest.raises(StaleSequenceError), traces.appending(decided(POD)):
        raise StaleSequenceError("expected 3, is 4")
    append(traces, decided(POD))

    overtaken, decision, _ = spans(trace_file)
    assert (overtaken["status"], overtaken["reason"]) == ("error", "expected 3, is 4")
    assert [link["span_id"] for link in decision["links"]] == [overtaken["span_id"]]


def test_a_record_about_several_pods_has_a_span_each_and_no_position(trace_file: Path) -> None:
    other = POD.replace("0123456789abcdef0123456789abcdef", "f" * 32)

    assert append(Traces(), decided(POD, other, UNSAMPLED)) == ""
    assert {span["trace_id"] for span in spans(trace_file)} == {POD[3:35], "f" * 32}


def test_a_decision_after_a_withdrawn_one_links_to_it(trace_file: Path) -> None:
    """Also where another replica decided before: the log tells."""
    traces = Traces()
    traces.folded(decided(POD), {"traceparent": BEFORE}, 5.0)
    release = Release(claim_uid="c", attempt=3, why="withdrawn", exclude_node="n1")
    released = Released(
        domain="pool",
        epoch=1,
        writer="a-1",
        facts_sequence=2,
        now_unix_s=9.0,
        releases=(release,),
    )
    traces.folded(released, {}, 9.0)

    append(traces, decided(POD))

    decision, wait = spans(trace_file)
    link = {"trace_id": POD[3:35], "span_id": "00000000000000dd"}
    assert decision["links"] == wait["links"] == [link]
    (event,) = wait["events"]
    assert event["attributes"]["dray.reasons"] == "attempt 3 was withdrawn"
    assert event["unix_ns"] == wait["start_unix_ns"] == 9_000_000_000


@pytest.mark.parametrize("why", ["committed", "deleted"])
def test_what_came_to_its_end_is_not_a_failure(trace_file: Path, why: str) -> None:
    traces = Traces()
    traces.folded(decided(POD), {"traceparent": BEFORE}, 5.0)
    release = Release(claim_uid="c", attempt=3, why=why)
    released = Released(
        domain="pool", epoch=1, writer="a", facts_sequence=2, now_unix_s=9.0, releases=(release,)
    )
    traces.folded(released, {}, 9.0)

    append(traces, decided(POD))

    (decision,) = spans(trace_file)
    assert not decision["links"]


def joint(*traceparents: str) -> DecidedGroup:
    """A decision on a group."""
    group = GroupDecision(
        id="d", group=GroupKey(VOLCANO, "ns", "train"), uid="g", size=2, timeout_s=300.0
    )
    made = decided(*traceparents)
    pods = tuple(msgspec.structs.replace(pod, group=group) for pod in made.pods)
    return DecidedGroup(**msgspec.structs.asdict(made) | {"pods": pods})


def test_a_group_has_one_trace_and_its_pods_are_linked_to_it(trace_file: Path) -> None:
    traces = Traces()
    append(traces, joint(POD, BEFORE))
    append(traces, joint(POD, BEFORE))

    found = spans(trace_file)
    groups = [one for one in found if one["name"] == "group decision"]
    assert len({one["trace_id"] for one in groups}) == 1
    assert len(groups) == 2
    first = groups[0]
    assert first["attributes"]["dray.group"] == "train"
    assert first["attributes"]["dray.group.pods"] == 2
    assert [one["span_id"] for one in first["links"]] == ["0123456789abcdef", "00000000000000dd"]
    pods = [one for one in found if one["name"] == "decision"][:2]
    assert [one["links"][-1]["span_id"] for one in pods] == [first["span_id"]] * 2
    assert {one["trace_id"] for one in pods}.isdisjoint({first["trace_id"]})


def test_a_group_without_a_sampled_pod_has_no_span(trace_file: Path) -> None:
    append(Traces(), joint(UNSAMPLED, UNSAMPLED))
    assert spans(trace_file) == []
