"""A node with a real kubelet, as root: ``python -m benchmarks.node``. Needs Go, as real tests do.

Pods run as containers on one node with eight simulated GPUs, one after the other unless stated
otherwise. The node-agent is a separate process; CPU time is that of the process, as the kernel
counts it. ``prepare`` is the agent's time from the kubelet's call to its answer, with the
checkpoint on the disk. Exit code 1: a figure is above its limit. The limits are for 2 cores that do
nothing else.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from benchmarks.control_plane_meter import process_cpu_s
from benchmarks.end_to_end import configure
from benchmarks.machine import machine, percentiles
from dray.api.names import (
    GPU_COUNT,
    GPU_RESOURCE,
    GPUPOOL,
    HEALTH_TAINT,
    POOL_LABEL,
    TFLOPS_REQUEST,
    VRAM_REQUEST,
)
from dray.bus.jetstream import connect as connect_bus
from dray.bus.ports import Bus
from dray.bus.topology import EVENTS_STREAM
from dray.kube.ports import CLAIMS, NODES, PODS, SLICES, Changed, Kube, Object
from dray.messages.base import decode, subject_prefix
from dray.messages.events import ClaimPrepared
from dray_node_agent.kubelet.client import call
from dray_node_agent.kubelet.generated import pod_resources_pb2
from dray_sandbox.layout import SimulatedNode, StackOptions
from dray_sandbox.stack import Stack
from tools.retry import connect_with_retries
from tools.rolling_update import start_second_agent

POOL: Final = "my-gpu-pool"
NODE: Final = "sim-1"
AGENT: Final = f"node-agent-{NODE}"
GPUS: Final = 8
LIMITS: Final[dict[str, dict[str, float]]] = {
    "prepare 8 devices, ms": {"p50": 5.0, "p99": 20.0},
    "100 pods at once, CPU of the agent until the last started, s": {"": 1.0},
    "idle agent, percent of a core": {"": 2.0},
    "agent, MiB at most": {"": 110.0},
    "health event → taint, ms": {"p50": 1000.0},
    "health event → the kubelet offers a GPU less, ms": {"p50": 1000.0},
    "health event → Allocatable of the Node, ms": {"p50": 1000.0},
    "agent started → socket, ms": {"": 1000.0},
    "created during a rolling update → started, the slowest, ms": {"": 5000.0},
    "created while there is no agent → started, ms": {"": 5000.0},
    "reboot: agent registered → last of 8 pods started, ms": {"": 10_000.0},
    "joining node: agent registered → published, ms": {"": 300.0},
    "joining node: agent registered → first pod started, ms": {"": 5000.0},
}
"""The limits of figures; an empty key: the only figure of a row."""
STAGES: Final = ("allocated", "bound", "prepared", "started")
"""The stages of a pod with GPUs; a pod without GPUs is only bound and started."""
_SAMPLED: Final = 0.01
"""The share of the pods that is traced."""
_WITHIN_S: Final = 300.0
_CREATE_EVERY_S: Final = 0.25
"""The period after which another pod is created during a rolling update."""


@dataclass(slots=True)
class Bench:
    """A running stack, and observations of its pods."""

    stack: Stack
    kube: Kube
    bus: Bus
    started_s: dict[str, float] = field(default_factory=dict)
    """When a pod's container was seen to run, by name."""
    runs: dict[str, str] = field(default_factory=dict)
    """The container that was seen to run, by the pod's name."""
    published_s: float = 0.0
    """When a slice of the node was last seen to be created or changed."""
    reached_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a pod was first seen to have reached a stage, by stage and pod name."""
    pod_of: dict[str, str] = field(default_factory=dict)
    """A claim's pod, by the claim's name."""
    prepared_ms: dict[str, float] = field(default_factory=dict)
    """The duration of a claim's preparation, by the claim's name, which begins with its pod's."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the observations fulfil a condition."""
        async with asyncio.timeout(_WITHIN_S):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

    async def watch_pods(self) -> None:
        """Loop: note which pods are bound, and which containers run."""
        async for event in self.kube.watch(PODS):
            if isinstance(event, Changed):
                if event.object["spec"].get("nodeName"):
                    self._reach("bound", event.object["metadata"]["name"])
                statuses = event.object.get("status", {}).get("containerStatuses") or ()
                if statuses and "running" in statuses[0].get("state", {}):
                    name, container = event.object["metadata"]["name"], statuses[0]["containerID"]
                    if self.runs.get(name) != container:
                        self.runs[name] = container
                        self.started_s[name] = time.monotonic()
                        self._reach("started", name)
                        self.changed.set()

    async def watch_claims(self) -> None:
        """Loop: note which pods' claims are allocated."""
        async for event in self.kube.watch(CLAIMS):
            if isinstance(event, Changed):
                metadata = event.object["metadata"]
                (owner,) = metadata["ownerReferences"]
                self.pod_of[metadata["name"]] = owner["name"]
                if event.object.get("status", {}).get("allocation"):
                    self._reach("allocated", owner["name"])

    def _reach(self, stage: str, pod: str) -> None:
        self.reached_s.setdefault((stage, pod), time.monotonic())

    def stages_ms(self, *pods: str) -> Mapping[str, float]:
        """The medians of the time from the creation to each stage."""
        return {
            stage: median(
                (self.reached_s[stage, pod] - self.reached_s["created", pod]) * 1000 for pod in pods
            )
            for stage in STAGES
            if (stage, pods[0]) in self.reached_s
        }

    async def watch_slices(self) -> None:
        """Loop: note when the node's slices change."""
        async for event in self.kube.watch(SLICES, field_selector=f"spec.nodeName={NODE}"):
            if isinstance(event, Changed):
                self.published_s = time.monotonic()
                self.changed.set()

    async def read_events(self) -> None:
        """Loop: note how long preparations took."""
        subjects = [f"{subject_prefix(ClaimPrepared)}.>"]
        async for delivered in self.bus.read(EVENTS_STREAM, subjects=subjects):
            prepared = decode(delivered, ClaimPrepared)
            self.prepared_ms[prepared.name] = prepared.took_us / 1000
            self._reach("prepared", self.pod_of.get(prepared.name, ""))
            self.changed.set()

    async def preparations(self, prefix: str, count: int) -> list[float]:
        """Preparation times of claims of pods with this prefix, once there are ``count``."""

        def found() -> list[float]:
            return [ms for name, ms in self.prepared_ms.items() if name.startswith(prefix)]

        await self.until(lambda: len(found()) == count)
        return found()

    async def run(self, *pods: Object) -> list[float]:
        """Create pods at once, then delete them; returns milliseconds until each of them ran."""
        started_ms = await self.start(*pods)
        await self.delete(*pods)
        return started_ms

    async def start(self, *pods: Object) -> list[float]:
        """Create pods at once; returns milliseconds until each of them ran."""
        names = [pod["metadata"]["name"] for pod in pods]
        began_s = time.monotonic()
        for name in names:
            self._reach("created", name)
        await asyncio.gather(*(self.kube.create(PODS, pod, "default") for pod in pods))
        await self.until(lambda: all(name in self.started_s for name in names))
        return [(self.started_s[name] - began_s) * 1000 for name in names]

    async def delete(self, *pods: Object) -> None:
        """Delete pods without a grace period."""
        for pod in pods:
            await self.kube.delete(PODS, pod["metadata"]["name"], "default", grace_period_s=0)

    def agent_pid(self) -> int:
        """The process id of the node-agent, a child of the process that entered the node."""
        pid = self.stack.runner.pids()[AGENT]
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[0])
        return pid

    def agent_cpu_s(self) -> float:
        """CPU time of the node-agent so far."""
        return process_cpu_s(self.agent_pid())

    def agent_mib(self, which: str) -> float:
        """Memory of the node-agent: ``VmHWM``, the most so far, or ``VmRSS``."""
        status = Path(f"/proc/{self.agent_pid()}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(which))
        return int(line.split()[1]) / 1024

    @property
    def unhealthy(self) -> Path:
        """The file that names unhealthy GPUs."""
        return self.stack.nodes_directory / NODE / "dray" / "node-agent" / "unhealthy"

    async def tainted(self) -> bool:
        """Whether a device has the taint of unhealthy ones."""
        listed = await self.kube.list(SLICES, field_selector=f"spec.nodeName={NODE}")
        return any(
            taint["key"] == HEALTH_TAINT
            for one in listed.objects
            for device in one["spec"].get("devices") or ()
            for taint in device.get("taints") or ()
        )


def pod(name: str, gpus: int) -> Object:
    """A pod with small shares of ``gpus`` GPUs; 0: a pod without GPUs, on the same node."""
    annotations = {
        GPUPOOL: POOL,
        TFLOPS_REQUEST: "1",
        VRAM_REQUEST: "64Mi",
        GPU_COUNT: str(gpus),
    }
    container = {"name": "app", "image": "app", "imagePullPolicy": "IfNotPresent"}
    spec: Object = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    if not gpus:
        return {"metadata": {"name": name}, "spec": spec}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


def real_node() -> SimulatedNode:
    """The node."""
    return SimulatedNode(NODE, "A100", GPUS, {POOL_LABEL: POOL})


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """A stack of one real node."""
    options = StackOptions(
        name="bench-node",
        control_plane="real",
        kubelet="real",
        nodes=(real_node(),),
        log_level="warning",
        settings={"DRAY_WEBHOOK__SAMPLING_RATIO": str(_SAMPLED)},
    )
    async with Stack(options) as stack:
        record = stack.record
        kube = await connect_with_retries(record.kubeconfig, user_agent="dray-bench")
        password = record.nats_passwords["admin"]
        bus = await connect_bus(record.nats_url, name="bench", user="admin", password=password)
        made = Bench(stack, kube, bus)
        watching = [
            asyncio.create_task(loop())
            for loop in (
                made.watch_pods,
                made.watch_claims,
                made.watch_slices,
                made.read_events,
            )
        ]
        try:
            await configure(kube)
            yield made
        finally:
            for task in watching:
                task.cancel()
            for task in watching:
                with suppress(asyncio.CancelledError):
                    await task
            await bus.close()
            await kube.close()


async def measure(samples: int, burst: int, idle_s: float) -> AsyncIterator[Mapping[str, Any]]:
    """All figures, in parts."""
    async with bench() as made:
        await made.run(pod("warm-up", GPUS))
        with_gpus, without = list[float](), list[float]()
        for number in range(samples):
            with_gpus += await made.run(pod(f"gpus-{number}", GPUS))
            without += await made.run(pod(f"plain-{number}", 0))

        def named(kind: str) -> list[str]:
            return [f"{kind}-{number}" for number in range(samples)]

        yield {
            "prepare 8 devices, ms": percentiles(await made.preparations("gpus-", samples)),
            "created → started, 8 GPUs, ms": percentiles(with_gpus),
            "created → started, no GPU, ms": percentiles(without),
            "created → each stage, 8 GPUs, p50, ms": made.stages_ms(*named("gpus")),
            "created → each stage, no GPU, p50, ms": made.stages_ms(*named("plain")),
        }
        yield await _burst(made, burst)
        yield await _idle(made, idle_s)
        taken_ms = [await _health(made) for _ in range(5)]
        yield {"health event → taint, ms": percentiles(taken_ms)}
        yield await _offered(made)
        for part in (_restart, _rolling_update, _born_meanwhile, _reboot, _join):
            yield await part(made)


async def _idle(made: Bench, idle_s: float) -> Mapping[str, float]:
    await asyncio.sleep(5.0)
    before_s = made.agent_cpu_s()
    await asyncio.sleep(idle_s)
    return {
        "idle agent, percent of a core": (made.agent_cpu_s() - before_s) / idle_s * 100,
        "agent, MiB at most": made.agent_mib("VmHWM"),
    }


async def _burst(made: Bench, count: int) -> Mapping[str, Any]:
    """Create many pods at once, then delete them; first the same without GPUs."""
    without = [pod(f"none-{number}", 0) for number in range(count)]
    without_ms = await made.run(*without)
    names = {one["metadata"]["name"] for one in without}

    async def are_gone() -> bool:
        left = (await made.kube.list(PODS, "default")).objects
        return not names & {one["metadata"]["name"] for one in left}

    await _until(are_gone, time.monotonic())
    pods = [pod(f"burst-{number}", 1) for number in range(count)]
    at_once, before_s = f"{count} pods at once", made.agent_cpu_s()
    started_ms = await made.start(*pods)
    started_cpu_s = made.agent_cpu_s() - before_s
    prepared_ms = await made.preparations("burst-", count)
    await made.delete(*pods)
    checkpoint = made.stack.nodes_directory / NODE / "dray" / "node-agent" / "checkpoint.json"

    async def is_empty() -> bool:
        return not json.loads(checkpoint.read_text())["data"]["claims"]

    await _until(is_empty, time.monotonic())
    return {
        f"{at_once}, no GPU, last started, ms": max(without_ms),
        f"{at_once}, last started, ms": max(started_ms),
        f"{at_once}, prepare, ms": percentiles(prepared_ms),
        f"{at_once}, CPU of the agent until the last started, s": started_cpu_s,
        f"{at_once}, CPU of the agent until all ended, s": made.agent_cpu_s() - before_s,
    }


async def _health(made: Bench) -> float:
    began_s = time.monotonic()
    made.unhealthy.write_text("0 xid-79\n")
    taken_ms = await _until(made.tainted, began_s)
    made.unhealthy.unlink()

    async def is_well() -> bool:
        return not await made.tainted()

    await _until(is_well, began_s)
    return taken_ms


async def _offered(made: Bench) -> Mapping[str, Any]:
    """The times from a health event until the kubelet offers one GPU less to pods, and until it has
    written that to its Node, which it does every ``nodeStatusUpdateFrequency``."""
    kubelet_ms, node_ms = list[float](), list[float]()
    for _ in range(5):
        await _until(partial(_both_offer, made, GPUS), time.monotonic())
        began_s = time.monotonic()
        made.unhealthy.write_text("0 xid-79\n")
        kubelet_ms.append(await _until(partial(_kubelet_offers, made, GPUS - 1), began_s))
        node_ms.append(await _until(partial(_node_offers, made, GPUS - 1), began_s))
        made.unhealthy.unlink()
    return {
        "health event → the kubelet offers a GPU less, ms": percentiles(kubelet_ms),
        "health event → Allocatable of the Node, ms": percentiles(node_ms),
    }


async def _both_offer(made: Bench, count: int) -> bool:
    return await _kubelet_offers(made, count) and await _node_offers(made, count)


async def _kubelet_offers(made: Bench, count: int) -> bool:
    socket = made.stack.nodes_directory / NODE / "kubelet" / "pod-resources" / "kubelet.sock"
    messages: Any = pod_resources_pb2
    request, answer = messages.AllocatableResourcesRequest(), messages.AllocatableResourcesResponse
    listed = await call(socket, "/v1.PodResourcesLister/GetAllocatableResources", request, answer)
    offered = [one for one in listed.devices if one.resource_name == GPU_RESOURCE]
    return sum(len(one.device_ids) for one in offered) == count


async def _node_offers(made: Bench, count: int) -> bool:
    status = (await made.kube.get(NODES, NODE))["status"]
    return bool(status["allocatable"].get(GPU_RESOURCE) == str(count))


async def _restart(made: Bench) -> Mapping[str, float]:
    """Kill the agent and start it again."""
    registry = made.stack.nodes_directory / NODE / "kubelet" / "plugins_registry"
    await made.stack.kill(AGENT)
    old = {path.name for path in registry.glob("*.sock")}
    began_s = time.monotonic()
    starting = asyncio.create_task(made.stack.restart(AGENT))

    async def serves() -> bool:
        return bool({path.name for path in registry.glob("*.sock")} - old)

    socket_ms = await _until(serves, began_s)
    await starting
    return {
        "agent started → socket, ms": socket_ms,
        "agent started → ready, ms": (time.monotonic() - began_s) * 1000,
    }


async def _rolling_update(made: Bench) -> Mapping[str, float]:
    """Create pods while the agent is replaced as by a DaemonSet with ``maxSurge: 1``."""
    created_s, is_over = dict[str, float](), asyncio.Event()

    async def create() -> None:
        while not is_over.is_set():
            name = f"update-{len(created_s)}"
            created_s[name] = time.monotonic()
            await made.kube.create(PODS, pod(name, 1), "default")
            await asyncio.sleep(_CREATE_EVERY_S)

    creating = asyncio.create_task(create())
    new = await start_second_agent(made.stack, AGENT)
    await made.stack.runner.stop(AGENT)
    await asyncio.sleep(1.0)
    is_over.set()
    await creating
    await made.until(lambda: created_s.keys() <= made.started_s.keys())
    await made.delete(*(pod(name, 1) for name in created_s))
    await made.stack.restart(AGENT)
    await made.stack.runner.stop(new)
    took_ms = [(made.started_s[name] - began_s) * 1000 for name, began_s in created_s.items()]
    return {
        "created during a rolling update, pods": float(len(created_s)),
        "created during a rolling update → started, the slowest, ms": max(took_ms),
    }


async def _born_meanwhile(made: Bench) -> Mapping[str, float]:
    """Create a pod while the node has no agent: the old agent has ended, and the new one is
    starting."""
    await made.stack.runner.stop(AGENT)
    created_s = time.monotonic()
    await made.kube.create(PODS, pod("meanwhile", 1), "default")
    await made.stack.restart(AGENT)
    await made.until(lambda: "meanwhile" in made.started_s)
    await made.kube.delete(PODS, "meanwhile", "default", grace_period_s=0)
    took_ms = (made.started_s["meanwhile"] - created_s) * 1000
    return {"created while there is no agent → started, ms": took_ms}


async def _reboot(made: Bench) -> Mapping[str, float]:
    """Cut the node's power while pods run, and start it again."""
    names = [f"reboot-{number}" for number in range(GPUS)]
    for name in names:
        await made.kube.create(PODS, pod(name, 1), "default")
    await made.until(lambda: all(name in made.started_s for name in names))
    before = dict(made.runs)
    await made.stack.stop_node(NODE)
    began_s = time.monotonic()
    await made.stack.start_node(real_node())
    registered_s = time.monotonic()
    await made.until(lambda: all(made.runs[name] != before[name] for name in names))
    last_s = max(made.started_s[name] for name in names)
    for name in names:
        await made.kube.delete(PODS, name, "default", grace_period_s=0)
    return {
        "reboot: node started → agent registered, ms": (registered_s - began_s) * 1000,
        "reboot: agent registered → last of 8 pods started, ms": (last_s - registered_s) * 1000,
    }


async def _join(made: Bench) -> Mapping[str, float]:
    """Add the node while a pod waits for it."""
    await made.stack.runner.stop(AGENT)
    await made.stack.runner.stop(f"kubelet-{NODE}")
    await made.kube.delete(NODES, NODE)
    await made.kube.create(PODS, pod("joins", 1), "default")
    await made.stack.restart(f"kubelet-{NODE}")
    made.published_s = 0.0
    await made.stack.restart(AGENT)
    registered_s = time.monotonic()
    await made.until(lambda: made.published_s > 0.0 and "joins" in made.started_s)
    return {
        "joining node: agent registered → published, ms": (made.published_s - registered_s) * 1000,
        "joining node: agent registered → first pod started, ms": (
            made.started_s["joins"] - registered_s
        )
        * 1000,
    }


async def _until(is_so: Callable[[], Awaitable[bool]], began_s: float) -> float:
    """Wait until the condition holds; returns milliseconds since ``began_s``."""
    async with asyncio.timeout(_WITHIN_S):
        while not await is_so():  # noqa: ASYNC110 - files tell nobody
            await asyncio.sleep(0.02)  # a kubelet answers at most 100 requests a second
    return (time.monotonic() - began_s) * 1000


@click.command()
@click.option("--samples", default=30, show_default=True, help="Pods, one at a time.")
@click.option("--burst", default=100, show_default=True, help="Pods at once.")
@click.option("--idle-s", default=60.0, show_default=True, help="How long the idle agent is seen.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(samples: int, burst: int, idle_s: float, output: str) -> None:
    """Measure a node with a real kubelet."""
    load, found = os.getloadavg()[0], dict[str, Any]()
    if output == "text":
        click.echo(f"{machine()}, load {load:.1f}\n")

    async def collect() -> None:
        async for part in measure(samples, burst, idle_s):
            found.update(part)
            if output == "text":
                click.echo("\n".join(_row(what, value) for what, value in part.items()))

    asyncio.run(collect())
    above = [
        f"{what} {name}".strip()
        for what, limits in LIMITS.items()
        for name, most in limits.items()
        if what in found and _named(found[what])[name] > most
    ]
    if output == "json":
        figures = {"machine": machine(), "load": load, "above": above, "figures": found}
        click.echo(json.dumps(figures, indent=2))
    elif above:
        click.echo(f"\nabove the limit: {'; '.join(above)}")
    raise SystemExit(bool(above))


def _named(value: Any) -> dict[str, float]:
    return value if isinstance(value, dict) else {"": value}


def _row(what: str, value: Any) -> str:
    parts = "   ".join(f"{name} {one:.6g}".strip() for name, one in _named(value).items())
    limits = ", ".join(f"{name} {most:g}".strip() for name, most in LIMITS.get(what, {}).items())
    return f"  {what:<62} {parts}" + (f"   (at most {limits})" if limits else "")


if __name__ == "__main__":
    main()
