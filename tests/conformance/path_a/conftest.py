"""One stack whose pools are kube-scheduler's, for all tests of a module."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.conformance.stand import NAMESPACE, Stand, standing

from dray.api import names
from dray.kube.ports import PODS, POLICIES, POOLS, SLICES, TEMPLATES, Kube, Object, Resource
from dray.kube.probe import probe
from dray.messages.facts import ClusterObserved
from dray_sandbox.layout import SimulatedNode, StackOptions

BIG, SMALL, EXAMPLE = "big", "small", "everyone"
CARDS = {"sim-1": 8, "sim-2": 2, "sim-3": 5}
POOL_OF = {"sim-1": BIG, "sim-2": SMALL, "sim-3": EXAMPLE}
POLICY = "on"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand() -> AsyncIterator[Stand]:
    """A node of eight cards in one pool, one of two in another, both kube-scheduler's; and one
    for the pool of the example."""
    nodes = tuple(
        SimulatedNode(name, "A100", count, {names.POOL_LABEL: POOL_OF[name]})
        for name, count in CARDS.items()
    )
    options = StackOptions(name="path-a", control_plane="real", nodes=nodes)
    async with standing(options) as made:
        await create_pools(made.kube, {BIG: "kube-scheduler", SMALL: "kube-scheduler"})
        await until_untainted(made, {"sim-1", "sim-2"})
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keeps(stand: Stand) -> ClusterObserved:
    """What the API server keeps."""
    return await probe(stand.kube, "dray-system", revision=1)


@pytest.fixture
def health_of(stand: Stand) -> Callable[[str], Path]:
    """The file that makes cards of a node sick."""
    return lambda node: stand.stack.nodes_directory / node / "state" / "unhealthy"


async def create_pools(kube: Kube, owners: dict[str, str]) -> None:
    """A policy, a base template, and pools with their owners."""
    request = {"name": names.GPU_REQUEST, "exactly": {"deviceClassName": names.DEVICE_CLASS}}
    base = {
        "name": names.BASE_TEMPLATE,
        "namespace": NAMESPACE,
        "labels": {names.TEMPLATE_LABEL: "true"},
    }
    policy = {"metadata": {"name": POLICY}, "spec": {"dra": {"enable": True}}}
    template = {"metadata": base, "spec": {"spec": {"devices": {"requests": [request]}}}}
    wanted: list[tuple[Resource, Object]] = [(POLICIES, policy), (TEMPLATES, template)]
    for pool, owner in owners.items():
        spec = {"schedulingConfigTemplate": POLICY, "owner": owner}
        wanted.append((POOLS, {"metadata": {"name": pool}, "spec": spec}))
    for resource, obj in wanted:
        await kube.create(resource, obj)


async def until_untainted(stand: Stand, nodes: set[str]) -> None:
    """Wait until the nodes' cards are published as kube-scheduler's."""

    async def published() -> bool:
        listed = await stand.kube.list(SLICES, field_selector=f"spec.driver={names.DRIVER}")
        ready = {part["spec"]["nodeName"] for part in listed.objects if _is_theirs(part)}
        return nodes <= ready

    await stand.until(published, f"cards without the owner taint on {sorted(nodes)}")


def _is_theirs(part: Object) -> bool:
    devices = part["spec"].get("devices") or ()
    return bool(devices) and all(
        device["attributes"]["pool_name"]["string"]
        and names.OWNER_TAINT not in [taint["key"] for taint in device.get("taints") or ()]
        for device in devices
    )


@asynccontextmanager
async def gone_after(stand: Stand) -> AsyncIterator[list[str]]:
    """Pods named in the list go when the block ends, whatever became of them."""
    made: list[str] = []
    try:
        yield made
    finally:
        for name in made:
            await stand.kube.delete(PODS, name, NAMESPACE)

        async def gone() -> bool:
            return not set(made) & (await stand.pods()).keys()

        await stand.until(gone, "the test's pods gone")
