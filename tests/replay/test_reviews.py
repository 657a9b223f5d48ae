"""The webhook's answers, recorded from a bus while they were given, are given again."""

import asyncio
import json

import msgspec
import pytest
from click.testing import CliRunner

from dray.api.names import BASE_TEMPLATE, DEVICE_CLASS, TEMPLATE_LABEL
from dray.api.pods import Policy, Pool
from dray.bus.backlog import Backlog
from dray.bus.memory import MemoryBus
from dray.bus.ports import Request as BusRequest
from dray.bus.topology import FACTS_STREAM, STREAMS
from dray.messages.base import encode
from dray.messages.facts import (
    ClusterObserved,
    PolicyObserved,
    PoolObserved,
    Synced,
    TemplateObserved,
)
from dray.messages.rpc import LOOKUP_SUBJECT, LookupReply
from dray.recording.file import write_recording
from dray.recording.lines import FactLine, Header, InputLine, StreamLine, WholeLine
from dray.recording.recorder import Recorder
from dray_cli.__main__ import cli
from dray_cli.replay.run import replay
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionRequest
from dray_webhook.service.facts_cache import FactsCache
from dray_webhook.service.handler import AdmissionHandler
from dray_webhook.service.recorder import ReviewRecorder

RULES = Installation("dray-system", ("dray-claim-controller",))
POLICY = Policy("on", "2", dra_enabled=True, claim_template=BASE_TEMPLATE)
EXACTLY = {
    "deviceClassName": DEVICE_CLASS,
    "allocationMode": "ExactCount",
    "count": 1,
    "selectors": [{"cel": {"expression": "true"}}],
}
BASE = {
    "metadata": {},
    "spec": {"devices": {"requests": [{"name": "gpu-request", "exactly": EXACTLY}]}},
}
FACTS = (
    PoolObserved(revision=1, pool=Pool("shared", "1", template="on")),
    PolicyObserved(revision=1, policy=POLICY),
    TemplateObserved(
        revision=1,
        namespace="dray-system",
        name=BASE_TEMPLATE,
        labels={TEMPLATE_LABEL: "true"},
        spec=BASE,
    ),
    ClusterObserved(revision=1, version="v1.36.3"),
    Synced(revision=1, instance="a"),
)


def request(name: str, pool: str, tflops: str = "100") -> AdmissionRequest:
    annotations = {"tflops-request": tflops, "vram-request": "16Gi", "gpupool": pool}
    metadata = {
        "name": name,
        "namespace": "team-a",
        "annotations": {f"tensor-fusion.ai/{key}": text for key, text in annotations.items()},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }
    return AdmissionRequest.model_validate(
        {
            "uid": f"review-{name}",
            "kind": {"version": "v1", "kind": "Pod"},
            "namespace": "team-a",
            "name": name,
            "object": pod,
        }
    )


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def publish(bus, *facts) -> None:
    for fact in facts:
        await bus.publish(encode(fact, source="test"))


@pytest.fixture
async def lines():
    """An admitted pod, one refused after a look-up, and one admitted under a changed pool."""
    bus = MemoryBus()
    for spec in STREAMS:
        await bus.ensure(spec)
    await publish(bus, *FACTS)
    cache = FactsCache(bus.peer())
    backlog = Backlog(bus.peer(), capacity=10, what="pod.requested")
    inputs = ReviewRecorder(backlog, "webhook-0", RULES)
    webhook = AdmissionHandler(cache, backlog, RULES, source="/webhook/a", recorder=inputs)
    recorded: list = []
    recorder = Recorder(bus.peer(), Header(dray="1.0"), recorded.append)

    async def answer(_: BusRequest) -> bytes:
        return msgspec.json.encode(LookupReply())

    runs = (
        cache.run(),
        backlog.run(),
        recorder.run(),
        bus.serve(LOOKUP_SUBJECT, answer, queue="claim-controller"),
    )
    tasks = [asyncio.create_task(run) for run in runs]
    await until(lambda: cache.view.synced and recorder.counts.begun)
    await until(lambda: recorder.following_inputs)
    for one in (request("one", "shared"), request("two", "nowhere")):
        await webhook.mutate_pod(one, timeout_s=5.0)
    changed = Pool("shared", "1", template="on", dedicated=True)
    await publish(bus, PoolObserved(revision=2, pool=changed))
    await until(lambda: cache.view.pools["shared"].dedicated)
    await webhook.mutate_pod(request("three", "shared"), timeout_s=5.0)
    await until(lambda: recorder.counts.inputs == 3)
    yield recorded
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_answers_are_given_again_byte_by_byte(lines):
    outcome = replay(lines)

    assert outcome.divergence is None
    assert outcome.compared == {"mutate-pods": 3}
    answers = [json.loads(bytes(x.payload))["answer"]["response"] for x in reviews(lines)]
    assert [answer["allowed"] for answer in answers] == [True, False, True]


async def test_an_edited_fact_is_found_at_the_first_answer_it_changes(lines):
    edited = [edit(line) for line in lines]

    divergence = replay(edited).divergence

    assert divergence.reviewed.uid == "review-three"
    assert "dray.state.pool" in divergence.cause.subject
    assert any("team-a/three" in line for line in divergence.lines())
    assert "schedulerName" in divergence.difference()
    assert divergence.as_json()["review"] == "review-three"


async def test_answers_from_memory_belong_to_the_stream_they_were_folded_from(lines):
    """The bus lost everything; the webhook, which does not know yet, answers on."""
    before = [line for line in lines if not isinstance(line, InputLine)]
    first = next(line for line in lines if isinstance(line, FactLine))
    again = [
        StreamLine(name=FACTS_STREAM, created="later"),
        msgspec.structs.replace(first, sequence=1),
        WholeLine(sequence=1),
    ]

    outcome = replay([*before, *again, *reviews(lines)])

    assert outcome.divergence is None
    assert outcome.compared == {"mutate-pods": 3}


async def test_answers_from_a_lagging_webhook_are_not_compared(lines):
    lagging = [
        msgspec.structs.replace(
            x,
            payload=msgspec.Raw(
                bytes(x.payload).replace(b'"caught_up":true', b'"caught_up":false')
            ),
        )
        if isinstance(x, InputLine)
        else x
        for x in lines
    ]

    outcome = replay(lagging)

    assert outcome.services["webhook"].uncovered == 3
    assert not outcome.compared


async def test_answers_that_need_look_ups_of_a_later_release_are_not_compared(lines, tmp_path):
    """Before it looked up groups of pods without GPUs, the webhook left them to kube-scheduler."""
    first = next(line for line in lines if isinstance(line, InputLine))
    earlier = [as_cpu_task(line) if line is first else line for line in lines]
    write_recording(tmp_path / "file", earlier)

    shown = CliRunner().invoke(cli, ["replay", str(tmp_path / "file")])
    outcome = replay(earlier)

    assert outcome.divergence is None
    assert outcome.compared == {"mutate-pods": 2}, "those after it are"
    assert outcome.services["webhook"].as_json()["unresolved"] == {"group": 1}
    assert shown.exit_code == 0
    assert "2 mutate-pods; 1 not compared (no look-up of a group was recorded)" in shown.output


def as_cpu_task(line):
    """The review, of a pod without GPUs in a PodGroup of Volcano."""
    review = json.loads(bytes(line.payload))
    data = review.get("data", review)
    pod = data["request"]["object"]
    pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "train"}
    pod["spec"]["schedulerName"] = "volcano"
    data["settings"]["scheduler_names"] = ["volcano"]
    return msgspec.structs.replace(line, payload=msgspec.Raw(json.dumps(review).encode()))


def reviews(lines):
    return [line for line in lines if isinstance(line, InputLine)]


def edit(line):
    """The pool's second fact no longer says that its nodes are dedicated."""
    if not isinstance(line, FactLine) or ".pool." not in line.subject:
        return line
    payload = bytes(line.payload).replace(b'"dedicated":true', b'"dedicated":false')
    return msgspec.structs.replace(line, payload=msgspec.Raw(payload))
