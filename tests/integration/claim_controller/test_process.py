"""The claim-controller as a process: real nats-server, its own permissions, an API server."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.api.names import ALLOCATED
from dray.bus import jetstream
from dray.bus.topology import ALLOCATOR
from dray.kube import api
from dray.kube.ports import (
    BIND_REQUESTS,
    CRDS,
    EVENTS,
    NAMESPACES,
    PODS,
    TEMPLATES,
    AlreadyExistsError,
    Kube,
    NotFoundError,
)
from dray_sandbox.access import ADMIN, CLAIM_CONTROLLER, kubeconfig
from dray_sandbox.apiserver.serve import serve
from dray_sandbox.nats_server import start_nats
from dray_sandbox.probes import answers
from dray_sandbox.processes import ProcessSpec, Runner
from dray_sandbox.tcp_ports import free_port

CRD_FILES = Path(__file__).parents[3] / "deploy/helm/dray/crds"


@contextlib.asynccontextmanager
async def _sandbox(folder: Path, _: Runner) -> Any:
    """Kubeconfigs of the administrator and of the controller."""
    async with serve(folder) as running:
        path = folder / "kubeconfig"
        path.write_bytes(kubeconfig(running.url, running.ca_file, ADMIN, running.token, "test"))
        yield path, path


@contextlib.asynccontextmanager
async def _real(folder: Path, runner: Runner) -> Any:
    """The same of a real control plane, where the controller has its own user and RBAC."""
    from dray_sandbox.access import make_credentials
    from dray_sandbox.chart import cluster_roles
    from dray_sandbox.controlplane.build import build
    from dray_sandbox.controlplane.launch import start_control_plane
    from dray_sandbox.objects import Installer

    folder.mkdir()  # noqa: ASYNC240 - once, in a test
    reached = await start_control_plane(
        runner, await build(print), folder, make_credentials(folder), context="test"
    )
    async with Installer(reached) as installer:
        await installer.apply(cluster_roles())
    yield reached.admin_kubeconfig, reached.kubeconfigs[CLAIM_CONTROLLER]


async def _install(kube: Kube) -> None:
    for name in ("default", "dray-system"):
        with contextlib.suppress(AlreadyExistsError):
            await kube.create(NAMESPACES, {"metadata": {"name": name}})
    for path in sorted(CRD_FILES.glob("*.yaml")):
        with contextlib.suppress(AlreadyExistsError):
            await kube.create(CRDS, yaml.safe_load(path.read_text()))


def _program(name: str, nats: Any, config: Path, health: int) -> ProcessSpec:
    environment = {
        **nats.environment("claim-controller"),
        "DRAY_INSTANCE": name,
        "DRAY_KUBE__KUBECONFIG": str(config),
        "DRAY_HEALTH__PORT": str(health),
    }
    return ProcessSpec(
        name=name,
        argv=(sys.executable, "-m", "dray_claim_controller"),
        environment=environment,
        ready=answers(f"http://127.0.0.1:{health}/readyz"),
        ready_within_s=60.0,
        order=20,
    )


@pytest.mark.parametrize(
    "api_server",
    [
        pytest.param(_sandbox, id="sandbox"),
        pytest.param(_real, id="real", marks=[pytest.mark.real, pytest.mark.timeout(600)]),
    ],
)
async def test_a_pod_is_bound_through_an_api_server(
    tmp_path: Path, api_server: Any, bare_world: Any
) -> None:
    runner = Runner(tmp_path / "logs")
    nats = await start_nats(runner, tmp_path)
    allocator = nats.environment(ALLOCATOR)
    bus = await jetstream.connect(
        nats.url,
        name="test",
        role=ALLOCATOR,
        user=ALLOCATOR,
        password=allocator["DRAY_NATS__PASSWORD"],
    )
    try:
        async with api_server(tmp_path / "api", runner) as (admin, own):
            kube = await api.connect(str(admin), user_agent="test")
            try:
                await _install(kube)
                program = _program("claim-controller", nats, own, free_port())
                await _run(bare_world(kube, bus), runner, program, alone=api_server is _sandbox)
            finally:
                await kube.close()
    finally:
        await bus.close()
        await runner.stop_all()
    lines = (tmp_path / "logs" / "claim-controller.log").read_text().splitlines()
    assert json.loads(lines[-1])["event"] == "stopped"


async def _run(world: Any, runner: Runner, program: ProcessSpec, *, alone: bool) -> None:
    """``alone``: nobody else makes claims of templates."""
    kube = world.kube
    await _created(world)
    await runner.start(program)
    pod = await world.pod()

    async def derived() -> Any:
        with contextlib.suppress(NotFoundError):
            return await kube.get(TEMPLATES, world.template_of(world.shape()), "default")

    await world.until(derived, "the template is derived", 60)
    if alone:
        await world._make_claim(kube, await kube.get(PODS, "workload", "default"))

    async def claimed() -> Any:
        status = (await kube.get(PODS, "workload", "default")).get("status") or {}
        return status.get("resourceClaimStatuses")

    await world.until(claimed, "the claim is made", 60)
    await world.decide(await world.decision())

    async def bound() -> Any:
        return (await kube.get(PODS, "workload", "default"))["spec"].get("nodeName")

    assert await world.until(bound, "the pod is bound", 60) == "node-1"

    async def is_reported() -> bool:
        events = (await kube.list(EVENTS, "default")).objects
        stated = any("Successfully assigned resources" in event["message"] for event in events)
        claim = await world.claim()
        announced = claim["metadata"]["annotations"].get(ALLOCATED) == "true"
        with contextlib.suppress(NotFoundError):
            request = await kube.get(BIND_REQUESTS, "workload", "default")
            phase = (request.get("status") or {}).get("phase")
            return stated and announced and phase == "Succeeded"
        return False

    await world.until(is_reported, "the event", 60)
    claim = await world.claim()
    reserved = claim["status"]["reservedFor"]
    assert [entry["uid"] for entry in reserved] == [pod["metadata"]["uid"]]


async def _created(world: Any) -> None:
    """A pool and a node, once the API server serves the custom resources."""

    async def pool() -> Any:
        with contextlib.suppress(NotFoundError):
            return await world.pool("default-pool", dedicated=True)

    await world.until(pool, "custom resources are served", 60)
    await world.node("node-1", "default-pool")
