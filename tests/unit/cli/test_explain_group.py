"""``dray explain podgroup/NAME`` says what a group waits for, and how far each of its pods is."""

from typing import Any

import pytest
from tests.unit.cli.gpu_objects import claim

from dray.api.names import ALLOCATION_GATE, GPUPOOL
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    NotFoundError,
)
from dray_cli.explain import group_name
from dray_cli.explain_group import explain_group

WHY = "PodGroup team/train lacks room for pods: 1 of 3 members"


@pytest.fixture
def kube() -> MemoryKube:
    return MemoryKube()


async def _group(kube: MemoryKube, resource: Any = POD_GROUPS, **parts: Any) -> None:
    spec = parts.pop("spec", {"minMember": 3})
    made = {"apiVersion": resource.api_version, "metadata": {"name": "train"}, "spec": spec}
    await kube.create(resource, made | parts, "team")


async def _pod(kube: MemoryKube, name: str, **parts: Any) -> None:
    annotations = {"scheduling.k8s.io/group-name": "train"}
    if pool := parts.pop("pool", "a"):
        annotations[GPUPOOL] = pool
    spec = {"containers": [], "schedulerName": "default-scheduler", **parts.pop("spec", {})}
    if parts.pop("claimed", False):
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"{name}-claim"}]
    metadata = {"name": name, "annotations": annotations, **parts.pop("metadata", {})}
    await kube.create(PODS, {"metadata": metadata, "spec": spec}, "team")
    await kube.patch(PODS, name, {"status": parts}, "team", subresource="status")


async def test_each_pod_of_a_group_has_a_state(kube: MemoryKube) -> None:
    condition = {
        "type": "Unschedulable",
        "status": "True",
        "message": WHY,
        "lastTransitionTime": "2026-11-26T05:38:48Z",
    }
    status = {"phase": "Inqueue", "conditions": [condition]}
    await _group(kube, spec={"minMember": 4}, status=status)
    await _pod(kube, "runs", claimed=True, spec={"nodeName": "n1"}, phase="Running")
    await _pod(kube, "committed", claimed=True)
    await _pod(kube, "waits", claimed=True)
    await _pod(kube, "unclaimed")
    await _pod(kube, "kueue", spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    await _pod(kube, "ps", pool="", spec={"schedulingGates": [{"name": ALLOCATION_GATE}]})
    await _pod(kube, "lost", spec={"nodeName": "n2"}, phase="Failed")
    await _pod(kube, "other", metadata={"annotations": {"scheduling.k8s.io/group-name": "x"}})
    for name in ("runs", "committed"):
        made = claim(name, "gpu-0")
        await kube.create(CLAIMS, made, "team")
        status = {"status": made["status"]}
        await kube.patch(CLAIMS, f"{name}-claim", status, "team", subresource="status")
    unallocated = {"metadata": {"name": "waits-claim"}, "spec": {}}
    await kube.create(CLAIMS, unallocated, "team")
    await kube.create(BIND_REQUESTS, {"metadata": {"name": "waits"}}, "team")
    explained = {"status": {"explanation": WHY}}
    await kube.patch(BIND_REQUESTS, "waits", explained, "team", subresource="status")

    found = await explain_group(kube, "team", "train")

    assert found.lines() == [
        "PodGroup team/train is Inqueue: it waits since 2026-11-26T05:38:48Z because",
        f"  {WHY}",
        "Too few of its pods have started: 1 of 4 pods (minMember)",
        "  has 1 GPU and no node yet: committed",
        "  is gated by kueue.x-k8s.io/admission: kueue",
        "  has failed: lost",
        "  starts with the group: ps",
        "  Running on n1 with 1 GPU: runs",
        "  has no ResourceClaim yet: unclaimed",
        "  waits for GPUs: waits",
    ]
    shown = found.as_json()
    assert shown["lacksPods"] == ""
    assert shown["lacksRunning"] == "1 of 4 pods (minMember)"
    assert shown["members"][-1]["reasons"] == [WHY]


async def test_a_pod_without_gpus_waits_for_room(kube: MemoryKube) -> None:
    """Its claim accounts for it, and asks for no device."""
    await _group(kube)
    for name in ("waits", "placed"):
        await _pod(kube, name, claimed=True)
        accounting = {"metadata": {"name": f"{name}-claim"}, "spec": {"devices": {}}}
        await kube.create(CLAIMS, accounting, "team")
    placed = {"status": {"allocation": {"devices": {}}}}
    await kube.patch(CLAIMS, "placed-claim", placed, "team", subresource="status")
    found = await explain_group(kube, "team", "train")
    assert [(one.name, one.state) for one in found.members] == [
        ("placed", "has a place and no node yet"),
        ("waits", "waits for room, and asks for no GPUs"),
    ]


async def test_a_group_of_kubernetes_is_found_by_its_kind_and_by_its_name(kube: MemoryKube) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    await _group(kube, NATIVE_POD_GROUPS, spec=spec)
    running = {"nodeName": "n", "schedulingGroup": {"podGroupName": "train"}}
    await _pod(kube, "a", spec=running, phase="Running", metadata={"annotations": {}})

    for resource in (None, NATIVE_POD_GROUPS):
        found = await explain_group(kube, "team", "train", resource)
        assert found.as_json()["api"] == "scheduling.k8s.io"
        assert found.lines()[-1] == "  Running on n: a"
    with pytest.raises(NotFoundError, match="there is no PodGroup team/train in the cluster"):
        await explain_group(kube, "team", "train", POD_GROUPS)


async def test_a_group_without_pods_says_so(kube: MemoryKube) -> None:
    await _group(kube)
    found = await explain_group(kube, "team", "train")
    assert found.lines() == [
        "PodGroup team/train is Pending: it waits because",
        "  no pod names it yet",
    ]


def test_groups_are_named_with_their_kind() -> None:
    assert group_name("podgroup/a") == (None, "a")
    assert group_name("podgroups.scheduling.k8s.io/a") == (NATIVE_POD_GROUPS, "a")
    assert group_name("pg.scheduling.volcano.sh/a") == (POD_GROUPS, "a")
    for other in ("a", "pod/a", "podgroup/", "podgroup.example.com/a"):
        assert group_name(other) is None
