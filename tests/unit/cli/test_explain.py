"""``dray explain`` reads Kubernetes objects alone, and says what it knows of a pod."""

import asyncio
import math
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.unit.cli.gpu_objects import claim, device, slice_of

from dray.api.names import DRIVER, GPUPOOL, POOL_LABEL
from dray.kube.memory import MemoryKube
from dray.kube.ports import BIND_REQUESTS, CLAIMS, EVENTS, PODS, POOLS, SLICES
from dray_cli import explain as module
from dray_cli.explain import MOST_GPUS, Explanation, explain, fetch_explanation, pod_name
from dray_cli.pod_life import PodLife

POD: dict[str, Any] = {
    "metadata": {
        "namespace": "default",
        "name": "train",
        "annotations": {"tensor-fusion.ai/gpupool": "fast"},
    },
    "status": {"phase": "Pending"},
}
CLAIM: dict[str, Any] = {"metadata": {"name": "train-claim"}, "status": {}}
RESULT = {"device": "gpu-1", "pool": "node-1", "consumedCapacity": {"virtual_vram": "16Gi"}}
ALLOCATED: dict[str, Any] = {
    "metadata": {"name": "train-claim"},
    "status": {"allocation": {"devices": {"results": [RESULT]}}},
}
WAITS: dict[str, Any] = {"status": {"explanation": "vram: 8 of 8 devices\ncpu: fails"}}


async def test_gpus_of_large_clusters_are_not_evaluated_for_kube_schedulers_pods() -> None:
    kube = MemoryKube()
    await kube.create(POOLS, THEIRS)
    await kube.create(SLICES, slice_of("node-1", device("gpu-1")))
    asking = {"spec": {"containers": []}, "metadata": {**POD["metadata"], "uid": "uid-train"}}
    await kube.create(PODS, {**POD, **asking}, "default")

    async def reasons(gpus: int, most_gpus: float = MOST_GPUS) -> list[str]:
        await kube.patch(POOLS, "fast", {"status": {"gpus": gpus}}, subresource="status")
        return (await fetch_explanation(kube, "default", "train", most_gpus=most_gpus)).reasons

    evaluated = await reasons(MOST_GPUS)
    assert await reasons(MOST_GPUS + 1) == [
        "the cluster has 4001 GPUs; more than 4000 are evaluated only with --devices"
    ]
    assert await reasons(MOST_GPUS + 1, math.inf) == evaluated


def test_a_waiting_pod_is_explained_line_by_line() -> None:
    lines = Explanation(POD, WAITS, (CLAIM,)).lines()

    assert "waits for GPUs of pool 'fast'" in lines[0]
    assert lines[1:] == ["  vram: 8 of 8 devices", "  cpu: fails"]


def test_a_pod_without_gpus_waits_for_room_and_gets_a_place() -> None:
    """A gang's CPU task: its claim asks for no device."""
    accounting = {**CLAIM, "spec": {"devices": {}}}
    assert (
        "it asks for no GPUs and waits for room in pool 'fast' because"
        in Explanation(POD, WAITS, (accounting,)).lines()[0]
    )
    accounting["status"] = {"allocation": {"devices": {}}}
    assert Explanation(POD, WAITS, (accounting,)).lines() == [
        "Pod default/train is Pending and is placed; it asks for no GPUs."
    ]


def test_a_placed_pod_shows_what_it_holds_and_no_old_reasons() -> None:
    explanation = Explanation(POD, WAITS, (ALLOCATED,))

    assert explanation.lines()[1] == "  gpu-1 on node-1  virtual_vram=16Gi"
    assert explanation.as_json()["reasons"] == []


def test_a_pod_whose_devices_are_not_ready_shows_what_they_lack_until_it_is_bound() -> None:
    reported = (
        "device d/n/a lacks the condition attached; device d/n/b lacks the condition attached"
    )
    awaits = {
        "spec": {"selectedNode": "node-1"},
        "status": {"reason": "BindingConditionsPending", "explanation": reported},
    }
    unbound, bound = {**POD, "spec": {}}, {**POD, "spec": {"nodeName": "node-1"}}

    assert Explanation(unbound, awaits, (ALLOCATED,)).lines()[2:] == [
        "  and is bound to node-1 once they are ready:",
        "    device d/n/a lacks the condition attached",
        "    device d/n/b lacks the condition attached",
    ]
    assert len(Explanation(bound, awaits, (ALLOCATED,)).lines()) == 2


@pytest.mark.parametrize("bound", [False, True])
def test_a_device_of_several_nodes_is_shown_with_the_node_that_was_chosen(bound: bool) -> None:
    results = [RESULT, {"device": "port", "pool": "rack"}]
    claim = {**ALLOCATED, "status": {"allocation": {"devices": {"results": results}}}}
    pod = {**POD, "spec": {"nodeName": "node-1"} if bound else {}}
    request = {"spec": {"selectedNode": "node-1"}, "status": {}}

    assert Explanation(pod, request, (claim,)).lines()[1:3] == [
        "  gpu-1 on node-1  virtual_vram=16Gi",
        "  port of pool rack on node-1",
    ]


def test_a_pod_without_annotations_is_not_ours() -> None:
    plain = {**POD, "metadata": {"namespace": "default", "name": "web"}}

    assert "asks for no GPU of dray" in Explanation(plain, None, ()).lines()[0]


def test_a_pod_whose_claim_is_not_there_yet_says_so() -> None:
    assert "does not exist yet" in Explanation(POD, None, ()).lines()[0]


THEIRS: dict[str, Any] = {"metadata": {"name": "fast"}, "spec": {"owner": "kube-scheduler"}}
UNPLACED: dict[str, Any] = {
    **POD,
    "status": {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "cannot allocate all claims"}
        ],
    },
}


def test_where_kube_scheduler_decides_it_has_the_word() -> None:
    found = Explanation(UNPLACED, WAITS, (CLAIM,), THEIRS, ("vram: 8 of 8 devices",))

    assert "kube-scheduler decides about pool 'fast' (spec.owner), not dray" in found.lines()[0]
    assert found.lines()[1] == "  kube-scheduler says: cannot allocate all claims"
    assert found.lines()[3] == "    vram: 8 of 8 devices"
    assert found.as_json()["decides"] == "kube-scheduler"
    assert found.as_json()["reasons"] == ["vram: 8 of 8 devices"]


def test_explain_says_that_nobody_schedules_a_pod_for_drays_scheduler() -> None:
    pod = {**UNPLACED, "spec": {"schedulerName": "tensor-fusion-scheduler"}}

    assert "delete it and create it again" in Explanation(pod, WAITS, (), THEIRS).lines()[-1]


@pytest.mark.parametrize("owner", ["dray", "kube-scheduler"])
def test_while_the_owner_changes_the_pool_says_what_is_waited_for(owner: str) -> None:
    condition = {"type": "Ready", "reason": "OwnerChanging", "message": "until it has settled"}
    pool = {**THEIRS, "spec": {"owner": owner}, "status": {"conditions": [condition]}}

    assert "until it has settled" in Explanation(UNPLACED, None, (CLAIM,), pool).lines()[1]


@pytest.mark.parametrize("target", ["train", "pod/train", "pods/train", "po/train"])
def test_pods_are_named_as_kubectl_names_them(target: str) -> None:
    assert pod_name(target) == "train"


@pytest.mark.parametrize("target", ["node/x", "pod/", "", "a/pod/x"])
def test_what_is_not_a_pod_is_refused_by_name(target: str) -> None:
    with pytest.raises(click.BadParameter, match=f"'{target}' is not a pod"):
        pod_name(target)


HAND_WRITTEN: dict[str, Any] = {"metadata": {"name": "by-hand"}, "status": {}}


def test_explain_says_why_a_claim_written_by_hand_gets_no_card() -> None:
    plain = {**UNPLACED, "metadata": {"namespace": "default", "name": "web"}}

    lines = Explanation(plain, None, (), strange=(HAND_WRITTEN,)).lines()

    assert "asks for no GPU of dray" in lines[0]
    assert lines[1] == "  Claim by-hand is kube-scheduler's to allocate, not"
    assert "device taint tensor-fusion.ai/owner=dray:NoSchedule" in lines[2]
    assert lines[-1] == "  kube-scheduler says: cannot allocate all claims"


PLAIN: dict[str, Any] = {
    "metadata": {"namespace": "default", "name": "web"},
    "status": {"phase": "Running"},
}
HOLDS: dict[str, Any] = {
    "metadata": {"name": "by-hand"},
    "status": {"allocation": {"devices": {"results": [{**RESULT, "driver": DRIVER}]}}},
}
OTHER_DRIVERS: dict[str, Any] = {
    "metadata": {"name": "nic"},
    "status": {"allocation": {"devices": {"results": [{**RESULT, "driver": "nic.example.com"}]}}},
}


def test_a_claim_written_by_hand_that_holds_a_card_is_shown_with_it() -> None:
    found = Explanation(PLAIN, None, (), strange=(OTHER_DRIVERS, HOLDS))

    assert "has GPUs by claims written by hand" in found.lines()[0]
    assert found.lines()[1:] == ["  gpu-1 on node-1  virtual_vram=16Gi"]
    assert found.as_json()["allocated"] is True


def test_another_drivers_device_is_not_a_card_of_dray() -> None:
    found = Explanation(PLAIN, None, (), strange=(OTHER_DRIVERS,))

    assert "asks for no GPU of dray" in found.lines()[0]
    assert found.as_json()["allocated"] is False


def test_a_card_held_by_hand_is_not_the_one_that_the_annotations_ask_for() -> None:
    found = Explanation(POD, WAITS, (CLAIM,), strange=(HOLDS,))

    assert "waits for GPUs of pool 'fast'" in found.lines()[0]
    assert found.as_json()["allocated"] is False


def test_kube_schedulers_reason_for_an_allocated_pod_is_shown_with_its_cards() -> None:
    lines = Explanation(UNPLACED, WAITS, (ALLOCATED,), strange=(HAND_WRITTEN,)).lines()

    assert "has its GPUs" in lines[0]
    assert lines[2] == "  Claim by-hand is kube-scheduler's to allocate, not"
    assert lines[-1] == "  kube-scheduler says: cannot allocate all claims"


def test_a_gate_is_nothing_that_kube_scheduler_says() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    gated = {**POD, "status": {"phase": "Pending", "conditions": [condition]}}

    assert "kube-scheduler" not in "\n".join(Explanation(gated, WAITS, (CLAIM,)).lines())


UUID = "gpu-be008d03-aa40-5d64-8329-22122ec11e6b"


@pytest.mark.parametrize(
    ("flags", "shown"), [([], "n1/gpu-1  virtual_vram=8Gi"), (["--full-names"], f"{UUID} on n1")]
)
async def test_gpus_have_short_names_unless_their_full_ones_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], shown: str
) -> None:
    kube = MemoryKube()
    held = claim("train", UUID, tflops="0")
    held["metadata"]["labels"] = {"tensor-fusion.ai/gpupool": "fast"}
    await kube.create(SLICES, slice_of("n1", device(UUID, "02"), device("other", "01")))
    stored = await kube.create(CLAIMS, held)
    await kube.update(CLAIMS, {**stored, "status": held["status"]}, subresource="status")
    reference = {"name": "tensor-fusion-gpu-claim", "resourceClaimName": "train-claim"}
    spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [reference]}
    await kube.create(PODS, {"metadata": POD["metadata"], "spec": spec}, "team")

    async def connected(_: str | None) -> MemoryKube:
        return kube

    monkeypatch.setattr(module, "connect_kube", connected)
    arguments = ["pod/train", "-n", "team", *flags]
    done = await asyncio.to_thread(CliRunner().invoke, explain, arguments)

    assert shown in done.output


def test_a_pod_of_a_pool_that_nobody_serves_says_so() -> None:
    condition = {
        "type": "Served",
        "status": "False",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "message": "no allocator serves this pool",
    }
    pool = {"metadata": {"name": "fast"}, "spec": {}, "status": {"conditions": [condition]}}

    lines = Explanation(POD, None, (CLAIM,), pool).lines()

    assert lines[1] == (
        "  Served by no allocator since 2026-01-01T00:00:00Z: no allocator serves this pool"
    )


async def test_a_waiting_pod_names_pods_that_share_its_claim_and_dray_does_not_place() -> None:
    kube = MemoryKube()
    shared = {"metadata": {"name": "mine", "labels": {POOL_LABEL: "fast"}}, "spec": {}}
    await kube.create(CLAIMS, shared, "default")
    spec = {"resourceClaims": [{"name": "mine", "resourceClaimName": "mine"}]}
    annotated = {"annotations": {GPUPOOL: "fast"}}
    for name, more in {"train": annotated, "eval": annotated, "plain": {}}.items():
        metadata = {"name": name, "namespace": "default", **more}
        await kube.create(PODS, {"metadata": metadata, "spec": spec, "status": {}}, "default")
    await kube.create(BIND_REQUESTS, {"metadata": {"name": "train"}, "spec": {}}, "default")
    await kube.patch(BIND_REQUESTS, "train", WAITS, "default", subresource="status")

    lines = (await fetch_explanation(kube, "default", "train")).lines()

    assert lines[-1] == (
        "  A claim of the pod is also used by plain without dray's annotations: kube-scheduler may "
        "take the claim's allocation back to place that pod"
    )


SILENT = {
    "type": "NodeAgentsSilent",
    "status": "True",
    "message": "no report for 30 s from the node-agents of n1: new pods …",
}
SILENT_POOL = {"metadata": {"name": "fast"}, "spec": {}, "status": {"conditions": [SILENT]}}
SAYS_SILENT = (
    "  Of the pool's nodes: no report for 30 s from the node-agents of n1: new pods …. "
    "Do their node-agents run, and can they connect to NATS?"
)


def test_a_pod_of_a_pool_whose_node_agents_are_not_heard_says_so() -> None:
    assert Explanation(POD, None, (CLAIM,), SILENT_POOL).lines()[1] == SAYS_SILENT


@pytest.mark.parametrize(("phase", "says"), [("Pending", True), ("Running", False)])
def test_a_pod_that_is_to_be_prepared_says_that_node_agents_are_not_heard(
    phase: str, says: bool
) -> None:
    pod = {**POD, "status": {"phase": phase}}
    placed = Explanation(pod, None, (ALLOCATED,), SILENT_POOL, life=PodLife("n1"))

    assert (SAYS_SILENT in placed.lines()) == says


async def test_a_claim_that_kubernetes_refuses_to_create_says_why() -> None:
    kube = MemoryKube()
    metadata = {"name": "train", "namespace": "default", "annotations": {GPUPOOL: "fast"}}
    pod = await kube.create(PODS, {"metadata": metadata, "spec": {}}, "default")
    about = {"kind": "Pod", "name": "train", "uid": pod["metadata"]["uid"]}
    event = {
        "metadata": {"name": "train.1", "namespace": "default"},
        "involvedObject": about,
        "reason": "FailedResourceClaimCreation",
        "message": "forbidden: exceeded quota: gpus",
    }
    await kube.create(EVENTS, event, "default")

    assert (await fetch_explanation(kube, "default", "train")).lines()[1:] == [
        "  Kubernetes did not create it: forbidden: exceeded quota: gpus"
    ]


def test_each_gpu_names_the_container_that_uses_it() -> None:
    users = {"gpu-request-a": "a", "gpu-request-b": "b"}
    containers = [
        {"name": name, "resources": {"claims": [{"name": "gpu", "request": request}]}}
        for request, name in users.items()
    ]
    metadata = {"name": "p", "namespace": "ns", "annotations": {GPUPOOL: "pool"}}
    results = [
        {"request": request, "pool": "n1", "device": f"gpu-{name}"}
        for request, name in users.items()
    ]
    claim = {
        "metadata": {"name": "c"},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    pod = {"metadata": metadata, "spec": {"containers": containers, "nodeName": "n1"}}

    assert Explanation(pod, None, (claim,)).lines()[1:] == [
        "  gpu-a on n1  for container a",
        "  gpu-b on n1  for container b",
    ]
