"""Under load: an upgrade from an earlier release, and back, and services of both together.

With one server of NATS and with three. 0.2.0-rc.1 is upgraded with one: on three it decides next to
nothing, its facts refuse each other. No admission fails, no claim is lost, nothing is allocated
twice. The tests of one start are steps of one story.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Start:
    """What is installed before the upgrade."""

    release: Release
    nats_servers: int

    @property
    def values(self) -> tuple[str, ...]:
        """Of the chart, before and after the upgrade."""
        return (*SIMULATED, "--set", f"nats.replicas={self.nats_servers}")


FIRST = Start(Release("0.2.0-rc.1"), 1)
"""A field of a custom resource, a setting and a message have changed since."""
THREE = Start(Release("0.2.0-rc.2"), 3)
STARTS = [
    pytest.param(start, id=f"{start.release.version}-nats-{start.nats_servers}")
    for start in (FIRST, THREE)
]


@dataclass(frozen=True, slots=True)
class Installed:
    """A cluster with the earlier release."""

    start: Start
    cluster: Cluster


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed(request: pytest.FixtureRequest) -> AsyncIterator[Installed]:
    """A cluster with the release of a ``Start``."""
    start: Start = request.param
    async with cluster("upgrades", start.release.images(), ARCHIVE) as made:
        await made.install(*start.values, chart=start.release.chart)
        await made.ready()
        yield Installed(start, made)


async def images_of(cluster: Cluster) -> set[str]:
    """Tags of the images that dray's pods run."""
    pods = await cluster.objects("pods", "-n", NAMESPACE)
    return {
        container["image"].rpartition(":")[2]
        for pod in pods
        for container in pod["spec"]["containers"]
        if "dray-" in container["image"]
    }


async def only(cluster: Cluster, release: str) -> None:
    """Wait until dray's pods run images of this release alone."""

    async def runs() -> bool:
        return await images_of(cluster) == {release}

    await cluster.until(runs, f"pods of {release} alone")


@pytest.mark.parametrize("installed", STARTS, indirect=True)
async def test_an_upgrade_under_load(installed: Installed) -> None:
    cluster, start = installed.cluster, installed.start
    assert await images_of(cluster) == {start.release.version}

    async with under_load(cluster, per_s=PODS_PER_S) as load:
        await cluster.upgrade(*start.values)
        await cluster.ready()
        await load.until_more_run(10)
    await only(cluster, version())


@pytest.mark.parametrize("installed", STARTS, indirect=True)
async def test_a_rollback_under_load(installed: Installed) -> None:
    cluster, start = installed.cluster, installed.start
    async with under_load(cluster, per_s=PODS_PER_S) as load:
        await cluster.helm("rollback", RELEASE, "1", "-n", NAMESPACE, "--force-conflicts")
        await cluster.ready()
        await load.until_more_run(10)
    await only(cluster, start.release.version)


@pytest.mark.parametrize("installed", STARTS[:1], indirect=True)
@pytest.mark.parametrize(
    "newer",
    ["claim-controller", "allocator", "webhook", "node-agent"],
    ids=lambda name: f"new-{name}",
)
async def test_one_service_of_the_new_release_works_with_the_others(
    installed: Installed, newer: str
) -> None:
    cluster, old = installed.cluster, installed.start.release.version
    kind = "daemonset" if newer == "node-agent" else "deployment"
    image = f"{newer}=dray-{newer}:"
    workload = f"{kind}/dray-{newer}"
    async with under_load(cluster, per_s=PODS_PER_S) as load:
        await cluster.kubectl("set", "image", workload, f"{image}{version()}", "-n", NAMESPACE)
        await cluster.ready()
        await load.until_more_run(10)
    await cluster.kubectl("set", "image", workload, f"{image}{old}", "-n", NAMESPACE)
    await cluster.ready()
