"""Many nodes in one process look to others as their own agents would."""

import asyncio

from benchmarks.node_fleet import NodeFleet
from dray.api.names import OWNER_TAINT
from dray.api.pods import Node
from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS
from dray.kube.memory import MemoryKube
from dray.kube.ports import NODES, SLICES, Object
from dray.messages.base import encode
from dray.messages.facts import NodeObserved
from dray_node_agent.decisions.inventory import NodeState
from dray_sandbox.layout import simulated_nodes

NODES_OF_ALL = simulated_nodes(20, pools=["big"])


async def bus() -> MemoryBus:
    made = MemoryBus()
    for spec in STREAMS:
        await made.ensure(spec)
    return made


async def slices_of(kube: MemoryKube) -> dict[str, Object]:
    listed = await kube.list(SLICES)
    return {one["spec"]["nodeName"]: one for one in listed.objects}


def taints(published: Object) -> set[str]:
    found = (device.get("taints", ()) for device in published["spec"]["devices"])
    return {taint["key"] for entry in found for taint in entry}


async def test_every_node_is_ready_with_its_cards() -> None:
    kube = MemoryKube()
    reported: list[int] = []
    await NodeFleet(kube, NODES_OF_ALL).publish(reported.append)
    nodes = (await kube.list(NODES)).objects
    published = await slices_of(kube)
    assert reported == list(range(1, 21))
    assert {node["metadata"]["name"] for node in nodes} == set(published)
    assert {len(one["spec"]["devices"]) for one in published.values()} == {8}


async def test_a_second_fleet_takes_over_with_a_higher_generation() -> None:
    kube = MemoryKube()
    await NodeFleet(kube, NODES_OF_ALL).publish()
    await NodeFleet(
        kube, NODES_OF_ALL, state_of=lambda node: NodeState(node.name, owner="kube-scheduler")
    ).publish()
    published = await slices_of(kube)
    assert {one["spec"]["pool"]["generation"] for one in published.values()} == {2}
    assert taints(published["sim-1"]) == set()


async def test_the_cards_follow_the_owner_that_the_bus_tells() -> None:
    kube, facts = MemoryKube(), await bus()
    fleet = NodeFleet(kube, NODES_OF_ALL, bus=facts)
    await fleet.publish()
    assert taints((await slices_of(kube))["sim-3"]) == {OWNER_TAINT}
    node = Node(name="sim-3", uid="u", pool="big", owner="kube-scheduler")
    following = asyncio.create_task(fleet.follow())
    try:
        await facts.publish(encode(NodeObserved(revision=1, node=node), source="/test"))
        async with asyncio.timeout(30):
            async for _ in kube.watch(SLICES):
                published = await slices_of(kube)
                if not taints(published["sim-3"]):
                    break
    finally:
        following.cancel()
    device = published["sim-3"]["spec"]["devices"][0]
    assert device["attributes"]["pool_name"] == {"string": "big"}
    assert taints(published["sim-4"]) == {OWNER_TAINT}
