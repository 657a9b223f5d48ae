"""Run etcd, kube-apiserver, kube-scheduler and kube-controller-manager on free ports."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from dray_sandbox.access import (
    ADMIN,
    CONTROLLERS,
    SCHEDULER,
    Endpoint,
    SandboxCredentials,
    endpoint,
)
from dray_sandbox.certificates import make_signing_key
from dray_sandbox.controlplane.audit import start_audit_log
from dray_sandbox.controlplane.build import GoBinary
from dray_sandbox.probes import answers, listens
from dray_sandbox.processes import ProcessSpec, Runner, gather_or_cancel
from dray_sandbox.secret_files import write_secret

API_SERVER = "kube-apiserver"
_SCHEDULER_NAME = "kube-scheduler"
_CONTROLLERS_NAME = "kube-controller-manager"
_FOR_CLAIMS = "resourceclaim-controller,namespace-controller,garbage-collector-controller"
_NODE_GRACE_S = 20
"""A node without a heartbeat for this long is not ready; a cluster waits 50 s."""
_TOLERATION_S = 20
"""How long pods stay on a node that is not ready; in a cluster 300 s."""
_LOOPBACK = "127.0.0.1"
_SIMULATED_KUBELETS = ("--kubelet-preferred-address-types=InternalDNS",)
_FAST = ("--kube-api-qps=5000", "--kube-api-burst=10000")


@dataclass(frozen=True, slots=True)
class KubeletAccess:
    """How real kubelets and pods reach the API server, and how it reaches kubelets."""

    address: str
    """The only address of this machine on which the API server listens."""
    client_authority: Path
    """The certificates that it has signed identify users."""
    certificate: Path
    """The API server's certificate as a client of kubelets."""
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of kube-apiserver."""
        return (
            f"--client-ca-file={self.client_authority}",
            f"--kubelet-client-certificate={self.certificate}",
            f"--kubelet-client-key={self.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--enable-admission-plugins=NodeRestriction",
            # This machine has routes to pods but not to ClusterIPs: webhooks are called at pods.
            "--enable-aggregator-routing=true",
        )


async def start_control_plane(
    runner: Runner,
    binary: GoBinary,
    directory: Path,
    credentials: SandboxCredentials,
    *,
    context: str,
    workloads: bool = False,
    serve: tuple[str, ...] = (),
    extra_flags: tuple[str, ...] = (),
    feature_gates: tuple[str, ...] = (),
    kubelets: KubeletAccess | None = None,
) -> Endpoint:
    """Start all four; returns when the API server is ready and the other two run.

    ``workloads``: run every controller that needs no cloud, and service accounts, as a cluster
    does. Without it, only the controllers of claims, namespaces and garbage run. This is for nodes
    without a kubelet, which the node lifecycle controller would treat as lost. ``serve`` are API
    versions that are off by default, such as ``resource.k8s.io/v1beta2``; ``extra_flags`` are
    additional flags of kube-apiserver; ``feature_gates``, such as ``GenericWorkload``, are on in
    every program; ``kubelets`` is set if nodes are real.

    Raises:
        ProgramFailedError: one of them ended, or was not ready in time.
        PortsTakenError: other programs took every port that was tried.
    """
    audit = start_audit_log(directory)
    gates = _gates(feature_gates)
    extra_flags = (
        *audit.flags,
        *_runtime_config(serve),
        *_pod_flags(workloads),
        *gates,
        *extra_flags,
    )
    address = kubelets.address if kubelets else _LOOPBACK
    extra_flags += kubelets.flags if kubelets else _SIMULATED_KUBELETS
    etcd = await runner.start_on_free_port(lambda port: _etcd(runner, binary, directory, port))
    signing_key = make_signing_key(directory / "sa.key")

    def api_server(port: int) -> ProcessSpec:
        return _api_server(
            binary, directory, credentials, signing_key, etcd, address, port, extra_flags
        )

    port = await runner.start_on_free_port(api_server)
    server = endpoint(credentials, f"https://{address}:{port}", context)
    await gather_or_cancel(
        runner.start(_scheduler(binary, directory, server, gates)),
        runner.start(_controller_manager(binary, directory, server, signing_key, workloads, gates)),
    )
    return replace(server, audit_log=audit.path)


async def change_version(runner: Runner, binary: GoBinary) -> None:
    """Restart the API server, then the scheduler and the controllers, in ``binary``'s version.

    Data, ports, flags and etcd stay. Returns when all three run. Raises ProgramFailedError.
    """
    await runner.replace(_with_binary(binary, runner.program(API_SERVER)))
    await gather_or_cancel(
        *(
            runner.replace(_with_binary(binary, runner.program(name)))
            for name in (_SCHEDULER_NAME, _CONTROLLERS_NAME)
        )
    )


def _pod_flags(workloads: bool) -> tuple[str, ...]:
    """Flags of kube-apiserver for pods: their service accounts, and nodes that are not ready."""
    if not workloads:
        return ("--disable-admission-plugins=ServiceAccount",)  # no controller creates accounts
    return (
        f"--default-not-ready-toleration-seconds={_TOLERATION_S}",
        f"--default-unreachable-toleration-seconds={_TOLERATION_S}",
    )


def _runtime_config(versions: tuple[str, ...]) -> tuple[str, ...]:
    enabled = ",".join(f"{version}=true" for version in versions)
    return (f"--runtime-config={enabled}",) if enabled else ()


def _gates(names: tuple[str, ...]) -> tuple[str, ...]:
    enabled = ",".join(f"{name}=true" for name in names)
    return (f"--feature-gates={enabled}",) if enabled else ()


def _with_binary(binary: GoBinary, program: ProcessSpec) -> ProcessSpec:
    return replace(program, argv=(binary.program(program.name), *program.argv[1:]))


def _etcd(runner: Runner, binary: GoBinary, directory: Path, port: int) -> ProcessSpec:
    url = f"http://127.0.0.1:{port}"
    healthy = answers(f"{url}/health")

    async def ready() -> bool:
        # Another stack's etcd on this port would answer, too: etcd has no password here.
        return listens(runner.pids().get("etcd", 0), port) and await healthy()

    return ProcessSpec(
        name="etcd",
        argv=(binary.program("etcd"), str(directory / "etcd"), url),
        ready=ready,
        health_url=f"{url}/health",
        order=0,
    )


def _api_server(
    binary: GoBinary,
    directory: Path,
    credentials: SandboxCredentials,
    signing_key: Path,
    etcd_port: int,
    address: str,
    port: int,
    extra_flags: tuple[str, ...],
) -> ProcessSpec:
    server = credentials.server
    flags = (
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        f"--bind-address={address}",
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
        *extra_flags,
    )
    url = f"https://{address}:{port}/readyz"
    return ProcessSpec(
        name=API_SERVER,
        argv=(binary.program(API_SERVER), *flags),
        ready=answers(url, authority=server.authority, token=credentials.tokens[ADMIN]),
        health_url=url,
        stop_within_s=15.0,
        order=1,
    )


def _scheduler(
    binary: GoBinary, directory: Path, server: Endpoint, gates: tuple[str, ...]
) -> ProcessSpec:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(server.kubeconfigs[SCHEDULER]),
            "qps": 5000,
            "burst": 10000,
        },
    }
    path = directory / "kube-scheduler.json"
    write_secret(path, json.dumps(configuration, indent=2).encode())
    return ProcessSpec(
        name=_SCHEDULER_NAME,
        argv=(binary.program(_SCHEDULER_NAME), f"--config={path}", "--secure-port=0", *gates),
        order=2,
    )


def _controller_manager(
    binary: GoBinary,
    directory: Path,
    server: Endpoint,
    signing_key: Path,
    workloads: bool,
    gates: tuple[str, ...],
) -> ProcessSpec:
    flags = (
        f"--kubeconfig={server.kubeconfigs[CONTROLLERS]}",
        "--leader-elect=false",
        # It skips controllers that need a cloud, or a certificate that no flag names.
        f"--controllers={'*' if workloads else _FOR_CLAIMS}",
        f"--service-account-private-key-file={signing_key}",
        f"--root-ca-file={server.authority}",
        f"--node-monitor-grace-period={_NODE_GRACE_S}s",
        "--node-monitor-period=1s",
        "--secure-port=0",
        f"--cert-dir={directory}",
        f"--flex-volume-plugin-dir={directory / 'volumes'}",  # it creates this folder
        *_FAST,
        *gates,
    )
    return ProcessSpec(
        name=_CONTROLLERS_NAME,
        argv=(binary.program(_CONTROLLERS_NAME), *flags),
        order=2,
    )
