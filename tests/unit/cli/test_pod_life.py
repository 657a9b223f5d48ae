"""``dray explain`` follows a pod from its allocation to its end."""

from typing import Any

import pytest

from dray.api.names import DRIVER, HEALTH_TAINT
from dray.kube.memory import MemoryKube
from dray.kube.ports import BIND_REQUESTS, CLAIMS, EVENTS, NODES, PODS, SLICES, Object
from dray_cli.explain import Explanation, fetch_explanation

LATE = "2026-01-01T00:02:00Z"
RESULT = {"device": "gpu-1", "pool": "sim-2", "driver": DRIVER, "request": "gpu-request-main"}
ALLOCATION = {"devices": {"results": [RESULT]}}
ENDED = {"terminated": {"exitCode": 3, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": LATE}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
NOT_REGISTERED = "Failed to prepare dynamic resources: DRA driver d is not registered"


async def placed(
    phase: str, state: Object | None = None, *, node: bool = True, **status: Any
) -> tuple[MemoryKube, Object]:
    """A pod that was bound to sim-2 with one card."""
    kube = MemoryKube()
    if node:
        await kube.create(NODES, {"metadata": {"name": "sim-2"}, "spec": {}})
    uses = [{"name": "gpu", "request": "gpu-request-main"}]
    pod = await kube.create(
        PODS,
        {
            "metadata": {
                "name": "train",
                "namespace": "default",
                "annotations": {"tensor-fusion.ai/gpupool": "fast"},
            },
            "spec": {
                "nodeName": "sim-2",
                "containers": [{"name": "main", "resources": {"claims": uses}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "of-train"}],
            },
        },
        "default",
    )
    containers = [{"name": "main", "state": state}] if state else []
    status = {"phase": phase, "containerStatuses": containers, **status}
    await kube.patch(PODS, "train", {"status": status}, "default", subresource="status")
    given = [{"name": "of-train", "allocation": ALLOCATION}]
    spec = {"podUID": pod["metadata"]["uid"], "resourceClaimAllocations": given}
    await kube.create(BIND_REQUESTS, {"metadata": {"name": "train"}, "spec": spec}, "default")
    return kube, pod


async def hold(kube: MemoryKube, results: list[Object] | None = None) -> None:
    labels = {"tensor-fusion.ai/gpupool": "fast"}
    request = {"name": "gpu-request-main", "exactly": {"deviceClassName": "gpu"}}
    spec = {"devices": {"requests": [request]}}
    claim: Object = {"metadata": {"name": "of-train", "labels": labels}, "spec": spec}
    claim = await kube.create(CLAIMS, claim, "default")
    claim["status"] = {"allocation": {"devices": {"results": results}} if results else ALLOCATION}
    await kube.update(CLAIMS, claim, subresource="status")


def slice_of(node: str, devices: list[Object]) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": "s"}, "spec": spec}


async def failed_prepare(kube: MemoryKube, pod: Object, message: str, count: int) -> None:
    about = {"kind": "Pod", "name": "train", "uid": pod["metadata"]["uid"]}
    event = {"involvedObject": about, "reason": "FailedPrepareDynamicResources", "count": count}
    times = {"message": message, "lastTimestamp": LATE}
    named = {"metadata": {"name": "train.1", "namespace": "default"}}
    await kube.create(EVENTS, named | event | times, "default")


async def explained(kube: MemoryKube) -> Explanation:
    return await fetch_explanation(kube, "default", "train")


async def test_a_bound_pod_is_being_prepared() -> None:
    kube, _ = await placed("Pending", CREATING)
    await hold(kube)

    assert (await explained(kube)).lines() == [
        "Pod default/train is Pending and has its GPUs:",
        "  gpu-1 on sim-2  for container main",
        "  It is bound to sim-2, where the kubelet prepares them",
    ]


@pytest.mark.parametrize(
    "message",
    [
        NOT_REGISTERED,
        "rpc error: code = Unavailable desc = connection error: desc = transport: Error while "
        "dialing: dial unix /var/lib/kubelet/plugins/d/dra.sock: connect: connection refused",
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
    ],
)
async def test_a_failed_prepare_is_shown_and_that_the_nodes_agent_is_away(message: str) -> None:
    kube, pod = await placed("Pending", CREATING)
    await hold(kube)
    await failed_prepare(kube, pod, message, 3)

    found = await explained(kube)

    assert found.lines()[2:] == [
        f"  The kubelet of sim-2 failed to prepare them 3 times, last at {LATE}:",
        f"    {message}",
        "  The node-agent of sim-2 does not answer: the pod starts within seconds of its return",
    ]
    assert found.as_json()["failedPrepare"]["nodeAgentAway"] is True


async def test_a_failed_prepare_of_an_agent_that_is_there_is_its_own_message() -> None:
    kube, pod = await placed("Pending", CREATING)
    await hold(kube)
    await failed_prepare(kube, pod, "Failed to prepare dynamic resources: no such device", 1)

    lines = (await explained(kube)).lines()

    assert lines[2:] == [
        f"  The kubelet of sim-2 failed to prepare them once, last at {LATE}:",
        "    Failed to prepare dynamic resources: no such device",
    ]


async def test_an_image_that_can_not_be_pulled_is_named_and_no_old_failure() -> None:
    kube, pod = await placed("Pending", {"waiting": {"reason": "ErrImagePull", "message": "no"}})
    await hold(kube)
    await failed_prepare(kube, pod, NOT_REGISTERED, 1)

    assert (await explained(kube)).lines()[2:] == ["  Container main waits: ErrImagePull: no"]


async def test_a_running_pod_says_where() -> None:
    kube, pod = await placed("Running", {"running": {}})
    await hold(kube)
    await failed_prepare(kube, pod, NOT_REGISTERED, 1)

    assert (await explained(kube)).lines() == [
        "Pod default/train is Running on sim-2 and has its GPUs:",
        "  gpu-1 on sim-2  for container main",
    ]


async def test_a_pod_whose_node_is_gone_says_so() -> None:
    kube, _ = await placed("Running", {"running": {}}, node=False)
    await hold(kube)

    assert "Its node sim-2 is gone" in (await explained(kube)).lines()[2]


async def test_a_pod_whose_node_is_not_ready_says_so() -> None:
    kube, _ = await placed("Running", {"running": {}})
    await hold(kube)
    ready = {"type": "Ready", "status": "Unknown", "message": "kubelet stopped posting"}
    dated = ready | {"lastTransitionTime": LATE}
    await kube.patch(NODES, "sim-2", {"status": {"conditions": [dated]}}, subresource="status")

    assert (await explained(kube)).lines()[2] == (
        f"  Its node sim-2 is not ready since {LATE}: kubelet stopped posting"
    )


async def test_a_running_pod_names_its_unhealthy_card_and_no_other() -> None:
    kube, _ = await placed("Running", {"running": {}})
    await hold(kube)
    taints = [{"key": HEALTH_TAINT, "value": "xid-79", "effect": "NoSchedule"}]
    unknown = {"attributes": {"phase": {"string": "Unknown"}}, "taints": taints}
    devices = [{"name": "gpu-1", **unknown}, {"name": "gpu-2", **unknown}]
    await kube.create(SLICES, slice_of("sim-2", devices))

    found = await explained(kube)

    assert found.lines()[2:] == ["  GPU gpu-1 on sim-2 is unhealthy: xid-79; no other pod gets it"]
    assert found.as_json()["unhealthyDevices"] == ["gpu-1 on sim-2 is unhealthy: xid-79"]


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        (
            [{"nvlink_domain": "d", "numa_node": 0}, {"nvlink_domain": "d", "numa_node": 0}],
            "  The 2 GPUs are connected by NVLink, on one NUMA node",
        ),
        (
            [{"nvlink_domain": "d", "numa_node": 1}, {"numa_node": 1}],
            "  The 2 GPUs are connected on one NUMA node",
        ),
        (
            [{"nvlink_domain": "d"}, {"nvlink_domain": "e"}],
            "  The 2 GPUs have no NVLink, no NUMA node and no PCIe root in common",
        ),
        ([{}, {}], None),
        ([{"nvlink_domain": "d"}], None),
    ],
)
async def test_the_gpus_of_a_pod_are_connected_as_their_slices_say(
    attributes: list[dict[str, Any]], line: str | None
) -> None:
    kube, _ = await placed("Running", {"running": {}})
    results = [RESULT | {"device": f"gpu-{number}"} for number in range(len(attributes))]
    await hold(kube, results)
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                name: {"int" if isinstance(value, int) else "string": value}
                for name, value in one.items()
            },
        }
        for number, one in enumerate(attributes)
    ]
    await kube.create(SLICES, slice_of("sim-2", devices))

    found = await explained(kube)

    assert found.lines()[1 + len(results) :] == ([line] if line else [])
    assert (found.as_json()["connectedBy"] is None) is (line is None)


async def test_an_ended_pod_says_where_until_when_and_what_it_gave_back() -> None:
    kube, _ = await placed("Failed", ENDED)

    found = await explained(kube)

    assert found.lines() == [
        f"Pod default/train is Failed: it ran on sim-2 until {LATE}, exit code 3",
        "  Its GPUs, given back:",
        "    gpu-1 on sim-2",
    ]
    assert found.as_json()["ended"]["exits"] == ("main 3",)
    assert found.as_json()["reasons"] == []


async def test_an_ended_pod_names_the_claim_that_still_holds_its_devices() -> None:
    kube, _ = await placed("Succeeded", ENDED)
    await hold(kube)

    assert "  Its GPUs, still held by claim of-train:" in (await explained(kube)).lines()


async def test_a_pod_that_the_kubelet_rejected_says_why() -> None:
    kube, _ = await placed("Failed", reason="NodeAffinity", message="Pod was rejected: no match")

    assert (await explained(kube)).lines()[0] == (
        "Pod default/train is Failed: it was rejected on sim-2: "
        "NodeAffinity: Pod was rejected: no match"
    )


@pytest.mark.parametrize("phase", ["Pending", "Failed"])
async def test_a_bind_request_of_an_earlier_pod_is_not_shown(phase: str) -> None:
    kube, _ = await placed(phase, ENDED)
    await kube.patch(BIND_REQUESTS, "train", {"spec": {"podUID": "another"}}, "default")

    assert "gpu-1" not in "\n".join((await explained(kube)).lines())
