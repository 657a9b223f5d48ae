"""The servers that a suite runs on: the sandbox's API, and a real control plane."""

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dray.kube.api import connect
from dray.kube.ports import NAMESPACES
from dray.kube.probe import probe
from dray.messages.facts import ClusterObserved
from dray_sandbox.access import ADMIN, kubeconfig, make_credentials
from dray_sandbox.apiserver import WatchSettings, serve
from dray_sandbox.apiserver.server import ApiServerSettings
from dray_sandbox.controlplane.build import build
from dray_sandbox.controlplane.launch import start_control_plane
from dray_sandbox.processes import Runner

SERVERS = ["sandbox", pytest.param("real", marks=[pytest.mark.real, pytest.mark.timeout(900)])]
"""The params of a fixture that runs a server."""
KEPT_BY = {
    "taints": "device_taints",
    "requestPolicy": "consumable_capacity",
    "shareID": "consumable_capacity",
    "sharedCounters": "partitionable_devices",
    "consumesCounters": "partitionable_devices",
    "perDeviceNodeSelection": "partitionable_devices",
    "bindingConditions": "binding_conditions",
    "bindingFailureConditions": "binding_conditions",
    "extendedResourceName": "extended_resources",
}
"""Fields that some servers drop unseen, and what `ClusterObserved` says of it."""
KEPT_BY_FROM_35 = {"tolerations": "device_taints", "distinctAttribute": "consumable_capacity"}
"""Fields that 1.34 keeps whatever its feature gates say."""


@dataclass(frozen=True)
class Target:
    """A running server and how its administrator reaches it."""

    name: str
    url: str
    token: str
    ca_file: Path
    kubeconfig: Path
    cluster: ClusterObserved | None = None
    """What it keeps, found by asking it."""

    @property
    def minor(self) -> int:
        """The x of Kubernetes 1.x; the sandbox is the default one's."""
        assert self.cluster is not None
        return int(self.cluster.version.split(".")[1])

    def dropped(self, value: Any) -> str:
        """The first field of `value`, at any depth, that the server drops unseen; else empty."""
        if isinstance(value, list):
            return next(filter(None, map(self.dropped, value)), "")
        gates = KEPT_BY if self.minor == 34 else KEPT_BY | KEPT_BY_FROM_35
        for name, item in value.items() if isinstance(value, dict) else ():
            if name in gates and not getattr(self.cluster, gates[name]):
                return str(name)
            if found := self.dropped(item):
                return found
        return ""


Serving = Callable[..., AbstractContextManager[Target]]
"""Runs ``sandbox`` or ``real`` in a folder; ``serve`` names API versions served in addition to
those that are on by default."""


@pytest.fixture(scope="session")
def serving() -> Serving:
    """How to run a server for as long as a suite needs it."""
    return lambda name, directory, serve=(): _in_thread(
        _sandbox(directory, serve) if name == "sandbox" else _real(directory, serve)
    )


@pytest.fixture(scope="session", params=SERVERS)
def target(
    request: pytest.FixtureRequest, serving: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The server of a whole suite that is to hold on both."""
    with serving(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module", params=SERVERS)
def target_with_v1beta2(
    request: pytest.FixtureRequest, serving: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """A server for one module, whose `target` is this one: it serves v1beta2 and v1."""
    directory = tmp_path_factory.mktemp(f"{request.param}-v1beta2")
    with serving(request.param, directory, serve=("resource.k8s.io/v1beta2",)) as running:
        yield running


@contextlib.asynccontextmanager
async def _sandbox(directory: Path, versions: tuple[str, ...]) -> AsyncIterator[Target]:
    watch = WatchSettings(bookmark_interval_s=1.0)
    settings = ApiServerSettings(directory / "data", watch=watch, serve=versions)
    async with serve(directory, settings) as running:
        path = directory / "kubeconfig"
        path.write_bytes(kubeconfig(running.url, running.ca_file, ADMIN, running.token, "test"))
        yield await _asked(Target("sandbox", running.url, running.token, running.ca_file, path))


@contextlib.asynccontextmanager
async def _real(directory: Path, serve: tuple[str, ...] = ()) -> AsyncIterator[Target]:
    binary = await build(print)
    runner = Runner(directory / "logs")
    try:
        endpoint = await start_control_plane(
            runner, binary, directory, make_credentials(directory), context="contract", serve=serve
        )
        yield await _asked(
            Target(
                "real",
                endpoint.url,
                endpoint.tokens[ADMIN],
                endpoint.authority,
                endpoint.admin_kubeconfig,
            )
        )
    finally:
        await runner.stop_all()


async def _asked(target: Target) -> Target:
    kube = await connect(str(target.kubeconfig), user_agent="contract")
    try:
        namespace = await kube.create(NAMESPACES, {"metadata": {"name": "asked"}})
        found = await probe(kube, namespace["metadata"]["name"], revision=1)
    finally:
        await kube.close()
    return dataclasses.replace(target, cluster=found)


@contextlib.contextmanager
def _in_thread(server: contextlib.AbstractAsyncContextManager[Target]) -> Iterator[Target]:
    """Run a server for the whole session in a loop of its own; tests have one loop each."""
    ready: Future[Target] = Future()
    stop: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        event = asyncio.Event()
        stop.set_result((asyncio.get_running_loop(), event))
        try:
            async with server as target:
                ready.set_result(target)
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
