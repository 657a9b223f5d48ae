"""The judge of the simulation sees what may never happen."""

from typing import Any

import pytest

from dray.api.names import CLAIM_REFERENCE, DRIVER
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, PODS, SLICES, Object
from dray_node_agent.decisions.gpus import device_name
from dray_node_agent.decisions.inventory import NodeState, slices
from tools.simulation.invariants import SimulationInvariants, WatchedStore
from tools.simulation.processes import SimulatedNodeGpus

CARD = device_name("GPU-n1-0")


class Stage:
    """One node with one card of 312, and hands on claims and pods."""

    def __init__(self) -> None:
        store = WatchedStore(lambda: 0.0)
        self.invariants = SimulationInvariants(store)
        store.invariants = self.invariants.check
        self.kube = MemoryKube(store)

    async def slices(self) -> None:
        for one in slices(SimulatedNodeGpus("n1", 1).read(), NodeState("n1"), generation=1):
            await self.kube.create(SLICES, one)

    async def pod(self, name: str) -> Object:
        entry = {"name": CLAIM_REFERENCE, "resourceClaimName": name}
        spec = {"containers": [{"name": "app"}], "resourceClaims": [entry]}
        return await self.kube.create(PODS, {"metadata": {"name": name}, "spec": spec}, "team")

    async def claim(self, name: str, tflops: str, *, pod: Object, node: str = "n1") -> None:
        owner = {"kind": "Pod", "name": name, "uid": pod["metadata"]["uid"], "controller": True}
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        made = await self.kube.create(
            CLAIMS,
            {
                "metadata": {"name": name, "ownerReferences": [owner]},
                "spec": {"devices": {"requests": [request]}},
            },
            "team",
        )
        await self.kube.update(
            CLAIMS, made | {"status": status(tflops, node, pod)}, subresource="status"
        )


def status(tflops: str, node: str, pod: Object) -> Object:
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": "n1",
        "device": CARD,
        "consumedCapacity": {"virtual_tflops": tflops, "virtual_vram": "1Gi"},
    }
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    return {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
        "reservedFor": [user],
    }


@pytest.fixture
async def stage() -> Stage:
    made = Stage()
    await made.slices()
    return made


async def test_what_fits_is_not_a_violation(stage: Any) -> None:
    for name in ("a", "b"):
        pod = await stage.pod(name)
        await stage.claim(name, "156", pod=pod)
        await stage.kube.bind(name, "team", uid="", node="n1")
    assert stage.invariants.violations == []
    assert stage.invariants.bound == 2


async def test_a_card_allocated_twice_is_named_with_both_pods(stage: Any) -> None:
    for name in ("a", "b"):
        await stage.claim(name, "157", pod=await stage.pod(name))
    (violation,) = stage.invariants.violations
    assert "DOUBLE ALLOCATION" in violation
    assert "312, allocated {'a': 157, 'b': 157}" in violation


async def test_a_pod_bound_without_its_claim_is_seen(stage: Any) -> None:
    await stage.claim("a", "1", pod=await stage.pod("a"))
    await stage.kube.bind("a", "team", uid="", node="n2")
    assert stage.invariants.violations == ["pod a is bound to n2, its claim to n1"]


async def test_a_pod_bound_without_an_allocation_is_seen(stage: Any) -> None:
    await stage.pod("a")
    await stage.kube.bind("a", "team", uid="", node="n1")
    (violation,) = stage.invariants.violations
    assert "without an allocation" in violation


async def test_a_claim_reserved_for_a_foreign_pod_is_seen(stage: Any) -> None:
    pod, other = await stage.pod("a"), await stage.pod("b")
    await stage.claim("a", "1", pod=pod)
    claim = await stage.kube.get(CLAIMS, "a", "team")
    claim["status"]["reservedFor"][0]["uid"] = other["metadata"]["uid"]
    await stage.kube.update(CLAIMS, claim, subresource="status")
    assert "is reserved for" in stage.invariants.violations[0]


async def test_a_running_pod_that_loses_its_cards_is_seen(stage: Any) -> None:
    await stage.claim("a", "1", pod=await stage.pod("a"))
    await stage.kube.bind("a", "team", uid="", node="n1")
    claim = await stage.kube.get(CLAIMS, "a", "team")
    del claim["status"]["allocation"], claim["status"]["reservedFor"]
    await stage.kube.update(CLAIMS, claim, subresource="status")
    assert stage.invariants.violations == ["claim a of the bound pod a lost its allocation"]
