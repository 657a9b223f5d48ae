"""What the command line reads of odd objects."""

import pytest
from tests.conformance.limits.asking import allocated, dray, made, reported, submit_with
from tests.conformance.limits.objects import claim, managed, nested, of_size, with_parameters
from tests.conformance.path_b.cluster import Cluster

from dray.kube.ports import CLAIMS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]


@pytest.mark.usefixtures("gated")
async def test_the_doctor_and_explanations_survive_odd_objects(cluster: Cluster) -> None:
    deep = claim(with_parameters(nested(2_000)), **managed(5_000))
    large = claim(of_size(1_200_000), name="large")
    async with made(cluster, CLAIMS, large), made(cluster, CLAIMS, deep):
        await submit_with(cluster, "deep")
        assert await allocated(cluster, "deep")
        await submit_with(cluster, "waits", {"resourceClaimName": "large"})
        await reported(cluster, await cluster.pod("waits"), "too large for the bus: ")

        found = (await dray(cluster, "doctor"))["findings"]
        assert [line for line in found if "read" in line["text"] and line["grade"] == "bad"] == []
        assert (await dray(cluster, "explain", "pod/deep"))["decides"] == "dray"
        why = (await dray(cluster, "explain", "pod/waits"))["reasons"]
        assert "too large for the bus: " in "\n".join(why)
