"""Whole local stacks for tests, and what may never be seen on them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from dray.api.names import DRIVER
from dray.api.quantities import Quantity, parse_quantity
from dray.bus.jetstream import connect as connect_bus
from dray.bus.ports import Bus
from dray.kube.ports import CLAIMS, PODS, SLICES, Kube, Object
from dray.recording.lines import Header, Line
from dray.recording.recorder import Recorder
from dray_cli.demo.collector import DemoCollector
from dray_cli.demo.manifests import read_manifests
from dray_sandbox.layout import ControlPlane, StackOptions, simulated_nodes
from dray_sandbox.stack import Stack
from tools.retry import connect_with_retries

CONTROL_PLANES = [
    pytest.param("sandbox", id="sandbox"),
    pytest.param("real", id="real", marks=pytest.mark.real),
]
CHECKOUT = Path(__file__).parents[2]
EXAMPLE = CHECKOUT / "examples" / "01-quick-start"


@dataclass(slots=True)
class Cluster:
    """A running stack with connections to its API and its bus."""

    stack: Stack
    kube: Kube
    bus: Bus
    collector: DemoCollector
    recorded: list[Line] = field(default_factory=list)
    """What ``dray record`` would have written since the start."""

    async def submit(self, name: str, pool: str, **asked: str) -> None:
        """Create a pod that asks for a fraction of a card."""
        annotations = {
            "gpupool": pool,
            "tflops-request": "100",
            "vram-request": "16Gi",
            **{key.replace("_", "-"): value for key, value in asked.items()},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": {f"tensor-fusion.ai/{key}": v for key, v in annotations.items()},
            },
            "spec": {"containers": [{"name": "app", "image": "app"}]},
        }
        self.collector.follow("default", name)
        await self.kube.create(PODS, pod, "default")

    async def running(self, *names: str, within_s: float = 45.0) -> None:
        """Wait until the pods run. Fails with what was seen of those that don't."""
        stories = [self.collector.story("default", name) for name in names]
        if not await self.collector.until(
            lambda: all("running" in story.steps for story in stories), within_s
        ):
            late = [line for s in stories if "running" not in s.steps for line in s.lines()]
            pytest.fail("not running:\n" + "\n".join(late))

    async def delete(self, *names: str) -> None:
        """Delete pods and wait until they are gone."""
        for name in names:
            await self.kube.delete(PODS, name, "default")
        await self.until(lambda pods: not {n for n in names if n in pods}, "pods gone")

    async def until(
        self, condition: Callable[[dict[str, Object]], bool], what: str, within_s: float = 45.0
    ) -> None:
        """Wait until the pods of the default namespace, by name, satisfy the condition."""
        pods: dict[str, Object] = {}
        async with _bounded(what, within_s):
            async for _ in self.kube.watch(PODS, "default"):
                listed = await self.kube.list(PODS, "default")
                pods = {pod["metadata"]["name"]: pod for pod in listed.objects}
                if condition(pods):
                    return

    async def node_of(self, name: str) -> str:
        """The node a pod is bound to, or nothing."""
        pod = await self.kube.get(PODS, name, "default")
        return str(pod["spec"].get("nodeName", ""))

    async def capacity_of(self, device: str) -> dict[str, str]:
        """What a whole device is taken as in ``consumedCapacity``."""
        slices = await self.kube.list(SLICES)
        published = [one for part in slices.objects for one in part["spec"].get("devices", ())]
        (found,) = (one["capacity"] for one in published if one["name"] == device)
        return {name: entry["requestPolicy"]["default"] for name, entry in found.items()}

    async def check_nothing_is_oversold(self) -> None:
        """From Kubernetes objects alone: what claims consume of a card is there."""
        slices = await self.kube.list(SLICES)
        claims = await self.kube.list(CLAIMS)
        used = _used(claims.objects)
        for device, capacity in _published(slices.objects).items():
            for name, amount in used.pop(device, {}).items():
                assert amount <= capacity[name], f"{device}: {name} {amount} of {capacity[name]}"
        assert not used, f"allocated, but not published: {sorted(used)}"


Use = dict[tuple[str, str], dict[str, Quantity]]


def _published(slices: tuple[Object, ...]) -> Use:
    return {
        (part["spec"]["pool"]["name"], device["name"]): {
            name: parse_quantity(entry["value"]) for name, entry in device["capacity"].items()
        }
        for part in slices
        if part["spec"]["driver"] == DRIVER
        for device in part["spec"].get("devices", [])
    }


def _used(claims: tuple[Object, ...]) -> Use:
    used: Use = defaultdict(lambda: defaultdict(lambda: Quantity(0)))
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation")
        for result in allocation["devices"]["results"] if allocation else []:
            for name, amount in result["consumedCapacity"].items():
                device = used[result["pool"], result["device"]]
                device[name] = device[name] + parse_quantity(amount)
    return used


@asynccontextmanager
async def _bounded(what: str, within_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        pytest.fail(f"not within {within_s:g} s: {what}")


@asynccontextmanager
async def running_cluster(
    control_plane: ControlPlane, name: str, *, allocators: int = 2
) -> AsyncIterator[Cluster]:
    """A stack of three nodes with the example's pools, and nothing on them."""
    options = StackOptions(
        name=name,
        control_plane=control_plane,
        nodes=simulated_nodes(3),
        allocators=allocators,
        settings={"DRAY_RECORD": "true"},
    )
    async with Stack(options) as stack:
        record = stack.record
        kube = await connect_with_retries(record.kubeconfig, user_agent="dray-test")
        bus = await connect_bus(
            record.nats_url, name="test", user="admin", password=record.nats_passwords["admin"]
        )
        collector = DemoCollector(kube, bus)
        cluster = Cluster(stack, kube, bus, collector)
        recorder = Recorder(bus, Header(dray="test"), cluster.recorded.append)
        tasks = [
            asyncio.create_task(collector.run(), name="collector"),
            asyncio.create_task(recorder.run(), name="recorder"),
        ]
        try:
            for manifest in read_manifests(EXAMPLE, "0[123]-*"):
                await kube.create(manifest.resource, manifest.object, manifest.namespace)
            yield cluster
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await bus.close()
            await kube.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=CONTROL_PLANES)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """One stack for a module's tests; each cleans up what it made."""
    async with running_cluster(request.param, f"test-{request.param}") as cluster:
        yield cluster
