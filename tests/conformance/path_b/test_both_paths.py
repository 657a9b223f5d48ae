"""Everybody at once on fifty nodes: dray binds, kube-scheduler binds what dray allocated,
kube-scheduler allocates by itself, and ordinary pods take cpu away from all who share nodes."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.conformance.left_out import only_where_taints_are_kept
from tests.conformance.stand import until_seen

from dray.api import names
from dray.api.errors import TemporaryError
from dray.kube.ports import (
    CLAIMS,
    PODS,
    POOLS,
    SLICES,
    Kube,
    Object,
    Resource,
)
from dray_sandbox.controlplane.build import wanted_minor
from dray_sandbox.layout import StackOptions, simulated_nodes
from dray_sandbox.stack import Stack
from tools.faults.fault_stack import create_pools
from tools.faults.history import StackHistory, watch_history
from tools.faults.plan import DEDICATED, SHARED
from tools.retry import connect_with_retries

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.real,
    pytest.mark.timeout(600),
]
KUBE_OWNED = "kube-pool"
POOL_OF_NODES = [*[DEDICATED] * 15, *[SHARED] * 25, *[KUBE_OWNED] * 10]
CPUS, CARDS = 8, 2
NAMESPACE = "default"
GPU_PODS = {DEDICATED: 50, SHARED: 80, KUBE_OWNED: 20}
"""By pool, each of two cpus and half a card: they fit, but only if ordinary pods make room."""
ORDINARY_PODS = 90
STAYING = 20
"""Ordinary pods that are left in the end."""
STORM_S = 10.0
PATIENCE_S = 200.0
SETTINGS = {
    "DRAY_EXECUTION__WITHDRAW_AFTER": "2s",
    "DRAY_EXECUTION__WITHDRAW_EVERY": "500ms",
    "DRAY_ALLOCATOR__EXCLUSION": "5s",
    "DRAY_PUBLISHING__STATUS_EVERY": "500ms",
}


@dataclass(slots=True)
class Fleet:
    """The cluster, and every change that was seen on it."""

    kube: Kube
    history: StackHistory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[Fleet]:
    """Fifty nodes in three pools on a real control plane."""
    options = StackOptions(
        name=f"both-paths-{wanted_minor().replace('.', '-')}",
        control_plane="real",
        nodes=simulated_nodes(
            len(POOL_OF_NODES), gpus=CARDS, models=("A100",), pools=POOL_OF_NODES
        ),
        node_capacity={"cpu": str(CPUS), "memory": "64Gi", "pods": "110"},
        agents_in_one=True,
        allocators=2,
        settings=SETTINGS,
    )
    async with AsyncExitStack() as undo:
        stack = await undo.enter_async_context(Stack(options))
        kube = await connect_with_retries(stack.record.kubeconfig, user_agent="dray-test")
        undo.push_async_callback(kube.close)
        await create_pools(kube)
        policy = (await kube.get(POOLS, SHARED))["spec"]["schedulingConfigTemplate"]
        spec = {"owner": names.OWNER_KUBE_SCHEDULER, "schedulingConfigTemplate": policy}
        await kube.create(POOLS, {"metadata": {"name": KUBE_OWNED}, "spec": spec})
        yield Fleet(kube, await undo.enter_async_context(watch_history(kube)))


async def test_all_paths_at_once_oversell_nothing_and_place_everything(fleet: Fleet) -> None:
    dice = random.Random(7)
    wishes = [(pool, f"{pool}-{number}") for pool, n in GPU_PODS.items() for number in range(n)]
    wishes += [("", f"plain-{number}") for number in range(ORDINARY_PODS)]
    dice.shuffle(wishes)
    await _published(fleet)

    began_s = time.monotonic()
    async with asyncio.TaskGroup() as users:
        for number, (pool, name) in enumerate(wishes):
            at_s = began_s + STORM_S * number / len(wishes)
            users.create_task(_live(fleet.kube, dice.random(), at_s, pool, name))
    _say(f"{len(wishes)} pods created, {time.monotonic() - began_s:.1f} s")
    there = (await fleet.kube.list(PODS, NAMESPACE)).objects
    plain = [pod["metadata"]["name"] for pod in there if not _pool_of(pod)]
    await _delete(fleet, plain[STAYING:])

    pods = await _until_all_run(fleet, sum(GPU_PODS.values()) + STAYING)
    _say(f"all run after {time.monotonic() - began_s:.1f} s: {_by_binder(pods)}")
    await until_seen(fleet.kube, fleet.history, within_s=PATIENCE_S)
    _say(f"decisions that kube-scheduler could not use: {_rolled_back(fleet)}")
    _check_history(fleet)
    placed = Counter(_pool_of(pod) for pod in pods)
    assert placed == {**GPU_PODS, "": STAYING}

    await _delete(fleet, [pod["metadata"]["name"] for pod in pods])
    await _until(fleet, PODS, lambda listed: not listed, "the pods are gone")
    await _until(fleet, CLAIMS, lambda listed: not listed, "the claims are gone")
    await until_seen(fleet.kube, fleet.history, within_s=PATIENCE_S)
    _check_history(fleet)


async def _live(kube: Kube, luck: float, at_s: float, pool: str, name: str) -> None:
    """Create the pod when it is time. Ordinary ones come and go a few times before they stay."""
    await asyncio.sleep(max(0.0, at_s - time.monotonic()))
    pod = _pod(pool, name)
    await kube.create(PODS, pod, NAMESPACE)
    if not pool and luck < 0.5:
        await asyncio.sleep(1.0 + luck)
        await kube.delete(PODS, name, NAMESPACE, grace_period_s=0)
        again = _pod(pool, f"{name}-again")
        await kube.create(PODS, again, NAMESPACE)


def _pod(pool: str, name: str) -> Object:
    container = {
        "name": "app",
        "image": "app",
        "resources": {"requests": {"cpu": "2", "memory": "64Mi"}},
    }
    annotations = {names.GPUPOOL: pool, names.TFLOPS_REQUEST: "150", names.VRAM_REQUEST: "16Gi"}
    return {
        "metadata": {"name": name, "annotations": annotations if pool else {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }


def _check_history(fleet: Fleet) -> None:
    """No device was ever allocated twice, no pod bound past its claim or refused by a node."""
    assert fleet.history.check_all().violations == []
    rejected = [
        (change.key[1], (change.object.get("status") or {}).get("reason"))
        for change in fleet.history.changes
        if change.resource == PODS
        and change.object is not None
        and (change.object.get("status") or {}).get("phase") == "Failed"
    ]
    assert rejected == []


def _rolled_back(fleet: Fleet) -> int:
    """Attempts that were void in the end, of all claims."""
    void: set[tuple[str, str]] = set()
    for change in fleet.history.changes:
        if change.resource == CLAIMS and change.object is not None:
            annotations = change.object["metadata"].get("annotations") or {}
            if (attempt := annotations.get(names.VOID)) is not None:
                void.add((change.object["metadata"]["uid"], attempt))
    return len(void)


async def _published(fleet: Fleet) -> None:
    def complete(listed: tuple[Object, ...]) -> bool:
        return sum(len(one["spec"].get("devices") or ()) for one in listed) == 50 * CARDS

    listed = await _until(fleet, SLICES, complete, "all cards are published")
    only_where_taints_are_kept(not all(map(_untainted, listed)))
    await _until(
        fleet,
        SLICES,
        lambda listed: all(bool(_untainted(one)) == _is_of_kube(one) for one in listed),
        "the cards of kube-scheduler's pool are untainted",
    )


def _is_of_kube(part: Object) -> bool:
    return int(part["spec"]["nodeName"].removeprefix("sim-")) > 40


def _untainted(part: Object) -> bool:
    return not any(device.get("taints") for device in part["spec"]["devices"])


async def _until_all_run(fleet: Fleet, count: int) -> tuple[Object, ...]:
    def all_run(listed: tuple[Object, ...]) -> bool:
        return len(listed) == count and all(
            pod["status"].get("phase") == "Running" for pod in listed
        )

    return await _until(fleet, PODS, all_run, f"all {count} pods run")


async def _until(
    fleet: Fleet, resource: Resource, condition: Callable[[tuple[Object, ...]], bool], what: str
) -> tuple[Object, ...]:
    listed: tuple[Object, ...] = ()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(TemporaryError):
                    listed = (await fleet.kube.list(resource)).objects
                    if condition(listed):
                        return listed
                await asyncio.sleep(0.5)
    except TimeoutError:
        pytest.fail(f"not within {PATIENCE_S:g} s: {what}\n" + "\n".join(_waiting(listed)))


def _waiting(listed: tuple[Object, ...]) -> list[str]:
    late = []
    for one in listed:
        status = one.get("status") or {}
        if one.get("kind", "Pod") == "Pod" and status.get("phase") not in (None, "Running"):
            why = [entry.get("message", "") for entry in status.get("conditions") or ()]
            gates = one["spec"].get("schedulingGates")
            late.append(f"{one['metadata']['name']} {status.get('phase')} {gates} {why}"[:300])
    return late


async def _delete(fleet: Fleet, pods: Iterable[str]) -> None:
    for name in pods:
        await fleet.kube.delete(PODS, name, NAMESPACE)


def _pool_of(pod: Object) -> str:
    return (pod["metadata"].get("annotations") or {}).get(names.GPUPOOL, "")


def _by_binder(pods: tuple[Object, ...]) -> dict[str, int]:
    return dict(Counter(pod["spec"]["schedulerName"] for pod in pods))


def _say(line: str) -> None:
    print(line, flush=True)
