"""One stack for all tests of this folder. Its NATS takes messages of 1 MiB, as NATS does where
nobody sets ``max_payload``: less than the longest objects that kube-apiserver takes."""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.conformance.left_out import only_where_taints_are_kept
from tests.conformance.limits.neighbours import Neighbours
from tests.conformance.path_b.cluster import Cluster, connected, until_published
from tests.conformance.stand import until_seen

from dray.api import names
from dray_sandbox.controlplane.build import wanted_minor
from dray_sandbox.layout import ControlPlane, StackOptions, simulated_nodes
from dray_sandbox.stack import Stack
from tools.faults.fault_stack import create_pools
from tools.faults.plan import DEDICATED

BOTH = [pytest.param("sandbox"), pytest.param("real", marks=pytest.mark.real)]
NODES, CARDS = 3, 2


@pytest_asyncio.fixture(scope="package", loop_scope="session", params=BOTH)
async def arena(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Three nodes of a dedicated pool, of two cards each."""
    control_plane: ControlPlane = request.param
    options = StackOptions(
        name=f"limits-{_kind(control_plane)}",
        control_plane=control_plane,
        nodes=simulated_nodes(NODES, gpus=CARDS, models=("A100",), pools=(DEDICATED,)),
        node_capacity={"cpu": "32", "memory": "64Gi", "pods": "110"},
        agents_in_one=True,
        max_payload_bytes=2**20,
        settings={
            "DRAY_ALLOCATOR__DRIVERS": names.DRIVER,
            "DRAY_PUBLISHING__STATUS_EVERY": "200ms",
        },
    )
    async with Stack(options) as stack, connected(stack) as cluster:
        await create_pools(cluster.kube)
        await until_published(cluster.kube, NODES * CARDS)
        yield cluster
        await until_seen(cluster.kube, cluster.history)
        assert cluster.history.check_all().violations == []


def _kind(control_plane: ControlPlane) -> str:
    """Runs of several minors may go on side by side, and workers of one run."""
    kind = control_plane if control_plane == "sandbox" else wanted_minor().replace(".", "-")
    return "-".join(filter(None, (kind, os.environ.get("PYTEST_XDIST_WORKER"))))


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(arena: Cluster) -> AsyncIterator[Cluster]:
    """The stack, without the pods of other tests."""
    yield arena
    await arena.clean_up()


@pytest_asyncio.fixture(loop_scope="session")
async def neighbours(cluster: Cluster) -> AsyncIterator[Neighbours]:
    """Pods next to the odd object of a test; they are still well when the test has ended."""
    found = await Neighbours.of(cluster)
    yield found


@pytest_asyncio.fixture(loop_scope="session")
async def gated(cluster: Cluster) -> None:
    """Nothing if hand-written claims are taken; elsewhere they are denied."""
    only_where_taints_are_kept(await cluster.keeps_taints())
