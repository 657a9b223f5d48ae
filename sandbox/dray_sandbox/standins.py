"""The sandbox's control plane: its API server, scheduler and controllers as processes."""

import sys
from pathlib import Path

from dray_sandbox.access import (
    ADMIN,
    CONTROLLERS,
    SCHEDULER,
    Endpoint,
    SandboxCredentials,
    endpoint,
)
from dray_sandbox.probes import answers
from dray_sandbox.processes import ProcessSpec, Runner

_API_SERVER = "apiserver"


async def start_sandbox(
    runner: Runner,
    directory: Path,
    credentials: SandboxCredentials,
    *,
    context: str,
    crds: Path,
    serve: tuple[str, ...] = (),
    template_retry: str = "watch",
) -> Endpoint:
    """Start all three; returns when the API server is ready.

    Raises:
        ProgramFailedError, PortsTakenError: one of them could not be started.
    """
    port = await runner.start_on_free_port(
        lambda port: _api_server(directory, credentials, port, crds, serve)
    )
    reached = endpoint(credentials, f"https://127.0.0.1:{port}", context)
    retry = f"--template-retry={template_retry}"
    await runner.start(_python("scheduler", reached.kubeconfigs[SCHEDULER]))
    await runner.start(_python("controllers", reached.kubeconfigs[CONTROLLERS], retry))
    return reached


def _api_server(
    directory: Path, credentials: SandboxCredentials, port: int, crds: Path, serve: tuple[str, ...]
) -> ProcessSpec:
    server = credentials.server
    flags = (
        f"--port={port}",
        f"--cert={server.certificate}",
        f"--key={server.key}",
        f"--tokens={credentials.token_file}",
        f"--data-dir={directory / 'objects'}",
        f"--crds={crds}",
        *(f"--serve={version}" for version in serve),
    )
    url = f"https://127.0.0.1:{port}/readyz"
    return ProcessSpec(
        name=_API_SERVER,
        argv=(sys.executable, "-m", "dray_sandbox.apiserver", *flags),
        ready=answers(url, authority=server.authority, token=credentials.tokens[ADMIN]),
        health_url=url,
        order=1,
    )


def _python(name: str, kubeconfig: Path, *flags: str) -> ProcessSpec:
    """The scheduler's or the controllers' program."""
    return ProcessSpec(
        name=name,
        argv=(
            sys.executable,
            "-m",
            f"dray_sandbox.{name}",
            f"--kubeconfig={kubeconfig}",
            *flags,
        ),
        order=2,
    )
