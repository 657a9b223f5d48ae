"""The claim-controller's part of a pod's trace, and what it hands on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray.domain.names import TRACEPARENT
from dray.telemetry import configure, shutdown

POD = "00-0123456789abcdef0123456789abcdef-00000000000000aa-01"
DECISION = "00-0123456789abcdef0123456789abcdef-00000000000000bb-01"
UNSAMPLED = POD[:-1] + "0"


@pytest.fixture
def trace_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "trace.jsonl"
    monkeypatch.setenv("DRAY_TRACE_FILE", str(path))
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    configure("claim-controller", "c-0")
    yield path
    shutdown()


def spans(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def placed(world: Any, pod: str, decision: str) -> dict[str, Any]:
    """A pod on its way to being bound; its claim."""
    await world.ready(await world.start())
    await world.pod(traceparent=pod)
    made = msgspec.structs.replace(await world.decision(), traceparent=pod)
    await world.decide(made, headers={"traceparent": decision})
    await world.until(world.bindings, "the binding")
    claim: dict[str, Any] = await world.claim()
    return claim


async def test_template_claim_and_execution_are_spans_of_the_pods_trace(
    world: Any, trace_file: Path
) -> None:
    claim = await placed(world, POD, DECISION)

    def told() -> bool:
        return "execute" in [span["name"] for span in spans(trace_file)]

    await world.until(told, "the execution's span")
    found = {span["name"]: span for span in spans(trace_file)}
    assert sorted(found) == ["claim", "execute", "template"]
    assert len(spans(trace_file)) == 3
    assert {span["trace_id"] for span in found.values()} == {POD[3:35]}
    assert found["template"]["parent_id"] == found["claim"]["parent_id"] == "00000000000000aa"
    assert found["execute"]["parent_id"] == "00000000000000bb"
    assert [event["name"] for event in found["execute"]["events"]] == ["committed", "bound", "done"]
    handed_on = claim["metadata"]["annotations"][TRACEPARENT]
    assert handed_on == f"00-{POD[3:35]}-{found['execute']['span_id']}-01"


async def test_an_unsampled_pod_costs_no_span_and_its_claim_no_annotation(
    world: Any, trace_file: Path
) -> None:
    claim = await placed(world, UNSAMPLED, UNSAMPLED)

    assert TRACEPARENT not in claim["metadata"]["annotations"]
    assert spans(trace_file) == []


async def test_a_restart_does_not_tell_what_was_told_before(world: Any, trace_file: Path) -> None:
    await placed(world, POD, DECISION)
    await world.until(lambda: len(spans(trace_file)) == 3, "the first telling")
    await world.running[0].stop()

    second = await world.ready(await world.start("second"))

    def read_again() -> bool:
        orders = second.controller.term.followers.orders["default-pool"]
        return bool(orders.sequence == 2 and not orders.open)

    await world.until(read_again, "the decision was found to be done")
    assert len(spans(trace_file)) == 3
