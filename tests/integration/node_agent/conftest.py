"""A node with its agent and a kubelet, over real unix sockets, on a bus and an API in memory."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray.api.names import DRAY_NAMESPACE, DRIVER
from dray.api.pods import Node
from dray.bus.memory import MemoryBus
from dray.bus.ports import Request
from dray.bus.topology import FACTS_STREAM, STREAMS
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    CLAIMS,
    EVENTS,
    NODES,
    PODS,
    SLICES,
    AlreadyExistsError,
    NotFoundError,
    Object,
)
from dray.messages.base import decode, encode, subject_prefix
from dray.messages.facts import InventoryObserved, NodeObserved
from dray.messages.rpc import INVENTORY_SUBJECT, Inventory, InventoryReply
from dray.runtime.health import HealthPages
from dray_claim_controller.inventories.decisions import forgery, next_fact
from dray_node_agent.app import assemble, open_gpus
from dray_node_agent.settings import NodeGroup
from dray_sandbox.kubelet.kubelet import Kubelets, running_kubelets
from dray_sandbox.kubelet.plan import NodePlan
from dray_sandbox.kubelet.plugins import Plugin, register
from dray_sandbox.kubelet.timings import KubeletTimings

BOUND_S = 60.0
PROMPT = KubeletTimings(
    registration_s=0.02, resync_s=0.05, container_retry_s=0.05, health_retry_s=0.05
)
"""Of a kubelet in tests that are not about its periods."""


async def eventually(true: Callable[[], Awaitable[Any] | Any]) -> Any:
    """Wait until ``true`` answers something true; what it answered."""
    answer: Any = None
    try:
        async with asyncio.timeout(BOUND_S):
            while True:
                answer = true()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return answer
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"did not come true in {BOUND_S} s, last answer: {answer!r}") from None


@dataclass
class Stand:
    """One node's surroundings."""

    folder: Path
    node: str = "n1"
    kube: MemoryKube = field(default_factory=MemoryKube)
    bus: MemoryBus = field(default_factory=MemoryBus)
    buses: list[MemoryBus] = field(default_factory=list)
    kubes: list[MemoryKube] = field(default_factory=list)
    """The agents' own connections, the newest last."""
    revision: int = 0
    mps_template: Path | None = None
    device_plugin: bool = False

    @property
    def group(self) -> NodeGroup:
        return NodeGroup(
            name=self.node,
            board="simulated",
            model="A100",
            count=4,
            plugins_dir=self.folder / "p",
            registry_dir=self.folder / "r",
            cdi_dir=self.folder / "c",
            state_dir=self.folder / "s",
            poll=0.02,
            usage=0.05,
            resync=0.2,
            patience=0.05,
            grace=1.0,
            mps_template=self.mps_template,
            device_plugin=self.device_plugin,
            device_plugins_dir=self.folder / "d",
        )

    @property
    def plan(self) -> NodePlan:
        group = self.group
        return NodePlan(self.node, group.plugins_dir, group.registry_dir, group.cdi_dir)

    async def tell_node(
        self, pool: str = "pool-a", *, deleted: bool = False, **fields: Any
    ) -> None:
        """Publish the node's state as the claim-controller does."""
        self.revision += 1
        node = Node(self.node, "uid", pool=pool, **fields)
        fact = NodeObserved(revision=self.revision, node=node, deleted=deleted)
        await self.bus.publish(encode(fact, source="test"))

    def allow_mps(self) -> None:
        """Have agents run MPS daemons."""
        self.mps_template = self.folder / "pod.yaml"
        self.mps_template.write_text("spec: {containers: [{name: mps, image: i}]}")

    async def daemons(self) -> list[str]:
        """The pods of MPS daemons, sorted."""
        pods = (await self.kube.list(PODS, DRAY_NAMESPACE)).objects
        return sorted(str(one["metadata"]["name"]) for one in pods)

    @asynccontextmanager
    async def agent(self, *, is_registered: bool = True) -> AsyncIterator[HealthPages]:
        """The node-agent for the length of a block; ends as on SIGTERM. ``is_registered``: whether
        its plugin is registered also without a kubelet."""
        await self.make_node()
        group, health = self.group, HealthPages()
        self.buses.append(self.bus.peer(self.node))
        self.kubes.append(self.kube.peer())
        gpus = open_gpus(group)
        loops = assemble(group, "i", self.buses[-1], self.kubes[-1], gpus, health)
        before = set(self.sockets())
        tasks = [asyncio.create_task(loop()) for loop in (*loops.values(), self.lead)]
        if is_registered:
            tasks.append(asyncio.create_task(self._register(before)))
        try:
            yield health
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await gpus.close()
            failures = [
                one
                for one in results
                if isinstance(one, BaseException) and not isinstance(one, asyncio.CancelledError)
            ]
            assert not failures

    def sockets(self) -> list[Path]:
        """Registration sockets, the newest last."""
        found = [path for path in self.group.registry_dir.glob("*.sock") if path.is_socket()]
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    async def plugin(self, version: str = "v1.DRAPlugin", *, path: Path | None = None) -> Plugin:
        """An agent's plugin, of the newest one by default, for calls in a kubelet's name."""
        plugin = await register(path or (await eventually(self.sockets))[-1])
        if plugin.version == version:
            return plugin
        await plugin.close()
        return Plugin(plugin.driver, plugin.endpoint, version)

    async def _register(self, before: set[Path]) -> None:
        await eventually(lambda: set(self.sockets()) - before)
        await (await self.plugin()).close()

    async def lead(self) -> None:
        """Publish what agents report, as the leader of the claim-controllers does."""
        await self.bus.serve(f"{INVENTORY_SUBJECT}.*", self._take, queue="leader")

    async def _take(self, request: Request) -> bytes:
        asked = msgspec.json.decode(request.payload, type=Inventory)
        assert (
            forgery(asked, subject_node=request.subject.split(".")[-1], user=request.user) is None
        )
        subject = f"{subject_prefix(InventoryObserved)}.{asked.node}"
        last = await self.bus.last(FACTS_STREAM, subject)
        known = None if last is None else decode(last, InventoryObserved)
        fact = next_fact(asked, known)
        if fact is not None:
            await self.bus.publish(encode(fact, source="leader"))
        revision = (fact or known or InventoryObserved(revision=0, node="", driver="")).revision
        accepted = revision == asked.generation
        return msgspec.json.encode(InventoryReply(accepted=accepted, known_generation=revision))

    async def make_node(self) -> None:
        """The Node object, for tests without a kubelet."""
        with contextlib.suppress(AlreadyExistsError):
            await self.kube.create(
                NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
            )

    @asynccontextmanager
    async def kubelet(self, timings: KubeletTimings = PROMPT) -> AsyncIterator[Kubelets]:
        async with running_kubelets(self.kube.peer(), self.plan, timings=timings) as kubelets:
            yield kubelets

    async def slices(self) -> list[Object]:
        return list((await self.kube.list(SLICES)).objects)

    async def device(self, index: int = 0) -> str:
        """Name of a published GPU."""
        slices = await eventually(self.slices)
        return str(slices[0]["spec"]["devices"][index]["name"])

    async def make_pod(
        self, name: str, claims: dict[str, str] | None = None, **more: Any
    ) -> Object:
        """A pod that is bound to the node and refers to claims by their names."""
        claims = claims or {}
        container = {
            "name": "main",
            "image": "app",
            "resources": {"claims": [{"name": ref} for ref in claims], **more.pop("resources", {})},
            **more.pop("container", {}),
        }
        pod = await self.kube.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "annotations": more.pop("annotations", {})},
                "spec": {
                    "containers": [container],
                    "resourceClaims": [
                        {"name": ref, "resourceClaimName": claim} for ref, claim in claims.items()
                    ],
                    **more,
                },
            },
            "default",
        )
        await self.kube.bind(name, "default", uid=pod["metadata"]["uid"], node=self.node)
        return await self.pod(name)

    async def make_claim(
        self,
        name: str,
        devices: list[str],
        *,
        tflops: str = "100",
        vram: str = "10Gi",
        config: list[Object] | None = None,
        share: bool = True,
        owner: Object | None = None,
    ) -> Object:
        """An allocated claim, reserved for nobody yet. ``owner``: the pod that controls it."""
        metadata: Object = {"name": name}
        if owner is not None:
            pod = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
            controls = {"apiVersion": "v1", "kind": "Pod", "controller": True}
            metadata["ownerReferences"] = [controls | pod]
        made = await self.kube.create(
            CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": metadata,
                "spec": {"devices": {"requests": [_request(len(devices))]}},
            },
            "default",
        )
        results = [self._result(device, name, tflops, vram, share) for device in devices]
        allocation = {"devices": {"results": results, "config": config or []}}
        status = {"status": {"allocation": allocation}}
        return await self.kube.patch(CLAIMS, name, status, "default", subresource="status") or made

    def _result(self, device: str, name: str, tflops: str, vram: str, share: bool) -> Object:
        result: Object = {
            "request": "gpu",
            "driver": DRIVER,
            "pool": self.node,
            "device": device,
            "consumedCapacity": {"virtual_tflops": tflops, "virtual_vram": vram},
        }
        if share:
            result["shareID"] = f"share-{name}"
        return result

    async def reserve(self, claim: str, *pods: Object) -> None:
        """Let pods use a claim."""
        entries = [
            {"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]}
            for p in pods
        ]
        patch = {"status": {"reservedFor": entries}}
        await self.kube.patch(CLAIMS, claim, patch, "default", subresource="status")

    async def events(self) -> list[Object]:
        return list((await self.kube.list(EVENTS)).objects)

    async def pod(self, name: str) -> Object:
        return await self.kube.get(PODS, name, "default")

    async def phase(self, name: str) -> str:
        return str(((await self.pod(name)).get("status") or {}).get("phase"))

    async def reaches(self, name: str, phase: str) -> Object:
        """Wait for a pod's phase."""

        async def there() -> bool:
            return await self.phase(name) == phase

        await eventually(there)
        return await self.pod(name)

    async def is_gone(self, name: str) -> None:
        async def gone() -> bool:
            try:
                await self.pod(name)
            except NotFoundError:
                return True
            return False

        await eventually(gone)

    def cdi_files(self) -> list[str]:
        folder = self.group.cdi_dir
        return sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []

    def checkpoint(self) -> dict[str, Any]:
        """The claims in the checkpoint."""
        content = json.loads((self.group.state_dir / "checkpoint.json").read_text())
        return dict(content["data"]["claims"])


def _request(count: int) -> Object:
    return {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": count}}


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., Awaitable[Any]]:
    return eventually


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: socket paths have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dray-") as name:
        yield Path(name)


@pytest.fixture
async def stand(folder: Path) -> Stand:
    stand = Stand(folder)
    for stream in STREAMS:
        await stand.bus.ensure(stream)
    return stand
