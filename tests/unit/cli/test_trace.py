"""``dray trace``: a pod's trace from messages and objects, where no file tells it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS, log_spec
from dray.domain import names
from dray.domain.claims import AllocatedDevice, Allocation
from dray.domain.devices import DeviceId
from dray.kube.memory import MemoryKube
from dray.kube.ports import PODS, POOLS
from dray.messages.base import Message, encode
from dray.messages.decisions import (
    AnyRecord,
    ClaimDecision,
    Decided,
    Opened,
    PodDecision,
    Release,
    Released,
    Waiting,
    log_subject,
)
from dray.messages.events import ClaimPrepared, ExecutionStep, PodRequested
from dray.reasons import Reason
from dray_cli.trace.material import Decision, Material, NothingKnownError, read_material
from dray_cli.trace.spans import UNFINISHED, Link
from dray_cli.trace.told import spans_of
from dray_cli.trace.verb import trace as verb

TRACE = "0123456789abcdef0123456789abcdef"
TRACEPARENT = f"00-{TRACE}-0123456789abcdef-01"
MS = 1_000_000
REASON = Reason("capacity", "free vram", 8, 8)
CLAIM = ClaimDecision(
    uid="c",
    namespace="default",
    name="train-gpu",
    attempt=7,
    allocation=Allocation(
        (AllocatedDevice("r", DeviceId(names.DRIVER, "n1", "gpu-0"), None, {"virtual_vram": "1"}),)
    ),
)
PLACED = PodDecision(
    pod_uid="u",
    namespace="default",
    name="train",
    node="n1",
    binder="dray",
    claims=(CLAIM,),
    request_id="r",
    traceparent=TRACEPARENT,
    took_us=500,
)
REQUESTED = PodRequested(
    request_id="r",
    namespace="default",
    name="train",
    pool="fast",
    template="base-1",
    understood={"vram": "1"},
    traceparent=TRACEPARENT,
    took_us=2000,
)


def waiting_record() -> Waiting:
    return Waiting(**head(), pod_uid="u", namespace="default", name="train", reasons=(REASON,))


def head() -> dict[str, Any]:
    return {"domain": "fast", "epoch": 1, "writer": "a", "facts_sequence": 1, "now_unix_s": 1.0}


def step(what: str, at: float) -> ExecutionStep:
    return ExecutionStep(
        pod_uid="u",
        namespace="default",
        name="train",
        claim="train-gpu",
        attempt=7,
        step=what,
        now_unix_s=at,
    )


def prepared(at: float) -> ClaimPrepared:
    return ClaimPrepared(
        claim_uid="c",
        namespace="default",
        name="train-gpu",
        node="n1",
        cdi_device_ids=("d",),
        env={},
        now_unix_s=at,
        took_us=1000,
    )


def material(*decisions: Decision) -> Material:
    return Material(
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
    failed = Link(trace_id=TRACE, span_id=placed[1].span_id)
    assert wait.links == decision.links == (failed,)


def test_messages_tell_of_what_was_taken_back_and_decided_again() -> None:
    release = Release(claim_uid="c", attempt=7, why="withdrawn", exclude_node="n1")
    again = msgspec.structs.replace(PLACED, node="n2")
    found = material(
        Decision(PLACED, "a", 101.0), Decision(release, "a", 112.0), Decision(again, "b", 112.5)
    )

    _, first, withdrawn, second = spans_of(found, 200.0)

    failed = Link(trace_id=TRACE, span_id=first.span_id)
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


# --- reading


def a_pod(uid: str = "u") -> dict[str, Any]:
    annotations = {
        names.REQUEST_ID: "r",
        names.TRACEPARENT: TRACEPARENT,
        names.GPUPOOL: "fast",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "uid": uid,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }


async def say(bus: MemoryBus, *messages: Message) -> None:
    for message in messages:
        await bus.publish(encode(message, source="/test"))


async def append(bus: MemoryBus, *records: AnyRecord) -> None:
    for number, record in enumerate(records):
        outgoing = encode(record, source="/test")
        on_the_log = replace(outgoing, subject=log_subject("fast", 1))
        await bus.append(on_the_log, expected_last=number)


async def a_bus() -> MemoryBus:
    bus = MemoryBus()
    for spec in (*STREAMS, log_spec("fast", 1)):
        await bus.ensure(spec)
    return bus


async def a_kube() -> MemoryKube:
    kube = MemoryKube()
    pool = {
        "apiVersion": POOLS.api_version,
        "kind": POOLS.kind,
        "metadata": {"name": "fast"},
        "spec": {},
    }
    await kube.create(POOLS, pool)
    status = {"status": {"decisionLog": {"epoch": 1}}}
    await kube.patch(POOLS, "fast", status, subresource="status")
    return kube


async def test_a_pod_that_is_gone_is_told_of_by_what_the_bus_keeps() -> None:
    bus, kube = await a_bus(), await a_kube()
    other = msgspec.structs.replace(PLACED, pod_uid="x", request_id="other")
    await append(bus, Opened(**head()), Decided(**head(), policy_version=1, pods=(other, PLACED)))
    await say(bus, REQUESTED, step("bound", 101.0), prepared(102.0))

    found = await read_material(kube, bus, "default", "train")

    assert found.traceparent == TRACEPARENT
    assert [decision.said for decision in found.decisions] == [PLACED]
    assert [one.step for one in found.steps] == ["bound"]
    assert [one.claim_uid for one in found.prepared] == ["c"]


async def test_releases_count_that_take_back_what_was_decided_for_the_pod() -> None:
    bus, kube = await a_bus(), await a_kube()
    release = Release(claim_uid="c", attempt=7, why="voided")
    others = (
        msgspec.structs.replace(release, claim_uid="another"),
        msgspec.structs.replace(release, attempt=6),
        msgspec.structs.replace(release, why="committed"),
    )
    await append(
        bus,
        Opened(**head()),
        Decided(**head(), policy_version=1, pods=(PLACED,)),
        Released(**head(), releases=(*others, release)),
    )
    await say(bus, REQUESTED)

    found = await read_material(kube, bus, "default", "train")

    assert [decision.said for decision in found.decisions] == [PLACED, release]


async def test_only_what_is_about_this_very_pod_counts() -> None:
    bus, kube = await a_bus(), await a_kube()
    pod = await kube.create(PODS, a_pod(), "default")
    uid = pod["metadata"]["uid"]
    await append(
        bus,
        Opened(**head()),
        msgspec.structs.replace(waiting_record(), pod_uid="an earlier pod of this name"),
        msgspec.structs.replace(waiting_record(), pod_uid=uid),
    )
    await say(bus, msgspec.structs.replace(REQUESTED, request_id="earlier"), step("bound", 1.0))

    found = await read_material(kube, bus, "default", "train")

    assert [decision.said.pod_uid for decision in found.decisions] == [uid]
    assert (found.requested, found.steps) == (None, [])


async def test_a_pod_that_nobody_knows_is_an_error_that_says_where_was_looked() -> None:
    with pytest.raises(NothingKnownError, match="pod default/train is not in the cluster"):
        await read_material(await a_kube(), await a_bus(), "default", "train")


async def test_a_bus_that_was_not_reached_is_not_called_silent() -> None:
    with pytest.raises(NothingKnownError, match=r"the bus was not reached.*--nats") as unknown:
        await read_material(await a_kube(), None, "default", "train")

    assert "24 h" not in str(unknown.value)


async def test_without_a_bus_kubernetes_alone_is_read() -> None:
    kube = await a_kube()
    await kube.create(PODS, a_pod(), "default")

    found = await read_material(kube, None, "default", "train")

    assert [(one.service, one.name) for one in spans_of(found, 2e9)] == [("kubernetes", "pod")]


def test_another_kind_than_a_pod_is_refused() -> None:
    result = CliRunner().invoke(verb, ["node/n1"])

    assert result.exit_code == 2
    assert "'node/n1' is no pod" in result.output
