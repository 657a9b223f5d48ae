"""One stack for all tests of this folder: a dedicated pool, a shared one, and little room."""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.conformance.left_out import only_where_taints_are_kept
from tests.conformance.path_b.cluster import (
    HOSTNAME,
    OTHER_DRIVER,
    WITHDRAW_AFTER_S,
    Cluster,
    connected,
    until_published,
)
from tests.conformance.stand import until_seen

from dray.api import names
from dray_sandbox.controlplane.build import wanted_minor
from dray_sandbox.layout import ControlPlane, StackOptions, simulated_nodes
from dray_sandbox.stack import Stack
from tools.faults.fault_stack import create_pools
from tools.faults.plan import DEDICATED, SHARED

BOTH = [pytest.param("sandbox"), pytest.param("real", marks=pytest.mark.real)]
ZONE = "topology.kubernetes.io/zone"
CPUS = 8
CARDS = 2
SETTINGS = {
    "DRAY_ALLOCATOR__DRIVERS": f"{names.DRIVER},{OTHER_DRIVER}",
    "DRAY_EXECUTION__WITHDRAW_AFTER": f"{WITHDRAW_AFTER_S:g}s",
    "DRAY_EXECUTION__WITHDRAW_EVERY": "200ms",
    "DRAY_ALLOCATOR__EXCLUSION": "20s",
    "DRAY_PUBLISHING__STATUS_EVERY": "200ms",
    "DRAY_TEMPLATES__UNUSED_AFTER": "5s",
}
NODES_BY_POOL = {DEDICATED: ("sim-1", "sim-4"), SHARED: ("sim-2", "sim-3", "sim-5")}


@pytest_asyncio.fixture(scope="package", loop_scope="session", params=BOTH)
async def arena(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Five nodes of two cards and eight cpus each: two dedicated, three shared."""
    control_plane: ControlPlane = request.param
    count = sum(map(len, NODES_BY_POOL.values()))
    pool_of = {node: pool for pool, nodes in NODES_BY_POOL.items() for node in nodes}
    options = StackOptions(
        name=f"path-b-{_kind(control_plane)}",
        control_plane=control_plane,
        nodes=simulated_nodes(
            count,
            gpus=CARDS,
            models=("A100",),
            pools=[pool_of[f"sim-{number}"] for number in range(1, count + 1)],
            labels=[f"{node}:{HOSTNAME}={node}" for node in pool_of]
            + [f"{node}:{ZONE}=zone-{node[-1]}" for node in pool_of],
        ),
        node_capacity={"cpu": str(CPUS), "memory": "64Gi", "pods": "110", "dray.dev/token": "1"},
        agents_in_one=True,
        settings=SETTINGS,
    )
    async with Stack(options) as stack, connected(stack) as cluster:
        await create_pools(cluster.kube)
        await until_published(cluster.kube, count * CARDS)
        yield cluster
        await until_seen(cluster.kube, cluster.history)
        assert cluster.history.check_all().violations == []


def _kind(control_plane: ControlPlane) -> str:
    """Runs of several minors may go on side by side, and workers of one run."""
    kind = control_plane if control_plane == "sandbox" else wanted_minor().replace(".", "-")
    return "-".join(filter(None, (kind, os.environ.get("PYTEST_XDIST_WORKER"))))


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(arena: Cluster) -> AsyncIterator[Cluster]:
    """The stack, without the pods of other tests, and with all nodes open."""
    yield arena
    for node in NODES_BY_POOL[SHARED]:
        await arena.node(node, unschedulable=None, taints=None)
    await arena.clean_up()


@pytest_asyncio.fixture(loop_scope="session")
async def gated(cluster: Cluster) -> None:
    """Nothing if pods are gated; elsewhere the test means nothing."""
    only_where_taints_are_kept(await cluster.keeps_taints())
