"""Claims that only the search decides, accepted by a real API server and bound by a real
kube-scheduler: alternatives, all devices of a node, partitions of another driver."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.conformance.path_b.cluster import ON_THE_REAL_ONE, OTHER_DRIVER, Cluster

from dray.api import names
from dray.kube.ports import CLASSES, SLICES, TEMPLATES, Object
from tools.faults.plan import DEDICATED

pytestmark = ON_THE_REAL_ONE
NODE = "sim-4"
MEMORY = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]


def of_profile(profile: str) -> list[Object]:
    """A selector of the other driver's devices."""
    says = f'device.attributes["{OTHER_DRIVER}"].profile == "{profile}"'
    return [{"cel": {"expression": says}}]


def device(name: str, profile: str, memory: str = "") -> Object:
    """A device of the other driver; one with memory draws on its card's."""
    uses = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
    counters = {"consumesCounters": uses} if memory else {}
    return {"name": name, "attributes": {"profile": {"string": profile}}, **counters}


@pytest_asyncio.fixture(loop_scope="session")
async def partitions(cluster: Cluster) -> AsyncIterator[None]:
    """A card of another driver in partitions, and two ports, on a node of the dedicated pool."""
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": OTHER_DRIVER, "nodeName": NODE, "pool": pool}
    devices = [
        device("whole", "whole", "80Gi"),
        device("half-0", "half", "40Gi"),
        device("half-1", "half", "40Gi"),
        device("port-0", "port"),
        device("port-1", "port"),
    ]
    selectors = [{"cel": {"expression": f'device.driver == "{OTHER_DRIVER}"'}}]
    made = [
        (CLASSES, {"metadata": {"name": OTHER_DRIVER}, "spec": {"selectors": selectors}}),
        (SLICES, {"metadata": {"name": "other-sets"}, "spec": {**spec, "sharedCounters": MEMORY}}),
        (SLICES, {"metadata": {"name": "other"}, "spec": {**spec, "devices": devices}}),
    ]
    for resource, obj in made:
        await cluster.kube.create(resource, obj)
    yield
    await cluster.clean_up()
    for resource, obj in made:
        await cluster.kube.delete(resource, obj["metadata"]["name"])


async def submit(cluster: Cluster, name: str, request: Object) -> None:
    """A pod of the dedicated pool with a claim of its own in addition to dray's."""
    labels = {names.POOL_LABEL: DEDICATED}
    spec = {"metadata": {"labels": labels}, "spec": {"devices": {"requests": [request]}}}
    await cluster.kube.create(TEMPLATES, {"metadata": {"name": name}, "spec": spec}, "default")
    try:
        resources = {"requests": {"cpu": "100m"}, "claims": [{"name": "more"}]}
        uses = [{"name": "more", "resourceClaimTemplateName": name}]
        container = {"resources": resources}
        await cluster.submit(name, DEDICATED, container=container, resourceClaims=uses)
        await cluster.claim(name, "more")
    finally:
        await cluster.kube.delete(TEMPLATES, name, "default")


async def got(cluster: Cluster, name: str) -> tuple[str, list[str]]:
    """The pod's node, once it is bound, and ``request=device`` of that claim."""
    bound = await cluster.until(name, lambda pod: pod["spec"].get("nodeName"), "it is bound")
    claim = await cluster.claim(name, "more")
    results = claim["status"]["allocation"]["devices"]["results"]
    return bound["spec"]["nodeName"], [f"{one['request']}={one['device']}" for one in results]


@pytest.mark.usefixtures("gated")
async def test_the_first_alternative_that_is_available(cluster: Cluster) -> None:
    says = f'device.attributes["{names.DRIVER}"].model == "H100"'
    h100 = {"name": "h100", "deviceClassName": names.DEVICE_CLASS}
    h100["selectors"] = [{"cel": {"expression": says}}]
    either = [h100, {"name": "any", "deviceClassName": names.DEVICE_CLASS}]
    await submit(cluster, "either", {"name": "gpu", "firstAvailable": either})
    await cluster.running("either")
    _, devices = await got(cluster, "either")
    assert [one.partition("=")[0] for one in devices] == ["gpu/any"]


@pytest.mark.usefixtures("gated", "partitions")
async def test_devices_of_another_driver(cluster: Cluster) -> None:
    """All ports; then halves of a card, until its memory is used up."""
    of = {"deviceClassName": OTHER_DRIVER}
    ports = {**of, "allocationMode": "All", "selectors": of_profile("port")}
    await submit(cluster, "ports", {"name": "ports", "exactly": ports})
    assert await got(cluster, "ports") == (NODE, ["ports=port-0", "ports=port-1"])

    half = {**of, "selectors": of_profile("half")}
    for name, device_name in (("left", "half-0"), ("right", "half-1")):
        await submit(cluster, name, {"name": "part", "exactly": half})
        assert await got(cluster, name) == (NODE, [f"part={device_name}"])
