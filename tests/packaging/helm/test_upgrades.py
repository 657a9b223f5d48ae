"""Under load: an upgrade from an earlier release, and back, and services of both together.

One server of NATS: on three, 0.2.0-rc.1 decides next to nothing (its facts refuse each other).
No admission fails, no claim is lost, nothing is allocated twice. The tests are steps of one story.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.packaging.helm.installation import (
    INSTALLED,
    NAMESPACE,
    RELEASE,
    SIMULATED,
    Cluster,
    cluster,
)
from tests.packaging.helm.load import PODS_PER_S, under_load
from tests.packaging.helm.releases import Release

from tools.images.__main__ import ARCHIVE
from tools.version import version

# The first time-out counts.
pytestmark = [pytest.mark.timeout(1200), *INSTALLED, pytest.mark.long]

BEFORE = Release("0.2.0-rc.1")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Cluster]:
    """A cluster with the earlier release."""
    async with cluster("upgrades", BEFORE.images(), ARCHIVE) as made:
        await made.install(*SIMULATED, chart=BEFORE.chart)
        await made.ready()
        yield made


async def images_of(cluster: Cluster) -> set[str]:
    """Tags of the images that dray's pods run."""
    pods = await cluster.objects("pods", "-n", NAMESPACE)
    return {
        container["image"].rpartition(":")[2]
        for pod in pods
        for container in pod["spec"]["containers"]
        if "dray-" in container["image"]
    }


async def test_an_upgrade_under_load(installed: Cluster) -> None:
    assert await images_of(installed) == {BEFORE.version}

    async with under_load(installed, per_s=PODS_PER_S) as load:
        await installed.upgrade(*SIMULATED)
        await installed.ready()
        await load.until_more_run(10)

    async def only_new() -> bool:
        return await images_of(installed) == {version()}

    await installed.until(only_new, "pods of the new release alone")


async def test_a_rollback_under_load(installed: Cluster) -> None:
    async with under_load(installed, per_s=PODS_PER_S) as load:
        await installed.helm("rollback", RELEASE, "1", "-n", NAMESPACE, "--force-conflicts")
        await installed.ready()
        await load.until_more_run(10)

    async def only_old() -> bool:
        return await images_of(installed) == {BEFORE.version}

    await installed.until(only_old, "pods of the old release alone")


@pytest.mark.parametrize(
    "newer",
    ["claim-controller", "allocator", "webhook", "node-agent"],
    ids=lambda name: f"new-{name}",
)
async def test_one_service_of_the_new_release_works_with_the_others(
    installed: Cluster, newer: str
) -> None:
    kind = "daemonset" if newer == "node-agent" else "deployment"
    image = f"{newer}=dray-{newer}:"
    workload = f"{kind}/dray-{newer}"
    async with under_load(installed, per_s=PODS_PER_S) as load:
        await installed.kubectl("set", "image", workload, f"{image}{version()}", "-n", NAMESPACE)
        await installed.ready()
        await load.until_more_run(10)
    await installed.kubectl("set", "image", workload, f"{image}{BEFORE.version}", "-n", NAMESPACE)
    await installed.ready()
