"""The real nodes of a stack: their network, images, Service names and machines."""

import asyncio
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from dray_sandbox.access import Endpoint, certificate_kubeconfig
from dray_sandbox.certificates import make_client_authority
from dray_sandbox.controlplane.launch import KubeletAccess
from dray_sandbox.layout import SimulatedNode
from dray_sandbox.node import configuration, dns, specs
from dray_sandbox.node.machine import PLAN_FILE, MachinePlan, write_plan
from dray_sandbox.node.network import choose_network
from dray_sandbox.node.programs import NodePrograms
from dray_sandbox.node.requirements import MachinePrograms, lowers_oom_scores
from dray_sandbox.objects import Installer
from dray_sandbox.processes import Runner, gather_or_cancel
from dray_sandbox.registry.images import STAND_IN, ImageFiles, ImageStore
from dray_sandbox.registry.names import parse_image_name
from dray_sandbox.secret_files import write_secret
from dray_sandbox.tcp_ports import free_port

_DNS_USER = "dray-dns"
_PROXY_USER = "system:kube-proxy"
_API_SERVER_CLIENT = "kube-apiserver-kubelet-client"
_STAND_IN_SCRIPT = """#!/bin/sh
echo "A stand-in for an image that nobody added to the stack. Its environment:"
env | sort
ls -l /dev/nvidia* 2>/dev/null
trap 'exit 0' TERM INT
while :; do sleep 3600 & wait $!; done
"""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What nodes need from the rest of the cluster."""

    endpoint: Endpoint
    context: str
    registry_url: str
    proxy_kubeconfig: Path


class NodeCluster:
    """Starts and stops real nodes.

    ``directory`` is for files that nodes share; ``nodes`` has one folder per node. ``programs`` are
    the built programs, ``machine`` those of this machine.
    """

    def __init__(
        self,
        runner: Runner,
        directory: Path,
        nodes: Path,
        programs: NodePrograms,
        machine: MachinePrograms,
    ) -> None:
        self.images = ImageStore(directory / "images")
        self._runner = runner
        self._directory = directory
        self._nodes = nodes
        self._programs = programs
        self._machine = machine
        self._network = choose_network()
        self._clients = make_client_authority()
        self._indices: dict[str, int] = {}
        self._cluster: _Cluster | None = None

    @property
    def address(self) -> str:
        """The address at which nodes and pods reach this machine."""
        return self._network.host

    async def start_network(self) -> KubeletAccess:
        """Join this machine to the network of nodes; returns how the API server is reached there.

        Raises:
            ProgramFailedError: the links can't be made.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        await self._runner.start(specs.network(self._network, self._router_pid_file))
        return self._kubelet_access()

    async def start_services(
        self, endpoint: Endpoint, context: str, archives: Iterable[Path]
    ) -> None:
        """Start the registry with the images of ``archives``, and CoreDNS.

        Raises:
            InvalidInputError: a file is not an archive of images.
            ProgramFailedError: one of them can't be started.
        """
        await asyncio.to_thread(self._add_images, archives)
        registry_url, _ = await gather_or_cancel(
            self._start_registry(), self._start_dns(endpoint, context)
        )
        proxy_kubeconfig = self._directory / "kube-proxy.kubeconfig"
        self._write_kubeconfig(proxy_kubeconfig, endpoint, context, _PROXY_USER)
        self._cluster = _Cluster(endpoint, context, registry_url, proxy_kubeconfig)

    async def start_node(self, node: SimulatedNode) -> None:
        """Start a node; returns when its programs run. A node that was stopped keeps its files.

        Pods get a network only after kube-proxy has written its rules, so a running pod can reach
        Services by name and address.

        Raises:
            ProgramFailedError: one of its programs can't be started.
        """
        directory = self._nodes / node.name
        plan = self._plan(node.name, directory)
        self._write_configuration(plan, directory)
        pod_network = directory / "cni" / "10-pods.conflist"
        pod_network.unlink(missing_ok=True)
        labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
        run = self._runner.start
        await run(specs.machine(plan, directory / PLAN_FILE, self._programs))
        await run(specs.containerd(plan, self._programs, directory / "containerd.toml"))
        await gather_or_cancel(
            run(
                specs.kubelet(
                    plan,
                    self._programs,
                    directory / "kubelet.json",
                    directory / "kubelet.kubeconfig",
                    labels,
                )
            ),
            run(specs.kube_proxy(plan, self._programs, directory / "kube-proxy.json")),
        )
        # containerd notices when this file is written, but not when a file is renamed to it.
        pod_network.write_text(configuration.network(plan.pods, plan.first_pod))

    async def stop_node(self, name: str) -> None:
        """End a node at once, as a power failure does."""
        for program in (specs.MACHINE, specs.KUBE_PROXY, specs.KUBELET, specs.CONTAINERD):
            await self._runner.stop(specs.name_of(program, name))

    @property
    def _router_pid_file(self) -> Path:
        return self._directory / "router.pid"

    def _kubelet_access(self) -> KubeletAccess:
        access = KubeletAccess(
            self._network.host,
            client_authority=self._directory / "clients.crt",
            certificate=self._directory / "kubelet-client.crt",
            key=self._directory / "kubelet-client.key",
        )
        client = self._clients.issue(_API_SERVER_CLIENT, ["system:masters"])
        access.client_authority.write_bytes(self._clients.certificate)
        access.certificate.write_bytes(client.certificate)
        write_secret(access.key, client.key)
        return access

    def _add_images(self, archives: Iterable[Path]) -> None:
        pause = ImageFiles({"/pause": Path(self._programs.pause)}, entrypoint=["/pause"])
        self.images.add_files([parse_image_name(configuration.SANDBOX_IMAGE)], pause)
        busybox = self._machine.busybox
        listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
        stand_in = ImageFiles(
            {"/bin/busybox": busybox},
            texts={"/stand-in": _STAND_IN_SCRIPT},
            links={
                f"/bin/{name}": "busybox" for name in listed.stdout.split() if name != "busybox"
            },
            entrypoint=["/stand-in"],
        )
        self.images.add_files([STAND_IN], stand_in)
        for path in archives:
            self.images.add_archive(path)

    async def _start_registry(self) -> str:
        """Start the registry; returns its URL."""
        host, directory = self._network.host, self.images.directory
        port = await self._runner.start_on_free_port(
            lambda port: specs.registry(directory, host, port)
        )
        return f"http://{host}:{port}"

    async def _start_dns(self, endpoint: Endpoint, context: str) -> None:
        kubeconfig, corefile = self._directory / "dns.kubeconfig", self._directory / "Corefile"
        self._write_kubeconfig(kubeconfig, endpoint, context, _DNS_USER)
        host, port, health_port = self._network.host, free_port(), free_port()
        async with Installer(endpoint) as installer:
            await installer.apply(dns.objects(_DNS_USER, host, port))
        corefile.write_text(dns.corefile(host, port, health_port, str(kubeconfig)))
        url = f"http://{host}:{health_port}/health"
        await self._runner.start(specs.coredns(self._programs, corefile, url, host, port))

    def _plan(self, name: str, directory: Path) -> MachinePlan:
        index = self._indices.setdefault(name, len(self._indices) + 1)
        addresses = self._network.node(index)
        stack = blake2b(str(self._nodes).encode(), digest_size=4).hexdigest()
        return MachinePlan(
            name=name,
            directory=str(directory),
            group=f"/dray-{stack}-{name}",
            address=addresses.address,
            pods=addresses.pods,
            first_pod=addresses.first_pod,
            link=addresses.link,
            router=self._network.router,
            router_pid_file=str(self._router_pid_file),
        )

    def _write_configuration(self, plan: MachinePlan, directory: Path) -> None:
        assert self._cluster is not None, "start_services comes before start_node"
        cluster = self._cluster
        directory.mkdir(parents=True, exist_ok=True)
        write_plan(plan, directory / PLAN_FILE)
        cni, mirrors = directory / "cni", directory / "mirrors"
        cni.mkdir(exist_ok=True)
        texts = {
            directory / "containerd.toml": configuration.containerd(
                str(self._machine.cni_plugins),
                str(cni),
                str(mirrors),
                lowers_oom=lowers_oom_scores(),
            ),
            mirrors / "_default" / "hosts.toml": configuration.mirror(cluster.registry_url),
            directory / "resolv.conf": configuration.resolver(),
            directory / "kubelet.json": configuration.kubelet(
                plan.group,
                str(self._directory / "clients.crt"),
                str(directory / "resolv.conf"),
            ),
            directory / "kube-proxy.json": configuration.kube_proxy(
                str(cluster.proxy_kubeconfig), plan.name
            ),
        }
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._write_kubeconfig(
            directory / "kubelet.kubeconfig",
            cluster.endpoint,
            cluster.context,
            f"system:node:{plan.name}",
            "system:nodes",
        )

    def _write_kubeconfig(
        self, path: Path, endpoint: Endpoint, context: str, user: str, *groups: str
    ) -> None:
        client = self._clients.issue(user, groups)
        write_secret(path, certificate_kubeconfig(endpoint, user, client, context))
