"""Pods that come and go all the time, as users make them, and what must hold for each."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.packaging.helm.installation import PATIENCE_S, Cluster

from dray.kube.ports import CLAIMS, PODS, KubeError, NotFoundError, Object
from tools.faults.history import StackHistory, watch_history

PODS_PER_S = float(os.environ.get("DRAY_LOAD_PODS_PER_S", "5"))
NAMESPACE = "default"
PREFIX = "load-"


@dataclass(slots=True)
class Load:
    """``per_s`` pods a second; each is deleted once it runs."""

    cluster: Cluster
    per_s: float
    refused: list[str] = field(default_factory=list)
    """Pods that the API server did not take, and why."""
    created_s: dict[str, float] = field(default_factory=dict)
    running_s: dict[str, float] = field(default_factory=dict)
    """How long each pod took from its creation to its first container."""

    async def create(self) -> None:
        """Loop: create pods."""
        number = 0
        while True:
            name = f"{PREFIX}{number}"
            number += 1
            try:
                await self.cluster.kube.create(PODS, pod(name), NAMESPACE)
                self.created_s[name] = time.monotonic()
            except KubeError as error:
                self.refused.append(f"{name}: {error}")
            await asyncio.sleep(1 / self.per_s)

    async def delete(self) -> None:
        """Loop: delete pods that run."""
        while True:
            for found in (await self.cluster.kube.list(PODS, NAMESPACE)).objects:
                name = found["metadata"]["name"]
                if name not in self.created_s or name in self.running_s:
                    continue
                if found.get("status", {}).get("phase") == "Running":
                    took_s = time.monotonic() - self.created_s[name]
                    await self.cluster.kube.delete(PODS, name, NAMESPACE, grace_period_s=0)
                    self.running_s[name] = took_s
            await asyncio.sleep(0.3)

    async def until_more_run(self, count: int) -> None:
        """Wait until so many further pods run: the load goes on."""
        wanted = len(self.running_s) + count

        async def reached() -> bool:
            return len(self.running_s) >= wanted

        await self.cluster.until(reached, f"{count} more pods running")

    def late(self) -> dict[str, float]:
        """Pods that have not run, and how old they are."""
        now_s = time.monotonic()
        return {
            name: round(now_s - since_s, 1)
            for name, since_s in self.created_s.items()
            if name not in self.running_s
        }


@asynccontextmanager
async def under_load(cluster: Cluster, *, per_s: float) -> AsyncIterator[Load]:
    """Load during the block; at its end every pod has run, none was refused, and at no time was a
    device allocated twice or a claim lost. No pod stays, also if something fails."""
    load = Load(cluster, per_s)
    async with watch_history(cluster.kube) as history:
        creating = asyncio.create_task(load.create())
        deleting = asyncio.create_task(load.delete())
        try:
            await load.until_more_run(3)
            yield load
            creating.cancel()

            async def all_ran() -> bool:
                return not load.late()

            await cluster.until(all_ran, f"all of {len(load.created_s)} pods have run")
        finally:
            creating.cancel()
            deleting.cancel()
            await asyncio.gather(creating, deleting, return_exceptions=True)
            print(_summary(load))
            await _delete_all(cluster)
        _judge(load, history)


def _judge(load: Load, history: StackHistory) -> None:
    assert load.refused == []
    assert load.late() == {}
    assert history.check_all().violations == []


async def _delete_all(cluster: Cluster) -> None:
    for left in (await cluster.kube.list(PODS, NAMESPACE)).objects:
        if (name := left["metadata"]["name"]).startswith(PREFIX):
            with suppress(NotFoundError):
                await cluster.kube.delete(PODS, name, NAMESPACE, grace_period_s=0)

    async def gone() -> bool:
        pods = (await cluster.kube.list(PODS, NAMESPACE)).objects
        claims = (await cluster.kube.list(CLAIMS, NAMESPACE)).objects
        return not any(PREFIX in one["metadata"]["name"] for one in (*pods, *claims))

    await cluster.until(gone, f"pods and claims of the load gone within {PATIENCE_S:g} s")


def _summary(load: Load) -> str:
    took_s = sorted(load.running_s.values())
    if not took_s:
        return "no pod ran"
    median, worst = took_s[len(took_s) // 2], took_s[-1]
    return (
        f"{len(took_s)} of {len(load.created_s)} pods ran, after {median:.1f} s (median) and "
        f"{worst:.1f} s (worst); {len(load.refused)} were refused"
    )


def pod(name: str) -> Object:
    """A pod with a small share of a GPU, whose container needs nothing."""
    annotations = {
        "tensor-fusion.ai/gpupool": "default",
        "tensor-fusion.ai/tflops-request": "10",
        "tensor-fusion.ai/vram-request": "1Gi",
    }
    container = {"name": "app", "image": "app"}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
