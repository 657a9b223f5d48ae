"""What is read of a pod's way: from the bus, the log and Kubernetes."""

import time
from collections.abc import Callable

import msgspec
import pytest
from click.testing import CliRunner
from tests.unit.cli.trace.pod import (
    PLACED,
    REQUESTED,
    TRACEPARENT,
    a_pod,
    head,
    prepared,
    step,
    waiting_record,
)

from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS, log_spec
from dray.kube.memory import MemoryKube
from dray.kube.ports import PODS, POOLS
from dray.messages.base import Message, encode
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    Opened,
    Release,
    Released,
    log_stream,
    log_subject,
)
from dray_cli.trace.inputs import NothingKnownError, read_inputs
from dray_cli.trace.synthesized_spans import spans_of
from dray_cli.trace.verb import trace as verb


async def say(bus: MemoryBus, *messages: Message) -> None:
    for message in messages:
        await bus.publish(encode(message, source="/test"))


async def append(bus: MemoryBus, *records: AnyRecord) -> None:
    for number, record in enumerate(records):
        outgoing = encode(record, source="/test")
        on_the_log = outgoing.to(log_subject("fast", 1))
        await bus.append(on_the_log, expected_last=number)


async def a_bus(now_unix_s: Callable[[], float] = time.time) -> MemoryBus:
    bus = MemoryBus(now_unix_s=now_unix_s)
    for spec in (*STREAMS, log_spec("fast", 1)):
        await bus.ensure(spec)
    return bus


async def a_kube(now_unix_s: Callable[[], float] = time.time) -> MemoryKube:
    kube = MemoryKube(now_unix_s=now_unix_s)
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


async def test_a_deleted_pod_is_shown_from_what_the_bus_keeps() -> None:
    bus, kube = await a_bus(), await a_kube()
    other = msgspec.structs.replace(PLACED, pod_uid="x", request_id="other")
    await append(bus, Opened(**head()), Decided(**head(), policy_version=1, pods=(other, PLACED)))
    await say(bus, REQUESTED, step("bound", 101.0), prepared(102.0))

    found = await read_inputs(kube, bus, "default", "train")

    assert found.traceparent == TRACEPARENT
    assert [decision.message for decision in found.decisions] == [PLACED]
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

    found = await read_inputs(kube, bus, "default", "train")

    assert [decision.message for decision in found.decisions] == [PLACED, release]


async def test_a_pod_of_whose_decisions_a_log_keeps_no_more_is_shown_with_what_remains() -> None:
    now_unix_s = [1_000_000.0]
    bus, kube = await a_bus(lambda: now_unix_s[0]), await a_kube(lambda: now_unix_s[0])
    await kube.create(PODS, a_pod(), "default")
    decided = Decided(**head(), policy_version=1, pods=(PLACED,))
    await append(bus, Opened(**head()), decided)
    now_unix_s[0] += 86_400
    outgoing = encode(waiting_record(), source="/test")
    await bus.append(outgoing.to(log_subject("fast", 1)), expected_last=2)
    assert not (await read_inputs(kube, bus, "default", "train")).missing

    await bus.purge(log_stream("fast", 1), 3)
    missing = (await read_inputs(kube, bus, "default", "train")).missing
    assert missing.startswith("the decision log of pool fast begins at 1970-01-13 13:46:40 UTC")
    assert "DRAY_LOGS__KEEP_FOR" in missing
    assert "BindRequest" in missing

    await kube.delete(PODS, "train", "default", grace_period_s=0)
    await kube.create(PODS, a_pod(), "default")
    newer = await read_inputs(kube, bus, "default", "train")
    assert not newer.missing, "the log begins before this pod"


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

    found = await read_inputs(kube, bus, "default", "train")

    assert [decision.message.pod_uid for decision in found.decisions] == [uid]
    assert (found.requested, found.steps) == (None, [])


async def test_a_pod_that_nobody_knows_is_an_error_that_says_where_was_looked() -> None:
    with pytest.raises(NothingKnownError, match="pod default/train is not in the cluster"):
        await read_inputs(await a_kube(), await a_bus(), "default", "train")


async def test_a_bus_that_was_not_reached_is_not_called_silent() -> None:
    with pytest.raises(NothingKnownError, match=r"the bus was not reached.*--nats") as unknown:
        await read_inputs(await a_kube(), None, "default", "train")

    assert "24 h" not in str(unknown.value)


async def test_without_a_bus_kubernetes_alone_is_read() -> None:
    kube = await a_kube()
    await kube.create(PODS, a_pod(), "default")

    found = await read_inputs(kube, None, "default", "train")

    assert [(one.service, one.name) for one in spans_of(found, 2e9)] == [("kubernetes", "pod")]


def test_another_kind_than_a_pod_is_refused() -> None:
    result = CliRunner().invoke(verb, ["node/n1"])

    assert result.exit_code == 2
    assert "'node/n1' is not a pod" in result.output
