"""Objects longer than a message of the bus: one that dray can't take is reported."""

import pytest
from tests.conformance.limits.asking import made, reported, submit_with
from tests.conformance.limits.neighbours import Neighbours
from tests.conformance.limits.objects import (
    ANNOTATIONS_BYTES,
    NAME,
    NAMESPACE,
    OTHER_DRIVER,
    annotations,
    claim,
    metadata,
    of_size,
)
from tests.conformance.path_b.cluster import Cluster

from dray.api import names
from dray.kube.ports import CLAIMS, SLICES, TEMPLATES, RefusedError
from tools.faults.plan import DEDICATED

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]
SIZES = [1_200_000, 1_480_000]
TOO_LARGE = "too large for the bus: "
DEVICES, ATTRIBUTES = 128, 32


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("size_bytes", SIZES)
async def test_a_claim_is_reported_and_so_is_the_pod_that_uses_it(
    cluster: Cluster, neighbours: Neighbours, size_bytes: int
) -> None:
    async with made(cluster, CLAIMS, claim(of_size(size_bytes))) as large:
        await submit_with(cluster, "large")
        assert "max_payload" in await reported(cluster, large, TOO_LARGE)
        assert f"claim {NAME}" in await reported(cluster, await cluster.pod("large"), TOO_LARGE)
        await neighbours.are_served()


@pytest.mark.usefixtures("gated")
async def test_the_claim_of_a_template_is_reported(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    spec = claim(of_size(SIZES[0])) | {"metadata": {"labels": {names.POOL_LABEL: DEDICATED}}}
    template = {"metadata": metadata(), "spec": spec}
    async with made(cluster, TEMPLATES, template):
        await submit_with(cluster, "of-a-template", {"resourceClaimTemplateName": NAME})
        found = await cluster.claim("of-a-template", "odd")
        assert "max_payload" in await reported(cluster, found, TOO_LARGE)
        await reported(cluster, await cluster.pod("of-a-template"), TOO_LARGE)
        await neighbours.are_served()


@pytest.mark.usefixtures("gated")
async def test_an_allocated_claim_of_another_driver_is_reported(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    async with made(cluster, CLAIMS, claim(of_size(SIZES[0], OTHER_DRIVER))) as large:
        result = {"request": "gpu-0", "driver": OTHER_DRIVER, "pool": "far", "device": "gpu"}
        allocation = {"devices": {"results": [result]}}
        status = {"status": {"allocation": allocation}}
        await cluster.kube.patch(CLAIMS, NAME, status, NAMESPACE, subresource="status")
        await reported(cluster, large, TOO_LARGE)
        await neighbours.are_served()


async def test_a_slice_of_another_driver_is_reported(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    """Of as many devices, and attributes of a device, as there may be; JSON escapes the text."""
    attributes = {f"{'x' * 20}{n}": {"string": "\1" * 64} for n in range(ATTRIBUTES)}
    devices = [{"name": f"gpu-{n}", "attributes": attributes} for n in range(DEVICES)]
    pool = {"name": "far", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": OTHER_DRIVER, "allNodes": True, "pool": pool, "devices": devices}
    async with made(cluster, SLICES, {"metadata": {"name": NAME}, "spec": spec}) as large:
        await reported(cluster, large, TOO_LARGE)
        await neighbours.are_served()


@pytest.mark.usefixtures("gated")
async def test_a_claim_without_room_for_drays_annotations_keeps_no_other_pod_waiting(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    """It can't be allocated; its pod's reason has the server's words."""
    async with made(cluster, CLAIMS, claim(annotations=annotations(ANNOTATIONS_BYTES))):
        await submit_with(cluster, "annotated")
        await reported(cluster, await cluster.pod("annotated"), "Too long")
        await neighbours.are_served()


async def test_a_pod_of_as_many_annotations_as_there_may_be_is_refused(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    with pytest.raises(RefusedError, match="annotations"):
        await cluster.submit("annotated", DEDICATED, annotations=annotations(ANNOTATIONS_BYTES))
    cluster.made.remove("annotated")
    await neighbours.are_served()
