"""The longest names, the most requests, and text of any language."""

import pytest
from tests.conformance.limits.asking import allocated, made, submit_with
from tests.conformance.limits.neighbours import Neighbours
from tests.conformance.limits.objects import LONGEST_NAME, claim, request
from tests.conformance.path_b.cluster import Cluster

from dray.kube.ports import CLAIMS
from tools.faults.plan import DEDICATED

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]
REQUESTS = 32
TEXT = "Größe 名前 🦊 ‮ \u0007"


async def test_a_pod_of_the_longest_name_is_served(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    await cluster.submit(LONGEST_NAME, DEDICATED)
    await cluster.running(LONGEST_NAME)
    await neighbours.are_served()


@pytest.mark.usefixtures("gated")
async def test_a_claim_of_the_longest_name_is_used(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    async with made(cluster, CLAIMS, claim(name=LONGEST_NAME)):
        await submit_with(cluster, "long", {"resourceClaimName": LONGEST_NAME})
        assert await allocated(cluster, "long", LONGEST_NAME)
        await neighbours.are_served()


@pytest.mark.usefixtures("gated")
async def test_a_claim_of_as_many_requests_as_there_may_be_is_used(
    cluster: Cluster, neighbours: Neighbours
) -> None:
    requests = [request(f"gpu-{n}") for n in range(REQUESTS)]
    async with made(cluster, CLAIMS, claim({"requests": requests})):
        await submit_with(cluster, "many")
        allocation = await allocated(cluster, "many")
        assert len(allocation["devices"]["results"]) == REQUESTS
        await neighbours.are_served()


@pytest.mark.usefixtures("gated")
async def test_text_of_any_language_is_kept(cluster: Cluster, neighbours: Neighbours) -> None:
    notes = {"example.com/notes": TEXT}
    async with made(cluster, CLAIMS, claim(annotations=notes)):
        await submit_with(cluster, "text", annotations=notes)
        assert await allocated(cluster, "text")
        pod = await cluster.pod("text")
        assert pod["metadata"]["annotations"]["example.com/notes"] == TEXT
        await neighbours.are_served()
