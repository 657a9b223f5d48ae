"""The sandbox's node lifecycle controller and pod garbage collector."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from dray.kube.memory import MemoryKube
from dray.kube.ports import LEASES, NODES, PODS
from dray.runtime.clock import ManualClock
from dray_sandbox.controllers import node_lifecycle
from dray_sandbox.controllers.node_lifecycle import NodeLifecycleController
from dray_sandbox.controllers.node_rules import (
    TOLERATION_S,
    eviction_delay_s,
    grace_s,
    wanted_taints,
)

Object = dict[str, Any]
NOW = "2026-11-21T15:00:00Z"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


Check = Callable[[], Awaitable[bool]]
TOLERATIONS = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in (NOT_READY, UNREACHABLE)
]


def node(ready: str = "True", taints: list[Object] | None = None) -> Object:
    return {
        "metadata": {"name": "n1"},
        "spec": {"taints": taints or []},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def pod(*tolerations: Object) -> Object:
    return {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], "tolerations": [*tolerations]},
    }


def taint(key: str, effect: str = "NoExecute") -> Object:
    return {"key": key, "effect": effect, "timeAdded": NOW}


def test_taints_follow_the_ready_condition_and_others_stay():
    mine = {"key": "mine", "effect": "NoExecute"}
    both = [taint(UNREACHABLE, "NoSchedule"), taint(UNREACHABLE)]
    assert wanted_taints(node("Unknown", [mine]), NOW) == [mine, *both]
    assert wanted_taints(node("Unknown", [mine, *both]), NOW) is None
    assert [one["key"] for one in wanted_taints(node("False", both), NOW)] == [NOT_READY] * 2
    assert wanted_taints(node("True", [mine, *both]), NOW) == [mine]
    assert wanted_taints(node("True", [mine]), NOW) is None


def test_where_nothing_is_evicted_a_silent_node_only_gets_no_new_pods():
    schedule = taint(UNREACHABLE, "NoSchedule")
    assert wanted_taints(node("Unknown"), NOW, evicts=False) == [schedule]
    assert wanted_taints(node("Unknown", [schedule, taint(UNREACHABLE)]), NOW, evicts=False) == [
        schedule
    ]
    assert wanted_taints(node("Unknown", [schedule]), NOW, evicts=False) is None


@pytest.mark.parametrize(
    ("tolerations", "taints", "delay_s"),
    [
        ([], [taint("k", "NoSchedule")], None),
        ([], [taint("k")], 0.0),
        ([{"key": "k", "operator": "Exists"}], [taint("k")], None),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 7}], [taint("k")], 7.0),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 500}], [taint("k")], 500.0),
        (
            [{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}],
            [taint(UNREACHABLE)],
            TOLERATION_S,
        ),
        ([{"key": "k", "operator": "Exists"}], [taint("k"), taint("other")], 0.0),
    ],
)
def test_a_pod_stays_as_long_as_it_tolerates_every_taint(tolerations, taints, delay_s):
    assert eviction_delay_s(pod(*tolerations), node(taints=taints)) == delay_s


@pytest.mark.parametrize(
    ("lease", "seconds"),
    [
        ({"spec": {"leaseDurationSeconds": 40}}, 20.0),
        ({"spec": {"leaseDurationSeconds": 160}}, 80.0),
        ({"spec": {"leaseDurationSeconds": 10**400}}, 300.0),
        ({"spec": {"leaseDurationSeconds": 0}}, 20.0),
        ({"spec": {"leaseDurationSeconds": "40"}}, 20.0),
        ({"spec": {}}, 20.0),
        ({"spec": None}, 20.0),
        ({}, 20.0),
    ],
)
def test_a_lease_may_stay_as_it_is_for_half_its_duration(lease: Object, seconds: float) -> None:
    assert grace_s(lease) == seconds


@pytest.fixture
async def kube(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryKube]:
    """Two nodes, of which only n1 has a kubelet's lease, and a pod on n1."""
    monkeypatch.setattr(node_lifecycle, "PERIOD_S", 0.01)
    kube = MemoryKube()
    await kube.create(NODES, node())
    await kube.create(NODES, node() | {"metadata": {"name": "fleet"}})
    lease = {"metadata": {"name": "n1"}, "spec": {"renewTime": "2026-11-21T15:00:00.000000Z"}}
    await kube.create(LEASES, lease, "kube-node-lease")
    await kube.create(PODS, pod(*TOLERATIONS), "team")
    return kube


@contextlib.asynccontextmanager
async def controlled(kube: MemoryKube) -> AsyncIterator[Callable[[Check], Awaitable[None]]]:
    """The controller runs; yields a function that advances its clock until a check holds."""
    clock = ManualClock()
    task = asyncio.create_task(NodeLifecycleController(kube.peer(), clock).run())

    async def until(holds: Check) -> None:
        async with asyncio.timeout(20):
            while not await holds():
                await clock.advance(5.0)
                await asyncio.sleep(0.02)

    yield until
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def ready(kube: MemoryKube, name: str) -> str:
    return str((await kube.get(NODES, name))["status"]["conditions"][0]["status"])


async def no_pod(kube: MemoryKube) -> bool:
    return not (await kube.list(PODS)).objects


async def test_a_silent_node_is_not_ready_and_its_pods_are_evicted(kube: MemoryKube) -> None:
    async with controlled(kube) as until:
        await until(lambda: is_unknown(kube))
        await until(lambda: is_ending(kube))
        taints = (await kube.get(NODES, "n1"))["spec"]["taints"]
        assert [(one["key"], one["effect"]) for one in taints] == [
            (UNREACHABLE, "NoSchedule"),
            (UNREACHABLE, "NoExecute"),
        ]
        assert await ready(kube, "fleet") == "True"


async def test_where_no_node_is_ready_no_pod_is_evicted(kube: MemoryKube) -> None:
    """A cluster that starts: its kubelets may be slower than its controllers."""
    await say(kube, "fleet", "Unknown")
    async with controlled(kube) as until:
        await until(lambda: is_unknown(kube))
        questions = iter(range(20))

        async def is_asked_often() -> bool:
            assert not await is_ending(kube)
            return next(questions, None) is None

        await until(is_asked_often)
        taints = (await kube.get(NODES, "n1"))["spec"]["taints"]
        assert [(one["key"], one["effect"]) for one in taints] == [(UNREACHABLE, "NoSchedule")]

        await say(kube, "fleet", "True")
        await until(lambda: is_ending(kube))


async def test_pods_of_a_deleted_node_are_deleted(kube: MemoryKube) -> None:
    await kube.delete(NODES, "n1")
    async with controlled(kube) as until:
        await until(lambda: no_pod(kube))


async def say(kube: MemoryKube, name: str, ready: str) -> None:
    await kube.patch(NODES, name, {"status": node(ready)["status"]}, subresource="status")


async def is_ending(kube: MemoryKube) -> bool:
    return "deletionTimestamp" in (await kube.get(PODS, "p", "team"))["metadata"]


async def is_unknown(kube: MemoryKube) -> bool:
    return await ready(kube, "n1") == "Unknown"
