"""Other forms of request, from admission to the containers' cards and annotations."""

import asyncio
import json
from typing import Any

import jsonpatch
import prometheus_client
import pytest

from dray.api.names import (
    CLAIM_REFERENCE,
    CONTAINER_GPU_IDS,
    DEVICE_CLASS,
    DRIVER,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    PREFIX,
    TEMPLATE_LABEL,
)
from dray.api.pods import Policy, Pool
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, PODS, POOLS, SLICES, Object
from dray.messages.facts import (
    ClusterObserved,
    PolicyObserved,
    PoolObserved,
    Synced,
    TemplateObserved,
)
from dray_allocator.service.replica import Replica
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions as AllocatorRules
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pods import admit_pod
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionRequest
from dray_webhook.decisions.view import View

POOL = "default-pool"
BASE = "base"


def view(version: str, owner: str) -> View:
    """What the webhook knows of the world's cluster."""
    exactly = {"deviceClassName": DEVICE_CLASS}
    seen = View()
    for fact in (
        PolicyObserved(revision=1, policy=Policy(POOL, "u", dra_enabled=True, claim_template=BASE)),
        PoolObserved(
            revision=1,
            pool=Pool(POOL, "u", owner, dedicated=owner == OWNER_DRAY, template=POOL),
        ),
        ClusterObserved(revision=1, version=version),
        TemplateObserved(
            revision=1,
            namespace="default",
            name=BASE,
            labels={TEMPLATE_LABEL: "true"},
            spec={"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
        ),
        Synced(revision=1, instance="a"),
    ):
        seen.apply(fact)
    return seen


class Cluster:
    """The controller's world with an allocator and the webhook."""

    def __init__(self, world: Any) -> None:
        self.world = world

    async def submit(
        self,
        name: str,
        *containers: str,
        version: str = "v1.36.3",
        owner: str = OWNER_DRAY,
        **annotations: str,
    ) -> None:
        """A pod as its user writes it, through admission."""
        written = {PREFIX + key.replace("_", "-"): text for key, text in annotations.items()}
        pod: Object = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": {PREFIX + "gpupool": POOL, **written},
            },
            "spec": {"containers": [{"name": each, "image": "app"} for each in containers]},
        }
        request = AdmissionRequest(uid=name, namespace="default", name=name, object=pod)
        answer = admit_pod(
            request, view(version, owner), Installation("dray-system"), AdmissionIds("", "")
        )
        assert answer.allowed, answer.message
        admitted = jsonpatch.apply_patch(pod, list(answer.patch))
        await self.world.kube.create(PODS, admitted, "default")

    async def publish(self, node: str, generation: int, tflops: str = "312") -> None:
        """Say of a node's cards what node-agents say, which generated selectors read."""
        published = await self.world.kube.get(SLICES, f"slice-{node}")
        for device in published["spec"]["devices"]:
            texts = {"pool_name": POOL, "phase": "Running", "used_by": "", "uuid": device["name"]}
            device["attributes"] |= {name: {"string": text} for name, text in texts.items()}
            device["capacity"]["tflops"]["value"] = tflops
            device["capacity"]["virtual_tflops"] = {
                "value": tflops,
                "requestPolicy": {"default": tflops, "validRange": {"min": "1"}},
            }
        published["spec"]["pool"]["generation"] = generation
        await self.world.kube.update(SLICES, published)

    async def known(self, node: str, generation: int) -> None:
        """Wait until the bus says so: what comes later is decided with it."""

        async def published() -> bool:
            facts = await self.world.facts()
            slices = [fact["slice"] for fact in facts.get("slice", ())]
            nodes = [fact["node"] for fact in facts.get("node", ())]
            # Before the node shows its pool's taint dray gives it to no pod that it binds itself.
            return any(
                one["node"] == node and one["generation"] == generation for one in slices
            ) and any(
                one["name"] == node and one["pool"] == POOL and one["dedicated"] for one in nodes
            )

        await self.world.until(published, f"{node} is on the bus")

    async def bound(self, name: str) -> Object:
        """The pod, when it is on its node."""

        async def pod() -> Object | None:
            found: Object = await self.world.kube.get(PODS, name, "default")
            return found if found["spec"].get("nodeName") else None

        return await self.world.until(pod, f"{name} is bound")

    async def reported(self, name: str) -> dict[str, list[str]]:
        """The cards of each container, from the pod's annotation."""

        async def text() -> str:
            pod = await self.world.kube.get(PODS, name, "default")
            return str(pod["metadata"]["annotations"].get(CONTAINER_GPU_IDS, ""))

        found: dict[str, list[str]] = json.loads(
            await self.world.until(text, f"{name} is annotated")
        )
        return found

    async def held(self, name: str) -> dict[str, list[tuple[str, dict[str, str]]]]:
        """Device and what it gives of the budget, by request."""
        allocation = claim_from(await self.world.claim(name)).allocation
        assert allocation is not None
        found: dict[str, list[tuple[str, dict[str, str]]]] = {}
        for one in allocation.devices:
            taken = {key: text for key, text in one.consumed.items() if key.startswith("virtual")}
            found.setdefault(one.request, []).append((one.id.device, taken))
        return found


@pytest.fixture
async def cluster(world: Any) -> Cluster:
    await world.ready(await world.start())
    state = AllocatorState(AllocatorRules(writer="allocator"))
    metrics = AllocatorMetrics(state, prometheus_client.CollectorRegistry())
    shell = Replica(world.bus.peer(), state, metrics, lease_ttl_s=0.3, lease_renewal_s=0.1)
    world.helpers.append(asyncio.ensure_future(shell.run()))
    made = Cluster(world)
    await made.publish("node-1", 2)
    await made.known("node-1", 2)
    return made


async def test_each_container_gets_its_own_and_the_pod_is_annotated(cluster: Cluster) -> None:
    own = {
        "train": {"tflops-request": 100, "vram-request": "8Gi", "gpu-count": 2},
        "encode": {"compute-percent-request": 10, "vram-request": "1Gi"},
    }
    await cluster.submit("p", "train", "encode", "proxy", container_gpus=json.dumps(own))
    pod = await cluster.bound("p")

    uses = {each["name"]: each.get("resources") for each in pod["spec"]["containers"]}
    assert uses == {
        "train": {"claims": [{"name": CLAIM_REFERENCE, "request": "gpu-train"}]},
        "encode": {"claims": [{"name": CLAIM_REFERENCE, "request": "gpu-encode"}]},
        "proxy": None,
    }
    held = await cluster.held("p")
    assert sorted(held["gpu-train"]) == [
        ("gpu-0", {"virtual_tflops": "100", "virtual_vram": "8Gi"}),
        ("gpu-1", {"virtual_tflops": "100", "virtual_vram": "8Gi"}),
    ]
    ((card, taken),) = held["gpu-encode"]
    assert taken == {"virtual_tflops": "31200m", "virtual_vram": "1Gi"}
    reported = await cluster.reported("p")
    assert {name: sorted(cards) for name, cards in reported.items()} == {
        "train": ["gpu-0", "gpu-1"],
        "encode": [card],
        "proxy": [],
    }


async def test_old_servers_get_as_many_requests_and_the_same_cards(cluster: Cluster) -> None:
    own = {"train": {"tflops-request": 100, "vram-request": "8Gi", "gpu-count": 2}}
    await cluster.submit("p", "train", "proxy", version="v1.34.4", container_gpus=json.dumps(own))
    await cluster.bound("p")

    assert sorted(await cluster.held("p")) == ["gpu-train-0", "gpu-train-1"]
    reported = await cluster.reported("p")
    assert {name: sorted(cards) for name, cards in reported.items()} == {
        "train": ["gpu-0", "gpu-1"],
        "proxy": [],
    }


async def test_whole_cards_and_percentages_share_the_fleet(cluster: Cluster) -> None:
    await cluster.submit("whole", "app", dedicated_gpu="true")
    await cluster.bound("whole")
    for number in range(3):
        await cluster.submit(f"half-{number}", "app", compute_percent_request="50")
    bound: list[str] = []

    async def two_are_bound() -> bool:
        """Any two: pods of one second are as old as each other."""
        pods = (await cluster.world.kube.list(PODS, "default")).objects
        bound[:] = [
            pod["metadata"]["name"]
            for pod in pods
            if pod["metadata"]["name"] != "whole" and pod["spec"].get("nodeName")
        ]
        return len(bound) == 2

    await cluster.world.until(two_are_bound, "two of three halves are bound")

    ((_, ((whole, full),)),) = (await cluster.held("whole")).items()
    halves = [(await cluster.held(name))["gpu"][0] for name in bound]
    assert full == {"virtual_tflops": "312", "virtual_vram": "40Gi"}
    assert [taken for _, taken in halves] == [{"virtual_tflops": "156", "virtual_vram": "20Gi"}] * 2
    assert {card for card, _ in halves} == {"gpu-0", "gpu-1"} - {whole}

    async def report_wait() -> bool:
        pool = await cluster.world.kube.get(POOLS, POOL)
        return (pool.get("status") or {}).get("waitingPods") == 1

    await cluster.world.until(report_wait, "the third waits")


async def test_the_strongest_card_of_the_pool_comes_first(cluster: Cluster) -> None:
    world = cluster.world
    await world.node("node-2", POOL, cards=1)
    await cluster.publish("node-2", 2, tflops="989")
    await cluster.known("node-2", 2)
    asked = {"tflops_request": "10", "vram_request": "30Gi"}
    nodes = []
    for number, prefer in enumerate(("tflops desc", "tflops desc", "tflops asc")):
        await cluster.submit(f"p{number}", "app", prefer=prefer, **asked)
        nodes.append((await cluster.bound(f"p{number}"))["spec"]["nodeName"])

    assert nodes == ["node-2", "node-1", "node-1"]


async def test_if_kube_scheduler_allocates_the_pod_is_annotated_too(world: Any) -> None:
    await world.ready(await world.start())  # and no allocator
    cluster = Cluster(world)
    own = '{"train": {"tflops-request": 100, "vram-request": "8Gi"}}'
    await cluster.submit("p", "train", "proxy", owner=OWNER_KUBE_SCHEDULER, container_gpus=own)
    claim = await world.until(lambda: world.claim("p"), "the claim is made")
    where = {"driver": DRIVER, "pool": "node-1", "device": "gpu-1", "request": "gpu-train"}
    allocation = {"devices": {"results": [where]}}
    pod = await world.kube.get(PODS, "p", "default")
    reserved = [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}]
    status = {"status": {"allocation": allocation, "reservedFor": reserved}}
    name = claim["metadata"]["name"]
    await world.kube.patch(CLAIMS, name, status, "default", subresource="status")
    await world.kube.bind("p", "default", uid=pod["metadata"]["uid"], node="node-1")

    assert await cluster.reported("p") == {"train": ["gpu-1"], "proxy": []}
