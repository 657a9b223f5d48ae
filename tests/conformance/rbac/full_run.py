"""All that dray's services do in Kubernetes, brought about on one stack, rare things too."""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from tests.conformance.stand import NAMESPACE, Stand, phase_of, results_of

from dray.api.groups import GROUP_NAME_KEYS
from dray.api.names import (
    DEVICE_CLASS,
    DRAY_SCHEDULER,
    DRIVER,
    GANG_ENABLED,
    GPUPOOL,
    TFLOPS_REQUEST,
    VRAM_REQUEST,
)
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    EVENTS,
    NODES,
    POD_GROUPS,
    PODS,
    POLICIES,
    POOLS,
    SLICES,
    TEMPLATES,
    Changed,
    KubeUnavailableError,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)
from dray.messages.facts import ClusterObserved
from tools.faults.plan import DEDICATED, SHARED

JOBS = Resource("batch", "v1", "jobs", "Job")
HANDED = "handed-over"
"""A pool that kube-scheduler owns first, and dray then."""
POLICY = "default-scheduling-config"
SETTINGS: Mapping[str, str] = {
    "DRAY_LEASE__DURATION": "3s",
    "DRAY_LEASE__RENEW_DEADLINE": "2s",
    "DRAY_LEASE__RETRY": "500ms",
    "DRAY_PUBLISHING__STATUS_EVERY": "200ms",
    "DRAY_TEMPLATES__UNUSED_AFTER": "2s",
    "DRAY_TEMPLATES__COLLECT_EVERY": "500ms",
    "DRAY_OWNER__QUARANTINE": "1s",
}
POKED_FOR_S = 5.0
"""How long one claim is written on. On a slow machine dray would come too late every time."""


async def everything(
    stand: Stand, kept: ClusterObserved, has_read_pods: Callable[[], bool]
) -> None:
    """The whole run. ``has_read_pods`` says whether the claim-controller has read a single pod."""
    await allocate_and_bind(stand, kept)
    await look_up_before_denying(stand)
    await wait_for_changing_reasons(stand)
    await replace_a_bind_request(stand)
    await meet_conflicts(stand, has_read_pods)
    if kept.device_taints:
        await evict_who_came_late(stand)
    await start_a_job_as_a_group(stand)
    await ask_for_a_group(stand)
    await publish_slices_again(stand)
    await lose_an_agents_disk(stand)
    await stand.stack.restart("claim-controller")
    await stand.submit("after-the-restart", DEDICATED)
    await stand.running("after-the-restart")
    await remove_everything(stand)


async def allocate_and_bind(stand: Stand, kept: ClusterObserved) -> None:
    """By dray on dedicated nodes, by both on shared ones, by kube-scheduler on its own."""
    await stand.submit("own", DEDICATED)
    if not kept.device_taints:
        await stand.running("own")
        return
    await stand.kube.create(POOLS, _pool(HANDED, POLICY, owner="kube-scheduler"))
    await stand.submit("guest", SHARED)

    async def pool_is_known() -> bool:
        with suppress(RefusedError):
            await stand.submit("kubes", HANDED)
            return True
        return False

    await stand.until(pool_is_known, "kube-scheduler's pool takes pods")
    await stand.running("own", "guest", "kubes")


async def look_up_before_denying(stand: Stand) -> None:
    """Of a pool, a policy and a template that are not there the webhook asks once more."""
    await stand.kube.create(POOLS, _pool("without-policy", "nowhere"))
    spec = {"dra": {"enable": True, "resourceClaimTemplateName": "nowhere"}}
    await stand.kube.create(POLICIES, {"metadata": {"name": "without-template"}, "spec": spec})
    await stand.kube.create(POOLS, _pool("without-template", "without-template"))
    for pool in ("nowhere", "without-policy", "without-template"):
        with pytest.raises(RefusedError, match="nowhere"):
            await stand.submit("denied", pool)
    for pool in ("without-policy", "without-template"):
        await stand.kube.delete(POOLS, pool)


async def wait_for_changing_reasons(stand: Stand) -> None:
    """The event of a pod that waits is written again when the reason changes."""
    await stand.submit("greedy", DEDICATED, gpu_count="2", vram_request="40Gi")

    async def output_of() -> str:
        return await _message(stand, "greedy", "GPUWaiting")

    first = await stand.until(output_of, "the pod has a reason to wait")
    node = (await stand.pods())["own"]["spec"]["nodeName"]
    await stand.kube.patch(NODES, node, {"spec": {"unschedulable": True}})

    async def changed() -> bool:
        return await output_of() != first

    await stand.until(changed, "the pod has another reason")
    await stand.kube.patch(NODES, node, {"spec": {"unschedulable": None}})
    await stand.delete("own")
    await stand.running("greedy")
    await stand.delete("greedy")


async def replace_a_bind_request(stand: Stand) -> None:
    """One of an earlier pod of the same name."""
    former = {"podUID": str(uuid.uuid4()), "binder": "dray", "attempt": 1}
    made = {"metadata": {"name": "replaced", "namespace": NAMESPACE}, "spec": former}
    await stand.kube.create(BIND_REQUESTS, made, NAMESPACE)
    await stand.submit("replaced", DEDICATED)

    async def is_of_the_pod() -> bool:
        request = await stand.kube.get(BIND_REQUESTS, "replaced", NAMESPACE)
        pod = (await stand.pods())["replaced"]
        return bool(request["spec"]["podUID"] == pod["metadata"]["uid"])

    await stand.running("replaced")
    with suppress(NotFoundError):  # between the deletion and the creation
        await stand.until(is_of_the_pod, "the BindRequest is the new pod's")
    await stand.delete("replaced")  # where cards are not shared, it would have one of two


async def meet_conflicts(stand: Stand, has_read_pods: Callable[[], bool]) -> None:
    """Somebody else writes on claims while dray does: then dray reads claim and pod again."""
    poking = asyncio.create_task(_poke(stand))
    try:
        for number in range(40):
            name = f"poked-{number}"
            await stand.submit(name, DEDICATED)
            await stand.running(name)
            await stand.delete(name)
            if has_read_pods():
                return
    finally:
        poking.cancel()
        with suppress(asyncio.CancelledError):
            await poking
    pytest.fail("no conflict in 40 pods")


async def _poke(stand: Stand) -> None:
    """Every poke is a change that is answered by the next one, but not for ever."""
    first_seen_s: dict[str, float] = {}
    async for event in stand.kube.watch(CLAIMS):
        if isinstance(event, Changed) and not results_of(event.object):
            metadata, now_s = event.object["metadata"], time.monotonic()
            if now_s - first_seen_s.setdefault(metadata["uid"], now_s) > POKED_FOR_S:
                continue
            patch = {"metadata": {"annotations": {"dray.dev/poked": str(uuid.uuid4())}}}
            with suppress(NotFoundError, KubeUnavailableError):
                await stand.kube.patch(CLAIMS, metadata["name"], patch, metadata["namespace"])


async def evict_who_came_late(stand: Stand) -> None:
    """A pool comes back to dray, and an allocation by kube-scheduler lands on a card that dray
    has given away since."""
    await stand.kube.patch(POOLS, HANDED, {"spec": {"owner": "dray"}})

    async def is_drays() -> bool:
        pool = await stand.kube.get(POOLS, HANDED)
        return bool(pool.get("status", {}).get("owner") == "dray")

    await stand.until(is_drays, "the pool is dray's")
    await stand.submit("taken", HANDED, tflops_request="312", vram_request="40Gi")
    await stand.running("taken")
    taken = await stand.claim_of("taken")
    assert taken is not None
    await _allocate_by_hand(stand, "late", results_of(taken)[0])

    async def evicted() -> bool:
        pod = (await stand.pods()).get("late")
        return pod is None or "deletionTimestamp" in pod["metadata"]

    await stand.until(evicted, "the later claim's pod is evicted")
    await stand.until(lambda: _is_gone(stand, "late"), "the evicted pod is gone")
    await stand.kube.delete(CLAIMS, "late", NAMESPACE)


async def _allocate_by_hand(stand: Stand, name: str, card: Object) -> None:
    """As a kube-scheduler does that was asleep for long."""
    request = {"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS}}
    claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    await stand.kube.create(CLAIMS, claim, NAMESPACE)
    pod = await stand.kube.create(
        PODS,
        {
            "metadata": {"name": name},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [{"name": "app", "image": "app"}],
            },
        },
        NAMESPACE,
    )
    result = {**card, "request": "gpu", "shareID": str(uuid.uuid4())}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    allocation = {"devices": {"results": [result]}, "allocationTimestamp": now}
    user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    patch = {"status": {"allocation": allocation, "reservedFor": [user]}}
    await stand.kube.patch(CLAIMS, name, patch, NAMESPACE, subresource="status")


async def start_a_job_as_a_group(stand: Stand) -> None:
    """The group is made for the Job, in the default queue; a queue is looked up before a denial."""
    spec = {"minMember": 1, "queue": "nowhere"}
    with pytest.raises(RefusedError, match="nowhere"):
        await stand.kube.create(
            POD_GROUPS, {"metadata": {"name": "denied"}, "spec": spec}, NAMESPACE
        )
    asked = {
        GPUPOOL: DEDICATED,
        GANG_ENABLED: "true",
        TFLOPS_REQUEST: "100",
        VRAM_REQUEST: "16Gi",
    }
    template = {
        "metadata": {"annotations": asked},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "app"}]},
    }
    job = {
        "metadata": {"name": "group"},
        "spec": {"completions": 2, "parallelism": 2, "template": template},
    }
    await stand.kube.create(JOBS, job, NAMESPACE)

    async def members_run() -> bool:
        pods = [pod for name, pod in (await stand.pods()).items() if name.startswith("group-")]
        return [phase_of(pod) for pod in pods] == ["Running"] * 2

    async def has_status() -> bool:
        groups = (await stand.kube.list(POD_GROUPS, NAMESPACE)).objects
        return [one.get("status", {}).get("phase") for one in groups] == ["Running"]

    await stand.until(members_run, "the Job's pods run")
    await stand.until(has_status, "the group's status says so")
    await stand.kube.delete(JOBS, "group", NAMESPACE)


async def ask_for_a_group(stand: Stand) -> None:
    """The webhook asks whether the group of a pod without GPUs has any."""
    pod = {
        "metadata": {"name": "task", "annotations": {GROUP_NAME_KEYS[0]: "nowhere"}},
        "spec": {
            "schedulerName": DRAY_SCHEDULER,
            "containers": [{"name": "app", "image": "app"}],
        },
    }
    await stand.kube.create(PODS, pod, NAMESPACE)
    await stand.delete("task")


async def publish_slices_again(stand: Stand) -> None:
    """A slice that is too many goes, one that is missing comes, one that differs is changed."""
    (first, *_) = (await stand.kube.list(SLICES, field_selector=f"spec.driver={DRIVER}")).objects
    node = first["spec"]["nodeName"]
    odd = {"metadata": {"name": "odd"}, "spec": {**first["spec"], "devices": []}}
    await stand.kube.create(SLICES, odd)
    await stand.until(lambda: _has_slices(stand, node, without="odd"), "the odd slice goes")
    await stand.kube.delete(SLICES, first["metadata"]["name"])
    await stand.until(lambda: _has_slices(stand, node), "the slice comes again")


async def _has_slices(stand: Stand, node: str, without: str = "") -> bool:
    listed = await stand.kube.list(SLICES, field_selector=f"spec.nodeName={node}")
    names = [one["metadata"]["name"] for one in listed.objects]
    return bool(names) and without not in names


async def lose_an_agents_disk(stand: Stand) -> None:
    """The agent finds out from the claims what it has prepared. A pod that the kubelet tried to
    start meanwhile is made to be tried again."""
    await stand.submit("prepared", DEDICATED)
    await stand.running("prepared")
    await stand.stack.kill("node-agent-sim-1")
    for file in (stand.stack.nodes_directory / "sim-1" / "state").glob("*.json"):
        file.unlink()
    await stand.submit("touched", DEDICATED)
    failure = "FailedPrepareDynamicResources"
    await stand.until(lambda: _message(stand, "touched", failure), "the kubelet has tried it")
    await stand.stack.restart("node-agent-sim-1")
    await stand.running("touched")
    await stand.delete("touched")


async def remove_everything(stand: Stand) -> None:
    """Pods, and with them claims and templates."""
    await stand.recounted()
    await stand.delete(*await stand.pods())

    async def no_derived_template() -> bool:
        listed = await stand.kube.list(TEMPLATES, NAMESPACE)
        return [one["metadata"]["name"] for one in listed.objects] == ["base"]

    await stand.until(no_derived_template, "derived templates are removed")


async def _message(stand: Stand, pod: str, reason: str) -> str:
    listed = await stand.kube.list(EVENTS, NAMESPACE)
    return next(
        (
            str(event["message"])
            for event in listed.objects
            if event["involvedObject"]["name"] == pod and event["reason"] == reason
        ),
        "",
    )


async def _is_gone(stand: Stand, name: str) -> bool:
    return not phase_of((await stand.pods()).get(name))


def _pool(name: str, policy: str, **spec: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"schedulingConfigTemplate": policy, **spec}}
