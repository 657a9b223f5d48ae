"""Spans: made only where the webhook decided to sample."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tracing import spans, traced

from dray.telemetry import begin, configure, is_sampled, new_traceparent, parse, shutdown, start

SAMPLED = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
UNSAMPLED = SAMPLED[:-1] + "0"


@pytest.fixture
def trace_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from traced(tmp_path / "traces" / "trace.jsonl", monkeypatch, "allocator", "a-0")


def test_a_new_traceparent_is_a_valid_one() -> None:
    first, second = new_traceparent(sampled=True), new_traceparent(sampled=True)
    assert first != second
    assert str(parse(first)) == first
    assert is_sampled(first)
    assert not is_sampled(new_traceparent(sampled=False))
    # Level 2 of the recommendation adds a flag for random trace ids.
    assert is_sampled(SAMPLED[:-1] + "3")
    assert not is_sampled(SAMPLED[:-1] + "2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01" + SAMPLED[2:],
        SAMPLED.upper(),
        SAMPLED + "-x",
        SAMPLED.replace("0123456789abcdef0123456789abcdef", "0" * 32),
        "00-0123456789abcdef0123456789abcdef-0000000000000000-01",
    ],
)
def test_what_is_not_a_traceparent_is_ignored(text: str) -> None:
    assert parse(text) is None
    assert not is_sampled(text)


def test_a_sampled_pod_has_its_spans_in_one_trace(trace_file: Path) -> None:
    with start("decide", SAMPLED, {"claims": 2}, kind="consumer") as outer:
        with start("commit", outer.traceparent) as inner:
            inner.event("written", {"attempt": 1})
        outer.set("node", "n1")
    commit, decide = spans(trace_file)
    assert {commit["trace_id"], decide["trace_id"]} == {"0123456789abcdef0123456789abcdef"}
    assert decide["parent_id"] == "0123456789abcdef"
    assert commit["parent_id"] == decide["span_id"]
    assert decide["attributes"] == {"claims": 2, "node": "n1"}
    assert (decide["service"], decide["instance"], decide["kind"]) == (
        "allocator",
        "a-0",
        "consumer",
    )
    assert commit["events"][0]["name"] == "written"
    assert decide["start_unix_ns"] <= commit["start_unix_ns"] <= decide["end_unix_ns"]


def test_a_story_begins_with_a_span_that_has_no_parent(trace_file: Path) -> None:
    with begin("admit", {"allowed": True}, sampled=True) as first:
        assert is_sampled(first.traceparent)
    (span,) = spans(trace_file)
    assert (span["parent_id"], span["attributes"]) == ("", {"allowed": True})
    assert first.traceparent == f"00-{span['trace_id']}-{span['span_id']}-01"


def test_a_story_that_is_not_sampled_begins_with_nothing(trace_file: Path) -> None:
    with begin("admit", sampled=False) as first:
        assert parse(first.traceparent) is not None
        assert not is_sampled(first.traceparent)
    assert spans(trace_file) == []


def test_sampling_is_decided_for_others_even_without_an_exporter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DRAY_TRACE_FILE", raising=False)
    with begin("admit", sampled=True) as before_configuring:
        assert is_sampled(before_configuring.traceparent)
    configure("webhook", "w-0")
    with begin("admit", sampled=True) as first:
        assert is_sampled(first.traceparent)
        assert not first.recording
    shutdown()


def test_an_unsampled_story_makes_no_span_and_is_handed_on(trace_file: Path) -> None:
    for traceparent in (UNSAMPLED, "", "nonsense1"):
        with start("decide", traceparent) as span:
            span.set("a", 1)
            span.event("b")
            span.fail("c")
            assert not span.recording
            assert span.traceparent == traceparent
    assert spans(trace_file) == []


def test_a_failure_is_recorded_and_passes_through(trace_file: Path) -> None:
    with pytest.raises(ValueError, match="wrong"), start("decide", SAMPLED):
        raise ValueError("wrong")
    (span,) = spans(trace_file)
    assert (span["status"], span["reason"]) == ("error", "wrong")
    assert span["events"][0]["name"] == "exception"


def test_a_failure_may_be_recorded_without_an_exception(trace_file: Path) -> None:
    with start("decide", SAMPLED) as span:
        span.fail("no device fits")
    assert spans(trace_file)[0]["reason"] == "no device fits"


def test_a_batch_links_the_stories_it_serves(trace_file: Path) -> None:
    other = new_traceparent(sampled=True)
    with start("append", SAMPLED, links=[other, "nonsense"]):
        pass
    position = parse(other)
    assert position is not None
    assert spans(trace_file)[0]["links"] == [
        {"trace_id": position.trace_id, "span_id": position.span_id}
    ]


def test_a_span_may_have_begun_before_it_was_known(trace_file: Path) -> None:
    with start("waiting", SAMPLED, began_unix_ns=1_000):
        pass
    (span,) = spans(trace_file)
    assert span["start_unix_ns"] == 1_000 < span["end_unix_ns"]


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_SDK_DISABLED", "true"), ("DRAY_TRACE_FILE", "")]
)
def test_the_environment_switches_it_off(
    variable: str, value: str, trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    shutdown()
    configure("allocator", "a-0")
    with start("decide", SAMPLED) as span:
        assert not span.recording
    assert spans(trace_file) == []


def test_without_the_collector_the_file_stays(
    trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    shutdown()
    configure("allocator", "a-0")
    with start("decide", SAMPLED):
        pass
    assert [span["name"] for span in spans(trace_file)] == ["decide"]


def test_without_an_exporter_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DRAY_TRACE_FILE", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    configure("webhook", "w-0")
    with start("admit", SAMPLED) as span:
        assert not span.recording
        assert span.traceparent == SAMPLED
    shutdown()


def test_spans_are_exported_to_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    import http.server
    import threading

    bodies: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            bodies.append((self.path, self.rfile.read(size)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        configure("webhook", "w-0")
        with start("admit", SAMPLED):
            pass
        shutdown()
        server.shutdown()
        thread.join()
    ((path, body),) = bodies
    assert path == "/v1/traces"
    assert b"admit" in body
