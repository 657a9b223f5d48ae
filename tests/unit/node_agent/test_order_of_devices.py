"""The order of devices follows the prepared claims, without a write for each of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray.kube.ports import NODES, SLICES
from dray_node_agent import agent as agent_module
from dray_node_agent.agent import NodeAgent
from dray_node_agent.decisions.gpus import device_name
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.decisions.prepared_claim import PreparedClaim, PreparedDevice
from dray_node_agent.files.publication_record import PublicationRecordFile
from dray_node_agent.gpus.reader import GpuReader
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.node_state import NodeReporter
from dray_node_agent.settings import NodeGroup
from dray_node_agent.slice_publisher import SlicePublisher

GPUS = SimulatedGpus("n1", "A100", 3)
DEVICES = [device_name(gpu.uuid) for gpu in GPUS.read().gpus]
BOUND_S = 30.0


class CountingKube(MemoryKube):
    """Counts the writes of slices."""

    writes = 0

    async def create(self, resource: Any, *args: Any, **more: Any) -> Any:
        self.writes += resource is SLICES
        return await super().create(resource, *args, **more)

    async def update(self, resource: Any, *args: Any, **more: Any) -> Any:
        self.writes += resource is SLICES
        return await super().update(resource, *args, **more)


def claim_of(device: str) -> PreparedClaim:
    used = PreparedDevice(request="gpu", pool="n1", device=device, cdi_ids=())
    return PreparedClaim(
        uid=device, namespace="ns", name=device, phase="PrepareCompleted", devices=(used,), cdi={}
    )


@pytest.fixture
async def kube() -> CountingKube:
    kube = CountingKube()
    await kube.create(NODES, {"metadata": {"name": "n1"}, "spec": {}})
    return kube


@asynccontextmanager
async def running(
    kube: CountingKube, folder: Path, claims: list[PreparedClaim], **state: Any
) -> AsyncIterator[NodeAgent]:
    """An agent of a node of kube-scheduler that packs."""
    agent = NodeAgent(
        node=NodeGroup(name="n1", poll=0.05, resync=30.0, patience=0.01),
        gpus=GpuReader(GPUS),
        publisher=SlicePublisher(kube, "n1", PublicationRecordFile(folder / "record.json")),
        reporter=NodeReporter(MemoryBus(), "n1", "test"),
        claims=lambda: claims,
    )
    agent.on_state(
        NodeState("n1", "u", "p", owner="kube-scheduler", device_order="binpack", **state)
    )
    agent.on_registered("")
    loops = [agent.watch_gpus(), agent.publish(), agent.watch_slices()]
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield agent
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def order(kube: CountingKube) -> list[int]:
    return [
        DEVICES.index(device["name"])
        for one in (await kube.list(SLICES)).objects
        for device in one["spec"]["devices"]
    ]


async def until(kube: CountingKube, expected: list[int]) -> None:
    async with asyncio.timeout(BOUND_S):
        while await order(kube) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_claims_that_come_and_go_are_one_write_in_a_while(
    kube: CountingKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write has kube-scheduler try all pods again that wait for devices."""
    monkeypatch.setattr(agent_module, "ORDER_EVERY_S", 3600.0)
    claims: list[PreparedClaim] = []
    async with running(kube, tmp_path, claims) as agent:
        await until(kube, [0, 1, 2])
        for number in range(50):
            claims[:] = [claim_of(DEVICES[number % 3])]
            agent.on_claims()
            await asyncio.sleep(0.002)
    assert kube.writes == 1


async def test_the_order_follows_the_claims(
    kube: CountingKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "ORDER_EVERY_S", 0.05)
    claims = [claim_of(DEVICES[1])]
    async with running(kube, tmp_path, claims) as agent:
        await until(kube, [1, 0, 2])
        for device in (2, 0, 2):
            claims[:] = [claim_of(DEVICES[device])]
            agent.on_claims()
            await until(kube, [device, *(one for one in range(3) if one != device)])


async def test_a_drained_node_does_not_wait_for_the_next_order(
    kube: CountingKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "ORDER_EVERY_S", 3600.0)
    claims = [claim_of(DEVICES[0])]
    async with running(kube, tmp_path, claims, unschedulable=True) as agent:
        await until(kube, [0, 1, 2])
        claims.clear()
        agent.on_claims()
        await until(kube, [])
