"""The spans of an admission."""

import pytest
from tests.tracing import spans, traced

P = "tensor-fusion.ai/"


@pytest.fixture
def trace_file(tmp_path, monkeypatch):
    yield from traced(tmp_path / "trace.jsonl", monkeypatch, "webhook", "w-0")


async def test_the_admission_is_the_first_span_and_says_what_was_understood(
    ready, pod, request_of, trace_file
):
    answer = await ready.webhook.mutate_pod(request_of(pod()), timeout_s=5)

    (span,) = spans(trace_file)
    assert (span["name"], span["parent_id"], span["status"]) == ("admission", "", "unset")
    position = f"00-{span['trace_id']}-{span['span_id']}-01"
    assert answer.requested.traceparent == position
    assert span["attributes"]["k8s.pod.name"] == "train"
    assert span["attributes"]["dray.template"] == answer.requested.template


async def test_what_begins_no_pod_begins_no_trace(ready, pod, request_of, trace_file):
    webhook = ready.new_webhook(sampling_ratio=1.0)

    await webhook.mutate_pod(request_of(pod(), dryRun=True), timeout_s=5)
    await webhook.mutate_pod(request_of(pod(), operation="UPDATE"), timeout_s=5)

    assert trace_file.read_text() == ""


async def test_a_refused_pod_is_a_failed_span(ready, pod, request_of, trace_file):
    answer = await ready.webhook.mutate_pod(
        request_of(pod({f"{P}gpupool": "shared", f"{P}vram-request": "much"})), timeout_s=5
    )

    (span,) = spans(trace_file)
    assert not answer.allowed
    assert (span["status"], span["reason"]) == ("error", answer.message)
