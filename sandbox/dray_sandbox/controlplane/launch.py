"""Run etcd, kube-apiserver, kube-scheduler and kube-controller-manager on free ports."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from dray_sandbox.access import ADMIN, CONTROLLERS, SCHEDULER, Credentials, Endpoint, endpoint
from dray_sandbox.certificates import make_signing_key, write_secret
from dray_sandbox.controlplane.audit import start_audit_log
from dray_sandbox.controlplane.build import Binary
from dray_sandbox.places import free_port
from dray_sandbox.probes import answers
from dray_sandbox.processes import Program, ProgramFailedError, Runner, together

API_SERVER = "kube-apiserver"
_CONTROLLERS = "resourceclaim-controller,namespace-controller,garbage-collector-controller"
_ATTEMPTS = 3
_FAST = ("--kube-api-qps=5000", "--kube-api-burst=10000")


async def start_control_plane(
    runner: Runner,
    binary: Binary,
    directory: Path,
    credentials: Credentials,
    *,
    context: str,
    serve: tuple[str, ...] = (),
    extra_flags: tuple[str, ...] = (),
) -> Endpoint:
    """Start all four; returns when the API server is ready and the other two are up.

    ``serve`` are API versions that are off by default, such as ``resource.k8s.io/v1beta2``;
    ``extra_flags`` go to kube-apiserver, too. Raises ProgramFailedError.
    """
    audit = start_audit_log(directory)
    extra_flags = (*audit.flags, *_served(serve), *extra_flags)
    etcd = await _on_a_free_port(runner, lambda port: _etcd(binary, directory, port))
    signing_key = make_signing_key(directory / "sa.key")

    def api_server(port: int) -> Program:
        return _api_server(binary, directory, credentials, signing_key, etcd, port, extra_flags)

    port = await _on_a_free_port(runner, api_server)
    reached = endpoint(credentials, f"https://127.0.0.1:{port}", context)
    await together(
        runner.start(_scheduler(binary, directory, reached)),
        runner.start(_controller_manager(binary, directory, reached)),
    )
    return dataclasses.replace(reached, audit_log=audit.path)


def _served(versions: tuple[str, ...]) -> tuple[str, ...]:
    enabled = ",".join(f"{version}=true" for version in versions)
    return (f"--runtime-config={enabled}",) if enabled else ()


async def _on_a_free_port(runner: Runner, make: Callable[[int], Program]) -> int:
    """Start what ``make`` describes, again on another port when the race for one is lost."""
    for attempt in range(1, _ATTEMPTS + 1):
        port = free_port()
        try:
            await runner.start(make(port))
        except ProgramFailedError as error:
            if error.lost_a_port and attempt < _ATTEMPTS:
                continue
            raise
        return port
    raise AssertionError("the last attempt returns or raises")


def _etcd(binary: Binary, directory: Path, port: int) -> Program:
    url = f"http://127.0.0.1:{port}"
    return Program(
        name="etcd",
        argv=(binary.program("etcd"), str(directory / "etcd"), url),
        ready=answers(f"{url}/health"),
        order=0,
    )


def _api_server(
    binary: Binary,
    directory: Path,
    credentials: Credentials,
    signing_key: Path,
    etcd_port: int,
    port: int,
    extra_flags: tuple[str, ...],
) -> Program:
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
    return Program(
        name=API_SERVER,
        argv=(binary.program(API_SERVER), *flags),
        ready=answers(url, authority=server.authority, token=credentials.tokens[ADMIN]),
        stop_within_s=15.0,
        order=1,
    )


def _scheduler(binary: Binary, directory: Path, reached: Endpoint) -> Program:
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
    return Program(
        name="kube-scheduler",
        argv=(binary.program("kube-scheduler"), f"--config={path}", "--secure-port=0"),
        order=2,
    )


def _controller_manager(binary: Binary, directory: Path, reached: Endpoint) -> Program:
    flags = (
        f"--kubeconfig={reached.kubeconfigs[CONTROLLERS]}",
        "--leader-elect=false",
        f"--controllers={_CONTROLLERS}",
        "--secure-port=0",
        f"--cert-dir={directory}",
        *_FAST,
    )
    return Program(
        name="kube-controller-manager",
        argv=(binary.program("kube-controller-manager"), *flags),
        order=2,
    )
