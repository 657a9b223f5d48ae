"""Each service rolled under load, with three servers of NATS.

No admission fails, no claim is lost, nothing is allocated twice.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.packaging.helm.installation import (
    INSTALLED,
    NAMESPACE,
    SIMULATED,
    WORKLOADS,
    Cluster,
    cluster,
)
from tests.packaging.helm.load import PODS_PER_S, under_load

# The first time-out counts.
pytestmark = [pytest.mark.timeout(1200), *INSTALLED, pytest.mark.long]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Cluster]:
    """A cluster with this release."""
    async with cluster("rollouts") as made:
        await made.install(*SIMULATED, "--set", "nats.replicas=3")
        await made.ready()
        yield made


@pytest.mark.parametrize("workload", WORKLOADS)
async def test_a_service_is_rolled_under_load(installed: Cluster, workload: str) -> None:
    async with under_load(installed, per_s=PODS_PER_S) as load:
        await installed.kubectl("rollout", "restart", workload, "-n", NAMESPACE)
        await installed.ready()
        await load.until_more_run(10)
