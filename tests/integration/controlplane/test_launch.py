"""The real control plane alone, as the launcher starts it."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dray_sandbox.access import WEBHOOK, Endpoint, make_credentials
from dray_sandbox.controlplane.audit import audited_requests
from dray_sandbox.controlplane.build import GoBinary, build
from dray_sandbox.controlplane.launch import start_control_plane
from dray_sandbox.processes import Runner

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

V1BETA2 = "resource.k8s.io/v1beta2"


@pytest.fixture
async def binary() -> GoBinary:
    return await build(print)


@pytest.fixture
async def endpoint(binary: GoBinary, tmp_path: Path) -> AsyncIterator[Endpoint]:
    runner = Runner(tmp_path / "logs")
    try:
        yield await start_control_plane(
            runner, binary, tmp_path, make_credentials(tmp_path), context="test", serve=(V1BETA2,)
        )
    finally:
        await runner.stop_all()


async def kubectl(binary: GoBinary, kubeconfig: Path, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        binary.program("kubectl"),
        *arguments,
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_it_serves_the_versions_asked_for_and_audits_every_request(
    binary: GoBinary, endpoint: Endpoint
) -> None:
    admin = endpoint.admin_kubeconfig
    code, output = await kubectl(binary, admin, "get", "deviceclasses.v1beta2.resource.k8s.io")
    assert code == 0, output
    webhook = endpoint.kubeconfigs[WEBHOOK]
    code, output = await kubectl(binary, webhook, "get", "pods", "--namespace", "team")
    assert code == 1, output
    assert "forbidden" in output
    assert endpoint.audit_log
    audited = list(audited_requests(endpoint.audit_log))
    (forbidden,) = [request for request in audited if request.user == WEBHOOK and request.forbidden]
    asked_for = (forbidden.verb, forbidden.resource, forbidden.namespace, forbidden.code)
    assert asked_for == ("list", "pods", "team", 403)
