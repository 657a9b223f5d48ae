"""Pods that are bound and not prepared are touched: soon, a few times, never without an agent."""

from typing import Any

import msgspec
from tests.integration.claim_controller.virtual import VirtualWorld, in_virtual_time

from dray.api.names import DRIVER, PREPARE_AGAIN
from dray.kube.ports import CLAIMS, PODS
from dray.messages.rpc import INVENTORY_SUBJECT, Inventory, InventoryReply

NODE = "node-1"


async def agent_reports(
    world: VirtualWorld, *, registered: float, node: str = NODE, prepared: tuple[str, ...] = ()
) -> None:
    """What the node-agent says every ten seconds."""
    report = Inventory(
        node=node,
        driver=DRIVER,
        generation=1,
        registered_unix_s=registered,
        prepared=prepared,
    )
    answer = await world.bus.peer(node).request(
        f"{INVENTORY_SUBJECT}.{node}", msgspec.json.encode(report), timeout_s=1
    )
    assert msgspec.json.decode(answer, type=InventoryReply).accepted


async def bound_pod(world: VirtualWorld) -> None:
    world.allocate()
    await world.pod()
    await world.until(
        lambda: world.kube.store.get(PODS, "workload", "default")["spec"].get("nodeName"), "bound"
    )


def touches(world: VirtualWorld) -> list[str]:
    """Every value that the annotation ever had."""

    def value(obj: Any) -> Any:
        return (obj["metadata"].get("annotations") or {}).get(PREPARE_AGAIN)

    return world._history(PODS, value)


async def has_sandbox(world: VirtualWorld, status: str) -> None:
    condition = {"type": "PodReadyToStartContainers", "status": status}
    patch = {"status": {"phase": "Pending", "conditions": [condition]}}
    await world.kube.patch(PODS, "workload", patch, "default", subresource="status")


def test_a_pod_that_is_not_prepared_is_touched_soon_and_a_few_times() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await agent_reports(world, registered=1)
        await bound_pod(world)
        await has_sandbox(world, "False")
        await world.clock.sleep(1.5)
        assert touches(world) == []
        await world.clock.sleep(1.5)
        assert len(touches(world)) == 1
        for _ in range(20):
            await agent_reports(world, registered=1)
            await world.clock.sleep(10)
        assert len(touches(world)) == 5
        message = world.events("workload")["PreparationRetried"]
        assert "the kubelet of node node-1 has not started this pod 62 s after" in message
        assert "(5 of 5)" in message
        assert world.running[0].controller.term.preparation.touched == 5

        await agent_reports(world, registered=2)
        await world.clock.sleep(0.5)
        assert len(touches(world)) == 6

    in_virtual_time(scenario)


def test_a_pod_whose_containers_are_started_is_left_alone() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await agent_reports(world, registered=1)
        await bound_pod(world)
        await has_sandbox(world, "True")
        await world.clock.sleep(20)
        assert touches(world) == []
        # As after a reboot of the node.
        await has_sandbox(world, "False")
        await world.clock.sleep(3)
        assert len(touches(world)) == 1

    in_virtual_time(scenario)


def test_a_pod_that_is_prepared_is_not_touched_for_half_a_minute() -> None:
    """Its kubelet is busy with others, and each touch would be more work for it."""

    async def scenario(world: VirtualWorld) -> None:
        await agent_reports(world, registered=1)
        await bound_pod(world)
        await has_sandbox(world, "False")
        (claim,) = (await world.kube.list(CLAIMS, "default")).objects
        await world.clock.sleep(1)
        await agent_reports(world, registered=1, prepared=(claim["metadata"]["uid"],))
        await world.clock.sleep(25)
        assert touches(world) == []
        await agent_reports(world, registered=1)
        await world.clock.sleep(6)
        assert len(touches(world)) == 1

    in_virtual_time(scenario)


def test_a_prepared_pod_is_touched_when_the_agent_registers_again() -> None:
    """The kubelet may have missed the answer."""

    async def scenario(world: VirtualWorld) -> None:
        await agent_reports(world, registered=1)
        await bound_pod(world)
        await has_sandbox(world, "False")
        (claim,) = (await world.kube.list(CLAIMS, "default")).objects
        await agent_reports(world, registered=1, prepared=(claim["metadata"]["uid"],))
        await world.clock.sleep(10)
        assert touches(world) == []
        await agent_reports(world, registered=2)
        await world.clock.sleep(0.5)
        assert len(touches(world)) == 1

    in_virtual_time(scenario)


def test_an_agent_says_nothing_of_the_claims_of_other_nodes() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await agent_reports(world, registered=1)
        await world.node("node-2", "")
        await bound_pod(world)
        await has_sandbox(world, "False")
        (claim,) = (await world.kube.list(CLAIMS, "default")).objects
        uid = claim["metadata"]["uid"]
        await agent_reports(world, registered=1, node="node-2", prepared=(uid,))
        await world.clock.sleep(3)
        assert len(touches(world)) == 1

    in_virtual_time(scenario)


def test_nothing_is_touched_on_a_node_without_its_agent_until_it_registers() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await world.clock.sleep(40)
        await bound_pod(world)
        await world.clock.sleep(60)
        assert touches(world) == []
        await agent_reports(world, registered=1)
        await world.clock.sleep(0.5)
        assert len(touches(world)) == 1

    in_virtual_time(scenario)


def test_another_nodes_agent_touches_nothing() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await world.node("node-2", "")
        await world.clock.sleep(40)
        await bound_pod(world)
        await agent_reports(world, registered=1, node="node-2")
        await world.clock.sleep(10)
        assert touches(world) == []

    in_virtual_time(scenario)
