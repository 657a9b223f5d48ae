"""``dray doctor``: every finding that is not well says what to do."""

from typing import Any

import msgspec
import pytest
from tests.unit.cli.gpu_objects import device, slice_of

from dray.api.names import DECISION, DRIVER, TFLOPS_REQUEST
from dray.bus.memory import MemoryBus
from dray.bus.payload import RECOMMENDED_BYTES
from dray.bus.ports import StreamState
from dray.bus.topology import FACTS_STREAM, MIB, STREAMS, log_spec
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CLAIMS,
    CLASSES,
    CRDS,
    SLICES,
    KubeUnavailableError,
    RefusedError,
)
from dray.messages.base import Outgoing, encode, subject_prefix
from dray.messages.facts import ClusterObserved, Tick
from dray_cli.doctor import bus as on_bus
from dray_cli.doctor import cluster, verb
from dray_cli.doctor.capabilities import capabilities, disagreement
from dray_cli.doctor.findings import Finding, as_json, broken, lines
from dray_cli.doctor.verb import _kept
from dray_sandbox.chart import admission_policies

EVERYTHING = ClusterObserved(
    revision=1, version="v1.36.3", list_attributes=True, extended_resources=True
)
NOTHING = ClusterObserved(
    revision=1,
    version="v1.34.4",
    consumable_capacity=False,
    device_taints=False,
    allocation_timestamp=False,
    binding_conditions=False,
    partitionable_devices=False,
    prioritized_list=False,
    extended_resources=False,
)


def a_slice(name: str, node: str, *, generation: int = 1, count: int = 1) -> dict[str, Any]:
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    devices = [{"name": "gpu-0"}, {"name": "gpu-1"}]
    return {
        "metadata": {"name": name},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    }


def a_pool(ready: str = "True", epoch: int = 1) -> dict[str, Any]:
    message = "its template is missing" if ready != "True" else ""
    condition = {"type": "Ready", "status": ready, "message": message}
    status: dict[str, Any] = {"nodes": 2, "gpus": 16, "waitingPods": 3, "conditions": [condition]}
    if epoch:
        status["decisionLog"] = {"epoch": epoch}
    return {"metadata": {"name": "fast"}, "status": status}


def test_a_cluster_that_keeps_everything_is_well() -> None:
    assert {finding.grade for finding in capabilities(EVERYTHING)} == {"ok"}


def test_what_is_not_kept_says_what_its_user_notices() -> None:
    found = {f.subject: f for f in capabilities(NOTHING) if f.grade == "lesser"}
    assert len(found) == 8
    assert "whole cards" in found["fractions of a card"].text
    assert "hand-written claims" in found["device taints"].text
    assert not broken(found.values())


def test_what_could_not_be_asked_is_not_called_missing() -> None:
    cluster_seen = ClusterObserved(revision=1, extended_resources=None)
    grades = {f.subject: f.grade for f in capabilities(cluster_seen)}
    assert grades["classes as extended resources"] == "unseen"


def test_a_probe_that_is_no_longer_true_is_broken() -> None:
    old = ClusterObserved(revision=1, version="v1.35.4", list_attributes=True)
    found = disagreement(EVERYTHING, old)
    assert found is not None
    assert found.grade == "broken"
    assert "version v1.35.4 there, v1.36.3 here" in found.text
    assert "extended" not in found.text, "the controller may not ask for these"
    assert disagreement(EVERYTHING, EVERYTHING) is None


async def test_an_empty_cluster_lacks_everything_and_says_how_to_get_it() -> None:
    found = await cluster.look_at_cluster(MemoryKube(), "default")
    assert {f.subject: f.grade for f in found} == {
        "custom resources": "broken",
        f"device class {DRIVER}": "broken",
        "webhook": "broken",
        "admission policies": "broken",
        "resource slices": "broken",
        "GPU pools": "broken",
        "objects can be read": "ok",
    }
    assert all(f.text for f in found)


async def test_objects_that_can_t_be_read_are_named_and_hide_no_other() -> None:
    kube = MemoryKube()
    odd = {"metadata": {"name": "odd", "annotations": {DECISION: "9" * 5_000}}, "spec": {}}
    deep = {"a": msgspec.Raw(b"[" * 9_900 + b"]" * 9_900)}
    config = [{"opaque": {"driver": "x.example.com", "parameters": deep}}]
    fine = {"metadata": {"name": "fine"}, "spec": {"devices": {"config": config}}}
    for claim in (odd, fine):
        await kube.create(CLAIMS, claim, "default")
    await kube.create(SLICES, {"metadata": {"name": "broken"}, "spec": {"driver": DRIVER}})
    await kube.create(SLICES, a_slice("a", "node-1"))
    found = await cluster.unreadable_objects(kube)
    assert found.grade == "broken"
    assert found.text.startswith("2 objects can't be read: devices that they hold stay allocated")
    assert found.more == (
        "ResourceSlice broken can't be read: its shape is unknown to dray (KeyError: 'pool')",
        "ResourceClaim default/odd can't be read: annotation tensor-fusion.ai/decision has 5000 "
        "digits, expected 18 at most: only dray writes it, remove it",
    )
    assert (await cluster.slices_of(kube)).grade == "ok"


async def test_a_missing_kind_is_named() -> None:
    kube = MemoryKube()
    await kube.create(CRDS, {"metadata": {"name": "gpupools.tensor-fusion.ai"}})
    found = await cluster.custom_resources(kube)
    assert found.grade == "broken"
    assert "bindrequests.tensor-fusion.ai" in found.text
    assert "gpupools" not in found.text


async def test_a_class_that_is_there_is_well() -> None:
    kube = MemoryKube()
    await kube.create(CLASSES, {"metadata": {"name": DRIVER}, "spec": {}})
    assert (await cluster.device_class_of(kube)).grade == "ok"


def test_the_policies_that_are_looked_for_are_those_of_the_chart() -> None:
    kinds = [(obj["kind"], obj["metadata"]["name"]) for obj in admission_policies()]
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        assert [name for k, name in kinds if k == kind] == list(cluster.POLICY_NAMES)


@pytest.mark.parametrize(
    ("spoil", "grade", "text"),
    [
        (
            lambda obj: False,
            "ok",
            "dray-pods, dray-claims, dray-templates, dray-node-agents, dray-gpu-shares",
        ),
        (
            lambda obj: obj["metadata"]["name"] == "dray-pods",
            "broken",
            "dray-pods missing or without failurePolicy: Fail: a pod's",
        ),
        (
            lambda obj: obj["spec"].get("policyName") == "dray-claims",
            "broken",
            "dray-claims without a binding that denies: a pod's",
        ),
    ],
)
async def test_policies_must_be_there_and_bound(spoil: Any, grade: str, text: str) -> None:
    kube = MemoryKube()
    resources = {one.kind: one for one in (ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)}
    for obj in admission_policies():
        if not spoil(obj):
            await kube.create(resources[obj["kind"]], obj)
    found = await cluster.admission_policies(kube)
    assert (found.grade, found.text[: len(text)]) == (grade, text)


@pytest.mark.parametrize(
    ("field", "value"),
    [("failurePolicy", "Ignore"), ("validationActions", ["Warn"]), ("matchResources", {"a": 1})],
)
async def test_policies_must_deny_everywhere(field: str, value: Any) -> None:
    kube = MemoryKube()
    resources = {one.kind: one for one in (ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)}
    for obj in admission_policies():
        if ("matchConstraints" in obj["spec"]) == (field == "failurePolicy"):
            obj["spec"][field] = value
        await kube.create(resources[obj["kind"]], obj)
    assert (await cluster.admission_policies(kube)).grade == "broken"


@pytest.mark.parametrize(
    ("refusal", "grade"),
    [
        (f'admission webhook "pods.dray.dev" denied: {TFLOPS_REQUEST}: no number', "ok"),
        ("failed calling webhook: connection refused", "broken"),
    ],
)
async def test_the_webhook_must_deny_nonsense_itself(refusal: str, grade: str) -> None:
    kube = MemoryKube()
    kube.fail_next("create", RefusedError(refusal, 400))
    assert (await cluster.webhook_answers(kube, "default")).grade == grade


async def test_a_webhook_that_does_not_answer_is_broken() -> None:
    kube = MemoryKube()
    failed = 'Internal error occurred: failed calling webhook "pods": deadline exceeded'
    kube.fail_next("create", KubeUnavailableError(failed))
    found = await cluster.webhook_answers(kube, "default")
    assert found.grade == "broken"
    assert "does it run?" in found.text


async def test_what_one_has_no_rights_for_was_not_seen_and_hides_nothing_else() -> None:
    kube = MemoryKube()
    forbidden = 'pods is forbidden: User "x" cannot create resource "pods"'
    kube.fail_next("create", RefusedError(forbidden, 403))
    kube.fail_next("get", RefusedError("no rights for device classes", 403))
    found = {f.subject: f for f in await cluster.look_at_cluster(kube, "default")}
    assert found["webhook"].grade == "unseen"
    assert found["webhook"].text == forbidden
    assert found[f"device class {DRIVER}"].grade == "unseen"
    assert found["resource slices"].grade == "broken"


async def test_a_probe_that_the_webhook_keeps_from_its_answers_is_not_an_end() -> None:
    kube = MemoryKube()
    kube.fail_next("create", KubeUnavailableError("failed calling webhook"))
    probed, [finding] = await _kept(kube, "default")
    assert probed is None
    assert (finding.grade, finding.text) == ("unseen", "failed calling webhook")


async def test_users_without_dry_runs_see_what_the_claim_controller_has_found(monkeypatch) -> None:
    kube = MemoryKube()
    kube.fail_next("create", RefusedError("resourceslices is forbidden", 403))
    published = ClusterObserved(
        revision=1, version="v1.35.4", served_versions=("v1",), consumable_capacity=False
    )

    async def connected(_: object) -> MemoryKube:
        return kube

    async def on_its_bus(*_: object, **__: object) -> verb._SeenOnBus:
        return verb._SeenOnBus([], None, published)

    monkeypatch.setattr(verb, "connect_kube", connected)
    monkeypatch.setattr(verb, "_bus", on_its_bus)
    findings, _ = await verb._look(None, None, "default", deep=False)

    found = {f.subject: f.grade for f in findings}
    assert found["what it keeps"] == found["device taints"] == "ok"
    assert found["v1.35.4, resource.k8s.io v1"] == "ok"
    assert found["fractions of a card"] == "lesser"


def test_a_named_bus_that_does_not_answer_is_broken() -> None:
    found = on_bus.not_reached("NATS at nats://there:4222 can't be reached")

    assert found.grade == "broken"
    assert "nats://there:4222" in found.text


def test_a_bus_that_nothing_names_was_not_checked() -> None:
    assert on_bus.not_checked("no Secret").grade == "unseen"


async def test_slices_are_counted_by_node() -> None:
    kube = MemoryKube()
    for name, node in (("a", "node-1"), ("b", "node-2")):
        await kube.create(SLICES, a_slice(name, node))
    found = cluster.slices_finding((await kube.list(SLICES)).objects)
    assert (found.grade, found.text) == ("ok", "4 devices on 2 nodes")


@pytest.mark.parametrize(
    "parts",
    [
        (a_slice("a", "node-1", count=2),),
        (
            a_slice("a", "node-1", generation=1, count=1),
            a_slice("b", "node-1", generation=2, count=2),
        ),
    ],
    ids=["one of two", "one of the newest two"],
)
def test_a_pool_of_which_a_slice_is_missing_is_named(parts: tuple[dict[str, Any], ...]) -> None:
    found = cluster.slices_finding(parts)
    assert found.grade == "lesser"
    assert "node-1" in found.text


def test_an_old_slice_next_to_the_new_one_does_no_harm() -> None:
    parts = (a_slice("a", "node-1", generation=1), a_slice("b", "node-1", generation=2))
    assert cluster.slices_finding(parts).grade == "ok"


def test_processes_that_no_claim_explains_are_a_finding() -> None:
    used = slice_of("n1", device("a", used_by="processes"), device("b"))
    found = cluster.slices_finding((used,))
    assert (found.grade, found.more) == ("lesser", ("n1/gpu-0",))
    assert found.text.startswith("1 GPU with processes that no claim explains")


def test_a_pool_that_is_not_ready_gives_its_own_reason() -> None:
    found = cluster.pool_finding(a_pool(ready="False"))
    assert (found.grade, found.text) == ("broken", "not ready: its template is missing")
    assert cluster.pool_finding(a_pool()).text == "16 GPUs on 2 nodes, 3 pods wait"


def test_a_single_object_is_counted_in_the_singular() -> None:
    small = a_pool()
    small["status"] |= {"nodes": 1, "gpus": 1, "waitingPods": 1}
    assert cluster.pool_finding(small).text == "1 GPU on 1 node, 1 pod waits"
    assert cluster.slices_finding((a_slice("a", "node-1"),)).text == "2 devices on 1 node"


def with_condition(kind: str, status: str, message: str) -> dict[str, Any]:
    pool = a_pool()
    dated = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R"}
    pool["status"]["conditions"].append(
        {"type": kind, "status": status, "message": message, **dated}
    )
    return pool


def test_a_pool_that_nobody_serves_is_broken_since_then() -> None:
    pool = with_condition("Served", "False", "no allocator serves this pool")

    found = cluster.pool_finding(pool, now_unix_s=1_767_225_608.0)

    assert found.grade == "broken"
    assert found.text == "served by no allocator since 8 s: no allocator serves this pool"


def test_a_pool_says_who_serves_it_and_which_agents_are_silent() -> None:
    pool = with_condition("NodeAgentsSilent", "True", "no report for 30 s from sim-2")
    pool["status"]["servedBy"] = "allocator-1"

    found = cluster.pool_finding(pool)

    assert found.grade == "lesser"
    assert found.text.endswith("; served by allocator-1; no report for 30 s from sim-2")


def test_unhealthy_cards_of_a_pool_are_counted() -> None:
    pool = a_pool()
    pool["status"]["unhealthy"] = 2

    found = cluster.pool_finding(pool)

    assert (found.grade, found.text) == ("lesser", "16 GPUs (2 unhealthy) on 2 nodes, 3 pods wait")


def test_a_pool_that_has_no_node_yet_is_not_broken() -> None:
    empty = a_pool(ready="False")
    condition = empty["status"]["conditions"][0]
    condition |= {"reason": "NoNodes", "message": "no node is in this pool"}

    found = cluster.pool_finding(empty)

    assert found.grade == "lesser"
    assert found.text.startswith("no node is in this pool: its pods wait until there is one")
    assert not broken([found])


@pytest.mark.parametrize("ready", ["False", "True"])
def test_a_pool_whose_nodes_others_have_is_broken(ready: str) -> None:
    losing = a_pool(ready=ready)
    message = "it selects nodes that other pools have: sim-1 (placement)"
    losing["status"]["conditions"][0] |= {"reason": "NodesInOtherPools", "message": message}

    found = cluster.pool_finding(losing)

    assert (found.grade, found.text) == ("broken", f"{message} (docs/user-guide/pools.md)")


def test_a_pool_that_keeps_its_nodes_is_well_and_names_who_selects_them() -> None:
    keeping = a_pool()
    message = "nodes of this pool are also selected by others, which don't get them: sim-1 (all)"
    keeping["status"]["conditions"][0]["message"] = message

    found = cluster.pool_finding(keeping)

    assert found.grade == "ok"
    assert found.text.endswith(f"pods wait; {message}")


def test_a_pool_says_that_kube_scheduler_has_it_or_is_to_have_it() -> None:
    theirs = a_pool()
    theirs["status"]["conditions"][0]["reason"] = "FirstFit"
    assert cluster.pool_finding(theirs).text.endswith("; kube-scheduler allocates, first fit")
    between = a_pool(ready="False")
    between["status"]["conditions"][0]["reason"] = "OwnerChanging"
    found = cluster.pool_finding(between)
    assert (found.grade, found.text[:28]) == ("lesser", "its owner is being changed: ")


def a_bus() -> MemoryBus:
    """As installations have it."""
    bus = MemoryBus()
    bus.server.max_payload_bytes = RECOMMENDED_BYTES
    return bus


def a_tick(revision: int, **store: int) -> Outgoing:
    tick = Tick(revision=revision, now_unix_s=99.0 + revision, **store)
    return encode(tick, source="test", correlation_id="", now_unix_s=100.0)


async def test_streams_that_nobody_made_are_broken() -> None:
    bus = a_bus()
    payload, store, *found = await on_bus.look_at_bus(bus, (a_pool(), a_pool(epoch=0)))
    assert (payload.grade, store.grade) == ("ok", "ok")
    assert [f.grade for f in found] == ["broken"] * (len(STREAMS) + 2)
    assert "is lost" in found[-2].text
    assert "not opened yet" in found[-1].text


async def test_the_bytes_of_the_store_are_shown() -> None:
    bus = a_bus()
    for spec in (*STREAMS, log_spec("fast", 1)):
        await bus.ensure(spec)
    await bus.append(Outgoing("dray.decision.fast.1", b"x" * 3 * 2**20), expected_last=0)
    store = await on_bus.store_finding(bus, (a_pool(),))
    streams = len(STREAMS) + 1
    taken = f"3.0 MiB in {streams} streams; the largest is DRAY_DECISIONS_fast_1 with 3.0 MiB"
    assert store.text == f"{taken}; its limit is not known (DRAY_STREAMS__STORE)"
    for used_mib, grade, text in ((7, "ok", "7.0 MiB of 10.0 MiB are"), (8, "lesser", "is full")):
        await bus.publish(a_tick(used_mib, store_bytes=used_mib * MIB, store_limit_bytes=10 * MIB))
        store = await on_bus.store_finding(bus, (a_pool(),))
        assert (store.grade, text in store.text) == (grade, True)
    await bus.purge("DRAY_DECISIONS_fast_1", 2)
    log = await on_bus.log_finding(bus, a_pool())
    assert log.text.startswith("epoch 1, 0 records up to 1")


async def test_a_whole_bus_is_well_and_tells_of_dead_letters() -> None:
    bus = a_bus()
    for spec in (*STREAMS, log_spec("fast", 1)):
        await bus.ensure(spec)
    found = await on_bus.look_at_bus(bus, (a_pool(),))
    assert {f.grade for f in found} == {"ok"}

    headers = {"dray-dead-reason": "no such pod"}
    await bus.publish(Outgoing("dray.dead.cmd.claim.void.v1", b"{}", headers))
    [letter] = [f for f in await on_bus.look_at_bus(bus, ()) if f.grade == "lesser"]
    assert "no such pod" in letter.text


@pytest.mark.parametrize(
    ("state", "grade", "text"),
    [
        ({}, "ok", "up to message 7, 1 replica"),
        ({"replicas": 3, "cluster": "c"}, "ok", "up to message 7, 3 replicas"),
        ({"cluster": "c"}, "lesser", "DRAY_STREAMS__REPLICAS=3"),
        ({"cluster": "c", "wanted": 3}, "lesser", "the servers of c could not keep them"),
        ({"wanted": 3}, "ok", "up to message 7, 1 replica"),
        ({"replicas": 3, "cluster": "c", "lagging": ("n2",)}, "lesser", "away or behind: n2"),
    ],
)
def test_a_stream_says_how_many_servers_keep_it(state: dict, grade: str, text: str) -> None:
    found = on_bus.replicas_finding("s", StreamState("s", 1, 7, "t", **state), "up to message 7")
    assert found.grade == grade
    assert text in found.text


def test_a_server_that_takes_short_messages_is_less_than_it_could_be() -> None:
    found = on_bus.payload_finding(MemoryBus())
    assert (found.grade, "messages of 1 MiB at most" in found.text) == ("lesser", True)
    assert "max_payload: 8MB" in found.text


async def test_without_a_claim_controller_the_doctor_says_so_and_goes_on() -> None:
    owner = MemoryBus()
    for spec in STREAMS:
        await owner.ensure(spec)
    await owner.publish(encode(NOTHING, source="test", correlation_id="", now_unix_s=0.0))
    reader = owner.peer("reader", "dray.rpc.reading.reader")
    assert await on_bus.published_probe(reader) is None
    leader = await on_bus.leader_finding(reader, 0.0)
    assert leader.grade == "broken"
    assert "dray.rpc.reading.reader" in leader.text


async def test_what_the_controller_probed_is_read_from_the_facts() -> None:
    bus = MemoryBus()
    assert await on_bus.published_probe(bus) is None
    for spec in STREAMS:
        await bus.ensure(spec)
    assert await on_bus.published_probe(bus) is None
    await bus.publish(encode(NOTHING, source="test", correlation_id="", now_unix_s=0.0))
    assert await on_bus.published_probe(bus) == NOTHING


async def test_a_claim_controller_leads_as_long_as_it_ticks() -> None:
    bus = MemoryBus()
    assert (await on_bus.leader_finding(bus, 0.0)).grade == "broken"
    for spec in STREAMS:
        await bus.ensure(spec)
    assert (await on_bus.leader_finding(bus, 0.0)).grade == "broken"

    await bus.publish(a_tick(1))
    newest = await bus.last(FACTS_STREAM, subject_prefix(Tick))
    assert newest is not None
    assert (await on_bus.leader_finding(bus, newest.time_unix_s + 5)).grade == "ok"
    late = await on_bus.leader_finding(bus, newest.time_unix_s + 300)
    assert late.grade == "broken"
    assert "300 s old" in late.text


def test_findings_stand_under_their_headings_and_are_summed_up() -> None:
    findings = [
        Finding("One", "a", "ok", "fine"),
        Finding("Two", "b", "broken", "mend it"),
        Finding("One", "c", "lesser"),
    ]
    assert lines(findings) == [
        "One",
        "  ok  a: fine",
        "  --  c",
        "",
        "Two",
        "  NO  b: mend it",
        "",
        "1 well, 1 with less, 1 broken",
    ]
    assert as_json(findings)["healthy"] is False
    assert as_json(findings[:1])["healthy"] is True
