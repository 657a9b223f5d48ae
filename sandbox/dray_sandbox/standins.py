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
from dray_sandbox.paths import free_port
from dray_sandbox.probes import answers
from dray_sandbox.processes import ProcessSpec, ProgramFailedError, Runner, together

API_SERVER = "apiserver"
_ATTEMPTS = 3


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
    """Start all three; returns when the API server is ready. Raises ProgramFailedError."""
    for attempt in range(1, _ATTEMPTS + 1):
        port = free_port()
        url = f"https://127.0.0.1:{port}"
        reached = endpoint(credentials, url, context)
        try:
            await together(
                runner.start(_api_server(directory, credentials, port, crds, serve)),
                runner.start(_python("scheduler", reached.kubeconfigs[SCHEDULER])),
                runner.start(
                    _python(
                        "controllers",
                        reached.kubeconfigs[CONTROLLERS],
                        f"--template-retry={template_retry}",
                    )
                ),
            )
        except ProgramFailedError as error:
            for name in (API_SERVER, "scheduler", "controllers"):
                await runner.stop(name)
            if error.lost_a_port and attempt < _ATTEMPTS:
                continue
            raise
        return reached
    raise AssertionError("the last attempt returns or raises")


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
    return ProcessSpec(
        name=API_SERVER,
        argv=(sys.executable, "-m", "dray_sandbox.apiserver", *flags),
        ready=answers(
            f"https://127.0.0.1:{port}/readyz",
            authority=server.authority,
            token=credentials.tokens[ADMIN],
        ),
        order=1,
    )


def _python(name: str, kubeconfig: Path, *flags: str) -> ProcessSpec:
    """A stand-in; it waits for the API server by itself."""
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
