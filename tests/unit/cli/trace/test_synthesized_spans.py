"""``dray trace``: a pod's trace from messages and objects, where no file tells it."""

import msgspec
import pytest
from tests.unit.cli.trace.pod import (
    MS,
    PLACED,
    REASON,
    REQUESTED,
    TRACE,
    a_pod,
    prepared,
    step,
    waiting_record,
)

from dray.messages.decisions import Release
from dray_cli.trace.inputs import Decision, TraceInputs
from dray_cli.trace.spans import UNFINISHED, SpanLink
from dray_cli.trace.synthesized_spans import spans_of


def material(*decisions: Decision) -> TraceInputs:
    return TraceInputs(
        "default",
        "train",
        requested=REQUESTED,
        requested_unix_s=100.0,
        decisions=list(decisions),
    )


def test_messages_tell_the_way_that_spans_would() -> None:
    found = material(Decision(PLACED, "a", 101.0))
    found.steps = [step("committed", 101.2), step("bound", 101.3)]
    found.prepared = [prepared(102.0)]

    spans = spans_of(found, 200.0)

    assert [(one.service, one.name) for one in spans] == [
        ("webhook", "admission"),
        ("allocator", "decision"),
        ("claim-controller", "execute"),
        ("node-agent", "prepare"),
    ]
    assert {one.trace_id for one in spans} == {TRACE}
    assert {one.parent_id for one in spans[1:]} == {spans[0].span_id}
    assert spans[0].end_unix_ns - spans[0].start_unix_ns == pytest.approx(2 * MS, abs=1000)
    assert spans[1].attributes["dray.devices"] == "gpu-0 virtual_vram=1"
    assert [moment.name for moment in spans[2].events] == ["committed", "bound"]


def test_messages_tell_of_waiting_and_of_what_failed() -> None:
    waited = Decision(waiting_record(), "a", 100.5)

    there = material(waited)
    there.pod = a_pod()
    still = spans_of(there, 110.0)
    placed = spans_of(material(waited, Decision(PLACED, "a", 103.0)), 110.0)

    assert [one.name for one in still] == ["admission", "decision", "waiting"]
    assert (still[1].status, still[1].reason) == ("error", str(REASON))
    assert (still[2].status, still[2].end_unix_ns) == (UNFINISHED, 110 * 1000 * MS)
    wait, decision = placed[2:]
    assert (wait.status, wait.end_unix_ns) == ("unset", 103 * 1000 * MS)
    failed = SpanLink(trace_id=TRACE, span_id=placed[1].span_id)
    assert wait.links == decision.links == (failed,)


def test_messages_tell_of_what_was_taken_back_and_decided_again() -> None:
    release = Release(claim_uid="c", attempt=7, why="withdrawn", exclude_node="n1")
    again = msgspec.structs.replace(PLACED, node="n2")
    found = material(
        Decision(PLACED, "a", 101.0), Decision(release, "a", 112.0), Decision(again, "b", 112.5)
    )

    _, first, withdrawn, second = spans_of(found, 200.0)

    failed = SpanLink(trace_id=TRACE, span_id=first.span_id)
    assert (withdrawn.name, withdrawn.links) == ("withdraw", (failed,))
    assert (second.attributes["k8s.node.name"], second.links) == ("n2", (failed,))


def test_an_execution_without_an_end_goes_on_and_one_that_failed_says_why() -> None:
    found = material(Decision(PLACED, "a", 101.0))

    found.steps = [step("committed", 101.2)]
    assert spans_of(found, 200.0)[-1].status == UNFINISHED
    found.steps = [msgspec.structs.replace(step("failed", 101.4), detail="refused")]
    assert (spans_of(found, 200.0)[-1].status, spans_of(found, 200.0)[-1].reason) == (
        "error",
        "refused",
    )


def test_a_pod_that_is_gone_waits_no_more() -> None:
    found = material(Decision(waiting_record(), "a-1", 101.0))

    [waiting] = [one for one in spans_of(found, 1000.0) if one.name == "waiting"]

    assert waiting.status != UNFINISHED
    assert waiting.end_unix_ns == 101_000 * MS


def test_without_the_log_the_bind_request_says_why_a_pod_waits() -> None:
    found = material()
    found.pod = a_pod()
    found.bind_request = {"status": {"phase": "Pending", "explanation": "free vram"}}

    assert spans_of(found, 2e9)[-1].attributes == {"dray.reasons": "free vram"}
