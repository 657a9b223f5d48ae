"""One suite over Kubernetes in memory, the sandbox's API server, and a real control plane."""

import asyncio
import contextlib
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
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


def kubeconfig(path: Path, url: str, token: str, authority: Path | None) -> Path:
    cluster = {"server": url}
    if authority is not None:
        cluster["certificate-authority"] = str(authority)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
    }
    path.write_text(json.dumps(content))
    return path


@contextlib.asynccontextmanager
async def _sandbox(directory: Path) -> AsyncIterator[Path]:
    from dray_sandbox.apiserver import WatchSettings, serve
    from dray_sandbox.apiserver.server import Settings

    settings = Settings(directory / "data", watch=WatchSettings(bookmark_interval_s=1.0))
    async with serve(directory, settings) as running:
        yield kubeconfig(directory / "kubeconfig", running.url, running.token, running.ca_file)


@contextlib.asynccontextmanager
async def _real(directory: Path) -> AsyncIterator[Path]:
    from dray_sandbox.access import ADMIN, make_credentials
    from dray_sandbox.controlplane.build import build
    from dray_sandbox.controlplane.launch import start_control_plane
    from dray_sandbox.processes import Runner

    binary = await build(print)
    runner = Runner(directory / "logs")
    try:
        endpoint = await start_control_plane(
            runner, binary, directory, make_credentials(directory), context="contract"
        )
        yield endpoint.kubeconfigs[ADMIN]
    finally:
        await runner.stop_all()


@contextlib.contextmanager
def _in_thread(server: contextlib.AbstractAsyncContextManager[Path]) -> Iterator[Path]:
    """Run a server for the whole session in a loop of its own; tests have one loop each."""
    ready: Future[Path] = Future()
    stop: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        event = asyncio.Event()
        stop.set_result((asyncio.get_running_loop(), event))
        try:
            async with server as path:
                ready.set_result(path)
                await event.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    try:
        yield ready.result(timeout=600)
    finally:
        loop, event = stop.result()
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)
        thread.join(timeout=60)


@pytest.fixture(
    scope="session",
    params=[
        "memory",
        "sandbox",
        pytest.param("real", marks=[pytest.mark.real, pytest.mark.timeout(900)]),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path | None]]:
    kind = str(request.param)
    if kind == "memory":
        yield kind, None
        return
    directory = tmp_path_factory.mktemp(kind)
    with _in_thread(_sandbox(directory) if kind == "sandbox" else _real(directory)) as path:
        yield kind, path


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
        async with asyncio.timeout(20):
            while True:
                try:
                    await kube.get(resource, name, namespace)
                except NotFoundError:
                    return
                await asyncio.sleep(0.05)

    return wait
