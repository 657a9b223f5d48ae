"""A pod on a whole local stack, from its creation until its devices are prepared."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dray.api.errors import PermanentError
from dray.api.names import GPUPOOL, TFLOPS_REQUEST, VRAM_REQUEST
from dray.bus.jetstream import connect as connect_bus
from dray.kube.api import connect as connect_kube
from dray.kube.ports import PODS, AlreadyExistsError, Kube, Object
from dray_cli.demo.collector import DemoCollector
from dray_cli.demo.manifests import read_manifests
from dray_sandbox.layout import ControlPlane, StackOptions, simulated_nodes
from dray_sandbox.paths import checkout
from dray_sandbox.stack import Stack

POOLS = {"dedicated nodes, dray binds": "my-gpu-pool", "shared nodes, gate lifted": "default"}
_PREPARED_WITHIN_S = 30.0


def measure(
    control_plane: ControlPlane, samples: int, progress: Callable[[str], None]
) -> dict[str, list[float]]:
    """Milliseconds from a pod's creation until it is prepared, one pod at a time, by who binds it.

    Raises:
        PermanentError: a pod was not prepared within 30 s.
    """
    return asyncio.run(_measure(control_plane, samples, progress))


async def _measure(
    control_plane: ControlPlane, samples: int, progress: Callable[[str], None]
) -> dict[str, list[float]]:
    options = StackOptions(
        name="bench", control_plane=control_plane, nodes=simulated_nodes(3), log_level="warning"
    )
    async with Stack(options, progress) as stack:
        record = stack.record
        kube = await connect_kube(record.kubeconfig, user_agent="dray-bench")
        bus = await connect_bus(
            record.nats_url, name="bench", user="admin", password=record.nats_passwords["admin"]
        )
        collector = DemoCollector(kube, bus)
        watching = asyncio.create_task(collector.run(), name="collector")
        try:
            await configure(kube)
            return {
                path: [await _one(kube, collector, pool, n) for n in range(samples + 1)][1:]
                for path, pool in POOLS.items()
            }
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await bus.close()
            await kube.close()


async def configure(kube: Kube) -> None:
    """The pools of the quick-start example, without its pods."""
    for manifest in read_manifests(checkout() / Path("examples") / "01-quick-start", "0[123]-*"):
        with suppress(AlreadyExistsError):
            await kube.create(manifest.resource, manifest.object, manifest.namespace)


async def _one(kube: Kube, collector: DemoCollector, pool: str, number: int) -> float:
    name = f"bench-{pool}-{number}"
    story = collector.follow("default", name)
    await kube.create(PODS, pod(name, pool), "default")
    if not await collector.until(lambda: "prepared" in story.steps, _PREPARED_WITHIN_S):
        raise PermanentError(
            f"pod {name} was not prepared within {_PREPARED_WITHIN_S:g} s; it lacks "
            f"{', '.join(story.missing)}"
        )
    await kube.delete(PODS, name, "default")
    return (story.steps["prepared"].at_unix_s - story.asked_unix_s) * 1000


def pod(name: str, pool: str) -> Object:
    annotations = {
        GPUPOOL: pool,
        TFLOPS_REQUEST: "10",
        VRAM_REQUEST: "1Gi",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }
