"""The claim-controller's part of a pod's trace, and what it hands on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.tracing import spans, traced

from dray.api.names import TRACEPARENT
from dray.bus.topology import EVENTS_STREAM, FACTS_STREAM
from dray.kube.convert import claim_from
from dray.kube.ports import PODS
from dray.messages.base import encode, subject_of
from dray.messages.commands import VoidClaim
from dray.messages.facts import ClaimObserved

POD = "00-0123456789abcdef0123456789abcdef-00000000000000aa-01"
DECISION = "00-0123456789abcdef0123456789abcdef-00000000000000bb-01"
UNSAMPLED = POD[:-1] + "0"


@pytest.fixture
def trace_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from traced(tmp_path / "trace.jsonl", monkeypatch, "claim-controller", "c-0")


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

    def is_reported() -> bool:
        # The decision did not wait for the claim's fact here.
        return {"execute", "claim"} <= {span["name"] for span in spans(trace_file)}

    await world.until(is_reported, "the execution's and the claim's spans")
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


async def test_a_restart_repeats_no_spans(world: Any, trace_file: Path) -> None:
    await placed(world, POD, DECISION)
    await world.until(lambda: len(spans(trace_file)) == 3, "the first telling")
    await world.running[0].stop()

    second = await world.ready(await world.start("second"))

    def read_again() -> bool:
        executions = second.controller.term.followers.executions["default-pool"]
        return bool(executions.sequence == 2 and not executions.open)

    await world.until(read_again, "the decision was found to be done")
    assert len(spans(trace_file)) == 3


async def test_what_kube_scheduler_refuses_is_a_span_linked_to_its_execution(
    shared_world: Any, trace_file: Path
) -> None:
    world = shared_world
    await world.ready(await world.start())
    await world.pod(gated=True, traceparent=POD)
    made = msgspec.structs.replace(await world.decision(), traceparent=POD)
    await world.decide(made, headers={"traceparent": DECISION})
    await world.ungated()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    refused = {"status": {"conditions": [condition]}}
    await world.kube.patch(PODS, "workload", refused, "default", subresource="status")

    def is_reported() -> bool:
        return "withdraw" in [span["name"] for span in spans(trace_file)]

    await world.until(is_reported, "the withdrawal's span")
    found = {span["name"]: span for span in spans(trace_file)}
    withdraw, execute = found["withdraw"], found["execute"]
    assert withdraw["trace_id"] == POD[3:35]
    assert withdraw["parent_id"] == "00000000000000aa"
    assert [link["span_id"] for link in withdraw["links"]] == [execute["span_id"]]
    assert withdraw["attributes"]["dray.attempt"] == 1_000_001
    assert withdraw["attributes"]["dray.reason"].startswith("kube-scheduler")


async def test_a_voiding_is_a_span_and_its_fact_names_the_command(
    world: Any, trace_file: Path
) -> None:
    running = await world.ready(await world.start())
    await world.pod(traceparent=POD)
    claim = claim_from(await world.until(world.claim, "the claim"))
    command = VoidClaim(
        domain="default-pool",
        claim_uid=claim.uid,
        namespace="default",
        name=claim.name,
        attempt=1_000_007,
        reason="node lost",
    )
    sent = encode(command, source="test")
    await world.until(
        lambda: claim.uid in running.controller.informers.cache.claims, "the claim is seen"
    )
    await world.bus.publish(sent)

    def is_reported() -> bool:
        return "void" in [span["name"] for span in spans(trace_file)]

    await world.until(is_reported, "the voiding's span")
    (void,) = [span for span in spans(trace_file) if span["name"] == "void"]
    assert void["attributes"]["dray.reason"] == "node lost"
    assert void["parent_id"] == "00000000000000aa"

    async def named() -> bool:
        fact = ClaimObserved(revision=0, claim=claim)
        last = await world.bus.last(FACTS_STREAM, subject_of(fact))
        return last is not None and last.headers.get("ce-causationid") == sent.headers["ce-id"]

    await world.until(named, "the claim's fact names what caused it")


async def test_a_step_names_the_record_that_is_carried_out(world: Any, trace_file: Path) -> None:
    await world.ready(await world.start())
    await world.pod(traceparent=POD)
    await world.decide(await world.decision(), headers={"ce-id": "record-1"})
    await world.until(world.bindings, "the binding")

    async def steps() -> list[str]:
        state = await world.bus.state(EVENTS_STREAM)
        found: list[str] = []
        if state is None or state.last_sequence < max(state.first_sequence, 1):
            return found
        async for delivered in world.bus.read(EVENTS_STREAM):
            found.append(delivered.headers.get("ce-causationid", ""))
            if not delivered.pending:
                break
        return found

    await world.until(steps, "a span of a step")
    assert set(await steps()) == {"record-1"}
