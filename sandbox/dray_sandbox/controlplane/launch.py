"""Run etcd, kube-apiserver, kube-scheduler and kube-controller-manager on free ports."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from dray.api.errors import PermanentError
from dray_sandbox.access import (
    ADMIN,
    CONTROLLERS,
    SCHEDULER,
    Endpoint,
    SandboxCredentials,
    endpoint,
)
from dray_sandbox.certificates import make_signing_key, write_secret
from dray_sandbox.controlplane.audit import start_audit_log
from dray_sandbox.controlplane.build import GoBinary
from dray_sandbox.paths import free_port
from dray_sandbox.probes import answers, listens
from dray_sandbox.processes import ProcessSpec, ProgramFailedError, Runner, together

API_SERVER = "kube-apiserver"
SCHEDULER_NAME = "kube-scheduler"
CONTROLLERS_NAME = "kube-controller-manager"
_CONTROLLERS = "resourceclaim-controller,namespace-controller,garbage-collector-controller"
_ATTEMPTS = 3
_FAST = ("--kube-api-qps=5000", "--kube-api-burst=10000")


class PortsTakenError(PermanentError):
    """Other programs took the ports that were free a moment before."""


async def start_control_plane(
    runner: Runner,
    binary: GoBinary,
    directory: Path,
    credentials: SandboxCredentials,
    *,
    context: str,
    serve: tuple[str, ...] = (),
    extra_flags: tuple[str, ...] = (),
) -> Endpoint:
    """Start all four; returns when the API server is ready and the other two are up.

    ``serve`` are API versions that are off by default, such as ``resource.k8s.io/v1beta2``;
    ``extra_flags`` go to kube-apiserver, too.

    Raises:
        ProgramFailedError: one of them ended, or was not ready in time.
        PortsTakenError: other programs took every port that was tried.
    """
    audit = start_audit_log(directory)
    extra_flags = (*audit.flags, *_served(serve), *extra_flags)
    etcd = await _on_a_free_port(runner, lambda port: _etcd(runner, binary, directory, port))
    signing_key = make_signing_key(directory / "sa.key")

    def api_server(port: int) -> ProcessSpec:
        return _api_server(binary, directory, credentials, signing_key, etcd, port, extra_flags)

    port = await _on_a_free_port(runner, api_server)
    reached = endpoint(credentials, f"https://127.0.0.1:{port}", context)
    await together(
        runner.start(_scheduler(binary, directory, reached)),
        runner.start(_controller_manager(binary, directory, reached)),
    )
    return dataclasses.replace(reached, audit_log=audit.path)


async def change_version(runner: Runner, binary: GoBinary) -> None:
    """Run the API server, then scheduler and controllers as ``binary``'s version.

    Data, ports and flags stay; etcd runs on. Returns when all three are up. Raises
    ProgramFailedError.
    """
    await runner.replace(_of_version(binary, runner.program(API_SERVER)))
    await together(
        *(
            runner.replace(_of_version(binary, runner.program(name)))
            for name in (SCHEDULER_NAME, CONTROLLERS_NAME)
        )
    )


def _served(versions: tuple[str, ...]) -> tuple[str, ...]:
    enabled = ",".join(f"{version}=true" for version in versions)
    return (f"--runtime-config={enabled}",) if enabled else ()


def _of_version(binary: GoBinary, program: ProcessSpec) -> ProcessSpec:
    return dataclasses.replace(program, argv=(binary.program(program.name), *program.argv[1:]))


async def _on_a_free_port(runner: Runner, make: Callable[[int], ProcessSpec]) -> int:
    """Start what ``make`` describes, again on another port when the race for one is lost."""
    taken: list[str] = []
    while len(taken) < _ATTEMPTS:
        port = free_port()
        program = make(port)
        try:
            await runner.start(program)
        except ProgramFailedError as error:
            if not error.lost_a_port:
                raise
            taken.append(str(port))
        else:
            return port
    raise PortsTakenError(
        f"{program.name} can't start: ports {', '.join(taken)} of 127.0.0.1 were free when it was "
        "started and taken when it listened; run it again, with fewer stacks at once"
    )


def _etcd(runner: Runner, binary: GoBinary, directory: Path, port: int) -> ProcessSpec:
    url = f"http://127.0.0.1:{port}"
    healthy = answers(f"{url}/health")

    async def ready() -> bool:
        # Another stack's etcd on this port would answer as well: etcd has no password here.
        return listens(runner.pids().get("etcd", 0), port) and await healthy()

    return ProcessSpec(
        name="etcd",
        argv=(binary.program("etcd"), str(directory / "etcd"), url),
        ready=ready,
        order=0,
    )


def _api_server(
    binary: GoBinary,
    directory: Path,
    credentials: SandboxCredentials,
    signing_key: Path,
    etcd_port: int,
    port: int,
    extra_flags: tuple[str, ...],
) -> ProcessSpec:
    server = credentials.server
    flags = (
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={directory}",
        f"--tls-cert-file={server.certificate}",
        f"--tls-private-key-file={server.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={signing_key}",
        f"--service-account-signing-key-file={signing_key}",
        f"--token-auth-file={credentials.token_file}",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        # No controller makes service accounts here, and pods need none.
        "--disable-admission-plugins=ServiceAccount",
        *extra_flags,
    )
    url = f"https://127.0.0.1:{port}/readyz"
    return ProcessSpec(
        name=API_SERVER,
        argv=(binary.program(API_SERVER), *flags),
        ready=answers(url, authority=server.authority, token=credentials.tokens[ADMIN]),
        stop_within_s=15.0,
        order=1,
    )


def _scheduler(binary: GoBinary, directory: Path, reached: Endpoint) -> ProcessSpec:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(reached.kubeconfigs[SCHEDULER]),
            "qps": 5000,
            "burst": 10000,
        },
    }
    path = directory / "kube-scheduler.json"
    write_secret(path, json.dumps(configuration, indent=2).encode())
    return ProcessSpec(
        name=SCHEDULER_NAME,
        argv=(binary.program(SCHEDULER_NAME), f"--config={path}", "--secure-port=0"),
        order=2,
    )


def _controller_manager(binary: GoBinary, directory: Path, reached: Endpoint) -> ProcessSpec:
    flags = (
        f"--kubeconfig={reached.kubeconfigs[CONTROLLERS]}",
        "--leader-elect=false",
        f"--controllers={_CONTROLLERS}",
        "--secure-port=0",
        f"--cert-dir={directory}",
        *_FAST,
    )
    return ProcessSpec(
        name=CONTROLLERS_NAME,
        argv=(binary.program(CONTROLLERS_NAME), *flags),
        order=2,
    )
