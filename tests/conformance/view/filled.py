"""The cluster as dray fills it, by steps of a seed, before a fresh kube-scheduler begins."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.conformance.stand import NAMESPACE, Stand, phase_of
from tests.conformance.view.churn import Create, Delete, Step

from dray.api import names
from dray.api.quantities import parse_quantity
from dray.kube.ports import BIND_REQUESTS, EVENTS, PODS, POOLS, KubeUnavailableError, Object
from dray.messages.facts import ClusterObserved
from dray_sandbox.access import SCHEDULER
from dray_sandbox.controlplane.audit import AuditedRequest

KUBES = "theirs"
"""A pool that kube-scheduler owns."""
SEED, STEPS = 20261121, 500
SHARES_AT_ONCE, CARDS_AT_ONCE = 70, 9
"""Pods at once: more shares of cards than there is room for, and fewer whole cards."""
FILL_TFLOPS, FILL_VRAM = "50", "8Gi"
AT_A_TIME = 8
BUSY_S = 240.0
OVERSOLD = {"oversubscription": {"tflopsRatio": 1.5, "vramRatio": 2}}


@dataclass(slots=True)
class View:
    """The cluster after dray's steps, and what a fresh kube-scheduler does from then on."""

    stand: Stand
    kept: ClusterObserved
    before: dict[str, Object]
    """Allocations by claim, as dray and the former kube-scheduler left them."""
    waited: int
    """Pods for which there was no room at the end."""
    log_began: int
    """Bytes of the former kube-scheduler's log."""
    audit_began: int
    """Requests before the fresh one's."""

    def log(self) -> str:
        """What the fresh kube-scheduler printed."""
        text = self.stand.stack.runner.log("kube-scheduler").read_bytes()
        return text[self.log_began :].decode()

    def requests(self) -> list[AuditedRequest]:
        """What the fresh kube-scheduler asked of the API server."""
        return self.stand.audited(SCHEDULER)[self.audit_began :]


async def ready(stand: Stand, kept: ClusterObserved) -> None:
    """Wait until every pool is served and every card is published as its pool wants it."""

    async def holds() -> bool:
        ready = [
            condition["status"]
            for pool in (await stand.kube.list(POOLS)).objects
            for condition in pool.get("status", {}).get("conditions") or ()
            if condition["type"] == "Ready"
        ]
        devices = await stand.devices()
        untainted = sum(not device.get("taints") for device in devices)
        in_pools = all(device["attributes"]["pool_name"]["string"] for device in devices)
        theirs = 8 if kept.device_taints else 24
        return ready == ["True"] * 3 and len(devices) == 24 and in_pools and untainted == theirs

    await stand.until(holds, "three pools of eight cards")


async def churn(stand: Stand, all_steps: Iterable[Step]) -> None:
    """Take the steps, some at a time; a deletion waits for its pod's creation."""
    made: dict[str, asyncio.Event] = {}
    slots = asyncio.Semaphore(AT_A_TIME)

    async def take(step: Step) -> None:
        async with slots:
            if isinstance(step, Delete):
                await made[step.name].wait()
                await stand.kube.delete(PODS, step.name, NAMESPACE)
                return
            await _create(stand, step)
            made[step.name].set()

    async with asyncio.TaskGroup() as group:
        for step in all_steps:
            if isinstance(step, Create):
                made[step.name] = asyncio.Event()
            async with slots:
                group.create_task(take(step))


async def _create(stand: Stand, step: Create) -> None:
    asked = {"tflops_request": str(step.tflops), "vram_request": f"{step.vram_gi}Gi"}
    for _ in range(10):
        try:
            await stand.submit(step.name, step.pool, gpu_count=str(step.gpus), **asked)
            return
        except KubeUnavailableError:
            await asyncio.sleep(1)  # the webhook of a busy machine took too long
    raise AssertionError(f"{step} could not be created")


async def settle(stand: Stand) -> int:
    """Wait until every pod runs or has a reason to wait; then remove those that wait."""

    async def settled() -> dict[str, bool] | None:
        pods = await stand.pods()
        if any("deletionTimestamp" in pod["metadata"] for pod in pods.values()):
            return None
        runs = {name: phase_of(pod) == "Running" for name, pod in pods.items()}
        waiting = [name for name, running in runs.items() if not running]
        reported = await _pods_with_reasons(stand)
        return runs if all(name in reported for name in waiting) else None

    runs = await stand.until(settled, "every pod runs or has a reason to wait", BUSY_S)
    waiting = [name for name, running in runs.items() if not running]
    await stand.delete(*waiting)
    return len(waiting)


async def make_room(stand: Stand, pools: Iterable[str]) -> None:
    """Let the pod of each pool go that frees most: by chance its cards may be full."""
    asked = {name: pod["metadata"]["annotations"] for name, pod in (await stand.pods()).items()}
    for pool in pools:
        members = [name for name in asked if asked[name].get(names.GPUPOOL) == pool]
        await stand.delete(max(members, key=lambda name: _shares(asked[name])))


def _shares(asked: Mapping[str, str]) -> int:
    """How many pods of the filling kind have room where one that asks for this was."""
    tflops = parse_quantity(asked[names.TFLOPS_REQUEST]).nano // parse_quantity(FILL_TFLOPS).nano
    return min(
        tflops, parse_quantity(asked[names.VRAM_REQUEST]).nano // parse_quantity(FILL_VRAM).nano
    )


async def _pods_with_reasons(stand: Stand) -> set[str]:
    """Pods with a reason to wait from dray or kube-scheduler."""
    requests = await stand.kube.list(BIND_REQUESTS, NAMESPACE)
    by_dray = {
        one["metadata"]["name"]
        for one in requests.objects
        if one.get("status", {}).get("phase") == "Pending"
    }
    return by_dray | await refused_pods(stand)


async def refused_pods(stand: Stand) -> set[str]:
    """Pods that kube-scheduler reported as unschedulable."""
    events = await stand.kube.list(EVENTS, NAMESPACE)
    return {
        event["involvedObject"]["name"]
        for event in events.objects
        if event["reason"] == "FailedScheduling"
        and "cannot allocate all claims" in event["message"]
    }
