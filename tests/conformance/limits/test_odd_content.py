"""Content that is nested deep, or no Unicode: it is kept as it is, and used."""

import pytest
from tests.conformance.limits.asking import allocated, made, submit_with
from tests.conformance.limits.neighbours import Neighbours
from tests.conformance.limits.objects import (
    DEEPEST,
    NAMESPACE,
    PARAMETERS_BYTES,
    claim,
    managed,
    nested,
    parameters_of,
    with_parameters,
)
from tests.conformance.path_b.cluster import Cluster

from dray.api.names import DRIVER
from dray.kube.ports import CLAIMS, RefusedError
from tools.faults.plan import DEDICATED

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]
MOST_LEVELS = PARAMETERS_BYTES // 2 - 4


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("levels", [2_000, MOST_LEVELS])
async def test_deep_parameters_reach_the_allocation_as_they_were_sent(
    cluster: Cluster, neighbours: Neighbours, levels: int
) -> None:
    async with made(cluster, CLAIMS, claim(with_parameters(nested(levels)))):
        await neighbours.are_served()
        await submit_with(cluster, "deep")
        allocation = await allocated(cluster, "deep")
        assert parameters_of(allocation["devices"]["config"]) == nested(levels)
        await neighbours.are_served()


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("text", [b'{"a":"\xff"}', b'{"a":"\\ud800"}'], ids=["bytes", "surrogate"])
async def test_parameters_that_are_not_unicode_are_used(
    cluster: Cluster, neighbours: Neighbours, text: bytes
) -> None:
    async with made(cluster, CLAIMS, claim(with_parameters(text))):
        await neighbours.are_served()
        await submit_with(cluster, "binary")
        allocation = await allocated(cluster, "binary")
        assert parameters_of(allocation["devices"]["config"]) == '{"a":"�"}'.encode()


@pytest.mark.parametrize("text", [nested(MOST_LEVELS), b'{"a":"\xff"}'], ids=["deep", "bytes"])
async def test_odd_parameters_for_dray_s_own_driver_are_refused(
    cluster: Cluster, neighbours: Neighbours, text: bytes
) -> None:
    with pytest.raises(RefusedError, match="expected GPUShareConfig"):
        await cluster.kube.create(CLAIMS, claim(with_parameters(text, DRIVER)), NAMESPACE)
    await neighbours.are_served()


@pytest.mark.usefixtures("gated")
async def test_a_claim_with_deep_managed_fields_is_used(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    async with made(cluster, CLAIMS, claim(**managed(DEEPEST - 100))):
        await neighbours.are_served()
        await submit_with(cluster, "managed")
        assert await allocated(cluster, "managed")


async def test_a_pod_with_deep_managed_fields_is_served(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    await cluster.submit("managed", DEDICATED, metadata=managed(DEEPEST - 100))
    await cluster.running("managed")
    await neighbours.are_served()
