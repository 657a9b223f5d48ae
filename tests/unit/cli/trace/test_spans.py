"""A pod's trace as a waterfall, and from the files that the services write."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cli.gpu_objects import device, slice_of
from tests.unit.cli.trace.pod import MS, TRACE

from dray_cli.gpu_names import GpuNames
from dray_cli.trace import waterfall
from dray_cli.trace.files import newest_trace_of, spans_of_trace
from dray_cli.trace.spans import (
    UNFINISHED,
    Moment,
    PodTrace,
    SpanLink,
    TraceSpan,
    in_tree_order,
    with_prepared,
    with_waiting,
)


def span(name: str, start_ms: float, end_ms: float, **more: Any) -> TraceSpan:
    reported: dict[str, Any] = {"service": "webhook", "trace_id": TRACE, "span_id": name, **more}
    start, end = int(start_ms * MS), int(end_ms * MS)
    return TraceSpan(name=name, start_unix_ns=start, end_unix_ns=end, **reported)


def a_trace(*spans: TraceSpan, recorded: bool = True) -> PodTrace:
    return PodTrace("default", "train", TRACE, spans, "somewhere", recorded)


def test_children_stand_below_their_parents_by_time() -> None:
    spans = (
        span("late", 5, 6, parent_id="root"),
        span("inner", 2, 3, parent_id="early"),
        span("early", 1, 4, parent_id="root"),
        span("root", 0, 7),
    )

    assert [(depth, one.name) for depth, one in in_tree_order(spans)] == [
        (0, "root"),
        (1, "early"),
        (2, "inner"),
        (1, "late"),
    ]


def test_a_span_whose_parent_was_not_recorded_is_shown_all_the_same() -> None:
    assert [depth for depth, _ in in_tree_order((span("lonely", 0, 1, parent_id="x"),))] == [0]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 100, "██████████"),
        (50, 100, "     █████"),
        (0, 0.001, "█         "),
        (100, 100, "         █"),
    ],
)
def test_a_bar_is_the_share_of_the_whole_and_never_empty(
    start: float, end: float, expected: str
) -> None:
    one = span("one", start, end)

    assert waterfall.bar(a_trace(span("all", 0, 100), one), one, 10) == expected


def test_the_waterfall_tells_offset_duration_attributes_events_and_links() -> None:
    lines = waterfall.lines(
        a_trace(
            span("admission", 0, 2, attributes={"dray.pool": "fast", "k8s.pod.name": "train"}),
            span("failed", 3, 3, service="allocator", status="error", reason="free vram"),
            span(
                "prepare",
                40,
                50,
                service="node-agent",
                events=(
                    Moment(name="waits", unix_ns=41 * MS, attributes={"dray.reasons": "a\nb"}),
                ),
                links=(
                    SpanLink(trace_id=TRACE, span_id="failed"),
                    SpanLink(trace_id=TRACE, span_id="unknown"),
                ),
            ),
        ),
        width=80,
    )

    assert lines[0] == "Pod default/train: 50.0 ms from admission to prepared"
    assert TRACE in lines[1]
    assert lines[3].split()[:6] == ["0.0", "ms", "2.0", "ms", "admission", "webhook"]
    assert lines[4].strip() == "pool=fast"
    assert lines[6].strip() == "failed: free vram"
    assert lines[7].split()[:6] == ["40.0", "ms", "10.0", "ms", "prepare", "node-agent"]
    assert lines[8].strip() == "· 41.0 ms waits a; b"
    assert lines[9].strip() == "→ follows failed of allocator at 3.0 ms"
    assert lines[10].strip() == f"→ follows span unknown of trace {TRACE}"


@pytest.mark.parametrize("width", [70, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    attributes = {f"dray.name{number}": "value" for number in range(20)}
    spans = [span("execute", 0, 2, service="claim-controller", attributes=attributes)]

    lines = waterfall.lines(a_trace(*spans), width=width)

    assert max(map(len, lines)) <= width
    assert sum("name" in line for line in lines) > 1


def test_gpus_have_short_names() -> None:
    uuid = "gpu-be008d03-aa40-5d64-8329-22122ec11e6b"
    reason = f"not enough free virtual_vram: 1 of 1 device; nearest: n1/{uuid} has 2Gi"
    failed = span("decision", 0, 2, status="error", reason=reason)

    lines = waterfall.lines(a_trace(failed), names=GpuNames([slice_of("n1", device(uuid))]))

    assert "n1/gpu-0 has 2Gi" in " ".join(" ".join(lines).split())


def test_as_data_times_are_milliseconds_since_the_first_span() -> None:
    data = waterfall.as_json(a_trace(span("admission", 10, 12), span("prepare", 20, 25)))

    assert data["prepared"] is True
    assert data["durationMs"] == 15
    assert [(one["name"], one["startMs"], one["durationMs"]) for one in data["spans"]] == [
        ("admission", 0, 2),
        ("prepare", 10, 5),
    ]
    json.dumps(data)


def test_a_failed_preparation_is_not_an_end() -> None:
    assert not a_trace(span("prepare", 0, 1, status="error")).prepared


def test_who_still_waits_is_shown_waiting_until_now() -> None:
    failed = span("decision", 1, 2, span_id="f", status="error", reason="free vram")
    spans = with_waiting((span("admission", 0, 1), failed), now_unix_ns=60 * MS)

    wait = spans[-1]
    assert (wait.name, wait.status, wait.end_unix_ns) == ("waiting", UNFINISHED, 60 * MS)
    assert wait.start_unix_ns == failed.start_unix_ns
    assert wait.links == (SpanLink(trace_id=TRACE, span_id="f"),)
    assert wait.events[0].attributes == {"dray.reasons": "free vram"}


def test_who_was_placed_after_a_failed_decision_waits_no_more() -> None:
    failed = span("decision", 1, 2, span_id="f", status="error")
    placed = span("decision", 5, 6, span_id="p")

    assert with_waiting((failed, placed), now_unix_ns=60 * MS) == (failed, placed)


def test_a_late_answer_about_an_overtaken_decision_is_no_waiting() -> None:
    spans = (
        span("decision", 5, 6, span_id="placed"),
        span("decision", 4, 9, span_id="overtaken", status="error"),
        span("execute", 7, 40, parent_id="placed"),
    )

    assert with_waiting(spans, now_unix_ns=60 * MS) == spans


def write(folder: Path, service: str, *spans: TraceSpan) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / f"{service}.jsonl").open("ab") as file:
        for one in spans:
            file.write(msgspec.json.encode(one) + b"\n")


def test_spans_of_a_trace_are_read_from_every_file(tmp_path: Path) -> None:
    write(tmp_path, "webhook", span("admission", 0, 1), span("other", 0, 1, trace_id="f" * 32))
    write(tmp_path, "allocator", span("decision", 2, 3))

    assert {one.name for one in spans_of_trace(tmp_path, TRACE)} == {"admission", "decision"}


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "webhook", span("admission", 0, 1))
    with (tmp_path / "webhook.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(span("lost", 0, 1))[:-9])

    assert [one.name for one in spans_of_trace(tmp_path, TRACE)] == ["admission"]


def test_a_pod_that_is_gone_is_found_by_name_and_the_newest_counts(tmp_path: Path) -> None:
    named = {"k8s.namespace.name": "default", "k8s.pod.name": "train"}
    elsewhere = {**named, "k8s.namespace.name": "other"}
    write(tmp_path, "webhook", span("admission", 5, 6, attributes=named))
    write(tmp_path, "webhook", span("admission", 1, 2, attributes=named, trace_id="e" * 32))
    write(tmp_path, "webhook", span("admission", 9, 9, attributes=elsewhere, trace_id="f" * 32))

    assert newest_trace_of(tmp_path, "default", "train") == TRACE
    assert newest_trace_of(tmp_path, "default", "nobody") == ""
    assert newest_trace_of(tmp_path / "absent", "default", "train") == ""


def test_what_only_messages_tell_of_being_prepared_is_added_to_what_was_recorded() -> None:
    recorded = (span("claim", 2, 3, parent_id="admission"), span("admission", 0, 1))
    reported = (span("admission", 0, 1), span("prepare", 8, 9))

    whole = a_trace(*with_prepared(recorded, reported))

    assert not a_trace(*recorded).prepared
    assert whole.prepared
    assert [(depth, one.name) for depth, one in in_tree_order(whole.spans)] == [
        (0, "admission"),
        (1, "claim"),
        (1, "prepare"),
    ]
