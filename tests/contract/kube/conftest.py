"""One suite over Kubernetes in memory, the sandbox's API server, and a real control plane."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dray.kube.api import connect
from dray.kube.memory import MemoryKube
from dray.kube.ports import NAMESPACES, Kube, NotFoundError, Object, Resource

DRIVER = "gpus.example.com"


@dataclass
class World:
    """A server, a client of it, and a namespace for one test."""

    kind: str
    kube: Kube
    namespace: str
    _cleanup: list[tuple[Resource, str]] = field(default_factory=list)

    def unique(self, name: str) -> str:
        """A name for a cluster-scoped object that no other test uses."""
        return f"{name}-{self.namespace}"

    async def create(self, resource: Resource, obj: Object) -> Object:
        made = await self.kube.create(resource, obj, self.namespace)
        if not resource.namespaced:
            self._cleanup.append((resource, made["metadata"]["name"]))
        return made

    async def close(self) -> None:
        for resource, name in self._cleanup:
            await self.kube.delete(resource, name)
        await self.kube.close()


def pod(name: str = "p", **spec: Any) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "c", "image": "example.com/image:1"}],
            **spec,
        },
    }


def claim(name: str = "c") -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def allocation(device: str = "gpu-0") -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": device}
    return {"devices": {"results": [result]}}


@dataclass(frozen=True)
class Bodies:
    """Objects to create."""

    pod = staticmethod(pod)
    claim = staticmethod(claim)
    allocation = staticmethod(allocation)


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture(
    scope="session",
    params=[
        "memory",
        "sandbox",
        pytest.param("real", marks=[pytest.mark.real, pytest.mark.timeout(900)]),
    ],
)
def server(
    request: pytest.FixtureRequest, serving: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path | None]]:
    kind = str(request.param)
    if kind == "memory":
        yield kind, None
        return
    with serving(kind, tmp_path_factory.mktemp(kind)) as target:
        yield kind, target.kubeconfig


@pytest.fixture
async def world(server: tuple[str, Path | None]) -> AsyncIterator[World]:
    kind, path = server
    kube: Kube = MemoryKube() if path is None else await connect(str(path), user_agent="contract")
    made = World(kind, kube, f"t{uuid.uuid4().hex[:8]}")
    await kube.create(NAMESPACES, {"metadata": {"name": made.namespace}})
    yield made
    await made.close()


@pytest.fixture
def kube(world: World) -> Kube:
    return world.kube


@pytest.fixture
def is_gone() -> Any:
    async def wait(kube: Kube, resource: Resource, name: str, namespace: str) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await kube.get(resource, name, namespace)
                except NotFoundError:
                    return
                await asyncio.sleep(0.05)

    return wait
