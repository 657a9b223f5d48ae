"""The node-agent's part of a pod's trace: its end."""

import pytest
from tests.tracing import spans, traced

from dray.api.names import TRACEPARENT
from dray.bus.topology import EVENTS_STREAM
from dray.kube.ports import CLAIMS
from dray.messages.base import decode
from dray.messages.events import ClaimPrepared

EXECUTE = "00-0123456789abcdef0123456789abcdef-00000000000000cc-01"


@pytest.fixture
def trace_file(tmp_path, monkeypatch):
    yield from traced(tmp_path / "trace.jsonl", monkeypatch, "node-agent", "n-0")


async def prepared(stand, traceparent):
    """A pod runs whose claim carries a trace; the event that says so."""
    await stand.tell_node()
    async with stand.agent(), stand.kubelet():
        await stand.make_claim("c", [await stand.device()])
        patch = {"metadata": {"annotations": {TRACEPARENT: traceparent}}}
        await stand.kube.patch(CLAIMS, "c", patch, "default")
        await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))
        await stand.reaches("p", "Running")
        return await anext(aiter(stand.bus.read(EVENTS_STREAM)))


async def test_preparing_ends_the_trace_that_the_claim_carries(stand, trace_file):
    delivered = await prepared(stand, EXECUTE)

    (span,) = spans(trace_file)
    assert (span["name"], span["service"]) == ("prepare", "node-agent")
    assert (span["trace_id"], span["parent_id"]) == (EXECUTE[3:35], "00000000000000cc")
    assert span["attributes"]["dray.claim"] == "c"
    position = f"00-{span['trace_id']}-{span['span_id']}-01"
    assert decode(delivered, ClaimPrepared).traceparent == position
    assert delivered.headers["traceparent"] == position


async def test_a_claim_of_an_unsampled_trace_makes_no_span(stand, trace_file):
    await prepared(stand, EXECUTE[:-1] + "0")

    assert trace_file.read_text() == ""
