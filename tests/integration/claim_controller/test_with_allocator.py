"""The claim-controller and two real allocators meet on one bus."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import prometheus_client
import pytest

from dray.api.names import POOL_LABEL
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, LEASES, NODES, PODS, POOLS
from dray.messages.decisions import log_stream
from dray_allocator.service.replica import Replica
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions

CARDS_HOLD = 3
"""Pods of 100 tflops on a card of 312."""


@pytest.fixture
async def cluster(world: Any) -> AsyncIterator[Any]:
    """The world, with a controller and two allocator replicas at work."""
    await world.ready(await world.start())
    for name in ("allocator-1", "allocator-2"):
        state = AllocatorState(AllocatorOptions(writer=name))
        shell = Replica(
            world.bus.peer(),
            state,
            AllocatorMetrics(state, prometheus_client.CollectorRegistry()),
            lease_ttl_s=0.3,
            lease_renewal_s=0.1,
        )
        world.helpers.append(asyncio.ensure_future(shell.run()))
    return world


def bound(world: Any) -> dict[str, str]:
    """Node by pod."""
    pods = world.kube.store.of(PODS).values()
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName")
    }


def sold(world: Any) -> dict[str, int]:
    """TFLOPS held on each device, by all claims."""
    total: dict[str, int] = {}
    for obj in world.kube.store.of(CLAIMS).values():
        allocation = claim_from(obj).allocation
        for device in allocation.devices if allocation is not None else ():
            amounts = {key.rpartition("/")[2]: value for key, value in device.consumed.items()}
            key = str(device.id)
            total[key] = total.get(key, 0) + int(amounts["virtual_tflops"])
    return total


async def test_pods_fill_the_cards_and_no_further(cluster: Any) -> None:
    for index in range(8):
        await cluster.pod(f"pod-{index}", shape=cluster.shape("100", "4Gi"))
    await cluster.until(lambda: len(bound(cluster)) == 2 * CARDS_HOLD, "six of eight are bound")

    async def counted() -> bool:
        status = (await cluster.kube.get(POOLS, "default-pool")).get("status") or {}
        return status.get("waitingPods") == 2

    await cluster.until(counted, "two wait")
    assert sorted(sold(cluster).values()) == [300, 300]


async def test_a_waiting_pod_takes_the_place_of_one_that_went(cluster: Any) -> None:
    whole = cluster.shape("312", "4Gi")
    for name in ("a", "b"):
        await cluster.pod(name, shape=whole)
    await cluster.until(lambda: len(bound(cluster)) == 2, "both cards are taken")
    await cluster.pod("c", shape=whole)
    claim = await cluster.until(lambda: cluster.claim("a"), "its claim")
    await cluster.kube.delete(PODS, "a", "default", grace_period_s=0)
    # kube-controller-manager: the claim of a pod that is gone is deallocated and goes too.
    await cluster.kube.delete(CLAIMS, claim["metadata"]["name"], "default")
    patch = {"metadata": {"finalizers": None}}
    await cluster.kube.patch(CLAIMS, claim["metadata"]["name"], patch, "default")

    await cluster.until(lambda: "c" in bound(cluster), "the waiting pod is bound")
    assert sorted(sold(cluster).values()) == [312, 312]


async def test_a_node_moves_with_what_is_held_on_it(cluster: Any) -> None:
    await cluster.pool("other", dedicated=True)
    await cluster.pod("before", shape=cluster.shape("200", "4Gi"))
    await cluster.until(lambda: "before" in bound(cluster), "a pod of the old pool")
    labels = {"metadata": {"labels": {POOL_LABEL: "other"}}}
    await cluster.kube.patch(NODES, "node-1", labels)
    for index in range(3):
        shape = cluster.shape("200", "4Gi", pool="other")
        await cluster.pod(f"after-{index}", shape=shape, pool="other")

    await cluster.until(lambda: len(bound(cluster)) == 2, "one more fits, on the other card")

    async def counted() -> bool:
        status = (await cluster.kube.get(POOLS, "other")).get("status") or {}
        return status.get("waitingPods") == 2 and status.get("nodes") == 1

    await cluster.until(counted, "the new pool has the node, and two pods wait")
    assert sorted(sold(cluster).values()) == [200, 200]


async def test_an_emptied_bus_sells_nothing_twice(cluster: Any) -> None:
    for index in range(4):
        await cluster.pod(f"pod-{index}", shape=cluster.shape("100", "4Gi"))
    await cluster.until(lambda: len(bound(cluster)) >= 1, "some are bound")
    cluster.bus.server.lose_everything()
    for index in range(4, 8):
        await cluster.pod(f"pod-{index}", shape=cluster.shape("100", "4Gi"))
    await cluster.until(lambda: len(bound(cluster)) == 2 * CARDS_HOLD, "six of eight are bound")
    # A term that ends because its streams are gone may leave the second epoch to the next one.
    later_logs = {log_stream("default-pool", epoch) for epoch in (2, 3, 4)}
    assert later_logs & set(cluster.bus.server.streams)
    assert sorted(sold(cluster).values()) == [300, 300]


async def test_a_controller_lost_in_the_middle_is_followed_by_another(cluster: Any) -> None:
    for index in range(8):
        await cluster.pod(f"pod-{index}", shape=cluster.shape("100", "4Gi"))
    await cluster.until(lambda: cluster.allocations(), "the first allocation")
    (first,) = cluster.running
    for task in first.tasks:
        task.cancel()
    await asyncio.gather(*first.tasks, return_exceptions=True)
    await cluster.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    await cluster.start("second")

    await cluster.until(lambda: len(bound(cluster)) == 2 * CARDS_HOLD, "six of eight are bound")
    assert sorted(sold(cluster).values()) == [300, 300]
    assert len(cluster.bindings()) == 2 * CARDS_HOLD
