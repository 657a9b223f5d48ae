"""No answer of Kubernetes ends a loop of the node-agent.

``CALLS`` names every loop and every call that it makes; a new loop, or a new call of one, is to be
added here.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dray.api.enforcement import NOTHING_NAMED, Enforcement
from dray.kube.memory import MemoryKube
from dray.kube.memory_refusals import InjectedRefusal, KubeCall
from dray.kube.ports import (
    CLAIMS,
    PODS,
    SLICES,
    AlreadyExistsError,
    ConflictError,
    KubeError,
    KubeUnavailableError,
    NotFoundError,
    RefusedError,
    Resource,
    WatchEvent,
)
from dray.messages.inputs import AgentNoted
from dray.recording.journal import Journal
from dray.runtime.backoff import Backoff
from dray.runtime.clock import SystemClock
from dray.runtime.health import HealthPages
from dray_node_agent.app import assemble, open_gpus

CALLS: dict[str, set[tuple[str, str]]] = {
    "gpus": set(),
    "usage": set(),
    "facts": set(),
    "publish": {
        ("get", "nodes"),
        ("list", "resourceslices"),
        ("create", "resourceslices"),
        ("update", "resourceslices"),
        ("delete", "resourceslices"),
    },
    "enforcement": {("get", "nodes"), ("create", "pods"), ("delete", "pods")},
    "slices": {("watch", "resourceslices")},
    "kubelet": {("get", "resourceclaims"), ("list", "resourceclaims"), ("get", "pods")},
    "pods": {("watch", "pods")},
    "containers": set(),
    "sweep": {("get", "resourceclaims")},
    "inventory": set(),
    "events": set(),
    "usage-report": set(),
    "journal": set(),
}
ERRORS: list[KubeError] = [
    RefusedError("admission webhook policy.example.com denied the request", 403),
    RefusedError("invalid", 422),
    NotFoundError("not found"),
    ConflictError("moved"),
    AlreadyExistsError("there"),
    KubeUnavailableError("failed"),
    KubeUnavailableError("too many requests", 0.05),
]


class Client(MemoryKube):
    """Answers one call with every error in turn, and notes all calls."""

    def __init__(self, kube: MemoryKube, call: tuple[str, str] = ("", "")) -> None:
        super().__init__(kube.store)
        self.call = call
        # A claim whose pod is gone is prepared.
        is_answer = call == ("get", "pods")
        self.errors = [one for one in ERRORS if not (is_answer and isinstance(one, NotFoundError))]
        self.made: set[tuple[str, str]] = set()

    async def watch(self, resource: Resource, *args: Any, **more: Any) -> AsyncIterator[WatchEvent]:
        if self.call == ("get", resource.plural) and resource is PODS:
            await asyncio.Event().wait()  # what the watch has not shown yet is asked for
        async for event in super().watch(resource, *args, **more):
            yield event

    async def _enter(self, request: KubeCall) -> None:
        call = (request.method, request.resource.plural)
        self.made.add(call)
        if call == self.call and self.errors:
            raise self.errors.pop(0)
        await super()._enter(request)

    def peer(self) -> MemoryKube:
        return self


def test_all_loops_are_named_above(stand: Any) -> None:
    kube, bus, gpus = MemoryKube(), stand.bus, open_gpus(stand.group)
    journal = Journal(bus, AgentNoted, SystemClock(), instance="i")
    loops = assemble(stand.group, "i", bus, kube, gpus, HealthPages(), journal)

    assert set(loops) == set(CALLS)


class Quick(Backoff):
    """Waits for hundredths of a second."""

    def __init__(self, *_: float, **__: float) -> None:
        super().__init__(0.01, 0.02)


@pytest.mark.parametrize(
    "call", sorted({call for calls in CALLS.values() for call in calls}), ids=" ".join
)
async def test_no_answer_ends_a_loop(
    stand: Any, eventually: Any, call: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray_node_agent.agent.Backoff", Quick)
    runs_mps = call in (("create", "pods"), ("delete", "pods"))
    if runs_mps:
        stand.allow_mps()
    mps = Enforcement(enforcer="mps")
    await stand.tell_node(pool="pool-a", enforcement=mps if runs_mps else NOTHING_NAMED)
    if call == ("list", "resourceclaims"):
        # What there is is listed where the checkpoint can't be read.
        stand.group.state_dir.mkdir(parents=True)
        (stand.group.state_dir / "checkpoint.json").write_text("no checkpoint")
    kube, client = stand.kube, Client(stand.kube, call)
    stand.kube = client
    async with stand.agent() as health:
        stand.kube = kube
        async with stand.kubelet():
            await eventually(lambda: health.ready)
            (one,) = await eventually(stand.slices)
            if call == ("delete", "resourceslices"):
                await kube.create(SLICES, {**one, "metadata": {"name": "stale"}})
            if runs_mps:
                await eventually(stand.daemons)
            await stand.tell_node(pool="pool-b")
            while call == ("watch", "resourceslices") and client.errors:
                kube.expire_watches()
                await asyncio.sleep(0)
            await stand.make_claim("c", [one["spec"]["devices"][0]["name"]])
            await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))
            await stand.reaches("p", "Running")
            await eventually(lambda: not client.errors and health.ready)
    named = {call for calls in CALLS.values() for call in calls}
    assert client.made - {("create", "nodes")} <= named  # The node is the test's own.


async def test_a_claim_that_can_not_be_read_holds_up_no_other(stand: Any, eventually: Any) -> None:
    async with stand.agent():
        refused = InjectedRefusal(RefusedError("policy", 403), "get", CLAIMS, name="bad")
        stand.kube.refuse(refused)
        async with stand.kubelet():
            for name in ("bad", "good"):
                await stand.make_claim(name, [await stand.device()], tflops="1", vram="1Gi")
                await stand.reserve(name, await stand.make_pod(name, {"gpu": name}))
            await stand.reaches("good", "Running")
            assert await stand.phase("bad") == "Pending"
