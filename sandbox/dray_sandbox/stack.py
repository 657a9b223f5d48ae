"""A whole local stack: control plane, NATS, dray's services, simulated nodes.

    async with Stack(StackOptions(nodes=simulated_nodes(3))) as stack:
        kubectl = {"KUBECONFIG": stack.record.kubeconfig}
        await stack.kill("allocator")

All files are in one folder of the checkout's cache, and all processes end with this one.
``record`` has the address of each part; it is also written to ``stack.json``.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from dray.api.names import DRAY_NAMESPACE
from dray_sandbox.access import Endpoint, make_credentials
from dray_sandbox.chart import (
    admission_policies,
    chart_directory,
    classes,
    cluster_roles,
    refused_claim,
)
from dray_sandbox.controlplane.build import GoBinary, build
from dray_sandbox.controlplane.launch import (
    KubeletAccess,
    change_version,
    start_control_plane,
)
from dray_sandbox.kubelet.tokens import ACCOUNT
from dray_sandbox.last_run import (
    NODES_FOLDER,
    check_kept_state,
    remove_leftovers,
    remove_state,
)
from dray_sandbox.layout import GPU_RESOURCES, SCHEDULER_NAMES, SimulatedNode, StackOptions
from dray_sandbox.nats_server import NatsAccess, start_nats, wipe_store
from dray_sandbox.node.cluster import NodeCluster
from dray_sandbox.node.network import API_NAMES, API_SERVICE
from dray_sandbox.node.programs import build_programs
from dray_sandbox.node.requirements import check_machine
from dray_sandbox.objects import Installer, documents
from dray_sandbox.paths import fits_unix_sockets, stack_directory, traces_directory
from dray_sandbox.processes import Runner, gather_or_cancel
from dray_sandbox.restarts import RestartLoop
from dray_sandbox.services import ServicePrograms, node_agent_name
from dray_sandbox.stack_file import (
    StackFile,
    StackRunsError,
    process_record,
    read_stack_file,
    remove_stack_file,
    write_stack_file,
)
from dray_sandbox.stack_lock import StackLock
from dray_sandbox.standins import start_sandbox
from dray_sandbox.tcp_ports import free_port
from dray_webhook.decisions.registration import probe_pod, webhook_configurations

Progress = Callable[[str], None]
_DEFAULT_ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default", "namespace": "default"},
}


class Stack:
    """One local stack, to be started once, as a context manager or by start and stop."""

    def __init__(
        self,
        options: StackOptions,
        progress: Progress = lambda line: None,
        lock: StackLock | None = None,
    ) -> None:
        """``lock``: the lock of the stack's name, if it is already taken."""
        self.options = options
        self._lock = lock
        self.directory = stack_directory(options.name)
        self.runner = Runner(self.directory / "logs")
        self._progress = progress
        self._began = time.monotonic()
        self._nodes = self.directory / NODES_FOLDER
        self._record: StackFile | None = None
        self._services: ServicePrograms | None = None
        self._cluster: NodeCluster | None = None
        self._endpoint: Endpoint | None = None
        self._restarts: Counter[str] = Counter()
        self._identities = asyncio.Event()
        """Set once claim-controllers confirm tokens. If a node-agent connects earlier, NATS makes
        it wait for three seconds and then refuses it."""

    @property
    def record(self) -> StackFile:
        """Addresses and credentials of the stack. Raises RuntimeError before it has started."""
        if self._record is None:
            raise RuntimeError("the stack has not started")
        return self._record

    @property
    def nodes_directory(self) -> Path:
        """Folder with one folder per node, which its kubelet and node-agent share."""
        return self._nodes

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> StackFile:
        """Start everything; returns when every part is ready.

        Raises:
            StackRunsError: a stack of this name is running.
            StackLockedError: another process is starting or stopping one.
            KeptStateError: the state to continue with belongs to another control plane.
            ProgramFailedError, BuildError, ToolchainError, ApplyError: a part failed; no process
                is left running.
        """
        if (running := self._running_elsewhere()) is not None:
            raise StackRunsError(running)
        self._lock = self._lock or StackLock.take(self.options.name)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.stop)
            self._take_directory()
            await self._start()
            undo.pop_all()
        return self.record

    async def stop(self) -> None:
        """Stop everything and remove the stack file; logs and state stay until the next start."""
        await self.runner.stop_all()
        if self._record is not None or self._running_elsewhere() is None:
            remove_stack_file(self.options.name)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def restart(self, name: str) -> None:
        """Stop one process if it runs, start it again, wait until it is ready."""
        await self.runner.restart(name)
        self._write_record()

    async def start_node(self, node: SimulatedNode) -> None:
        """Start another real node, or one that was stopped; returns when it is ready.

        Raises:
            ProgramFailedError, ApplyError: one of its parts failed, or it was not ready in time.
        """
        assert self._endpoint is not None, "the stack has not started"
        async with Installer(self._endpoint) as installer:
            await self._start_real_node(node, installer)
        self._write_record()

    async def stop_node(self, name: str) -> None:
        """End a real node at once, as a power failure does. Its Node object and files stay."""
        assert self._cluster is not None, "the nodes are not real"
        await self._cluster.stop_node(name)
        if self._services is not None:
            await self.runner.stop(node_agent_name(name))
        self._write_record()

    async def supervise(self) -> None:
        """Restart every process that ends by itself, until cancelled."""

        def on_restart(name: str) -> None:
            self._restarts[name] += 1
            self._write_record()

        await RestartLoop(self.runner, self._progress, on_restart).run()

    async def kill(self, name: str) -> None:
        """SIGKILL one process; ``restart`` starts it again."""
        await self.runner.kill(name)

    def pause(self, name: str) -> None:
        """SIGSTOP one process."""
        self.runner.pause(name)

    def resume(self, name: str) -> None:
        """SIGCONT one process."""
        self.runner.resume(name)

    async def change_version(self, binary: GoBinary) -> None:
        """Switch a real control plane to ``binary``'s version, on the same data. Services keep
        running."""
        await change_version(self.runner, binary)
        self._write_record()

    async def empty_nats(self) -> None:
        """Restart NATS with an empty store: every stream is lost."""
        await self.runner.stop("nats-server")
        wipe_store(self.directory)
        await self.runner.restart("nats-server")
        self._write_record()

    async def _start(self) -> None:
        kubelets = await self._start_network() if self.options.kubelet == "real" else None
        async with self._step("api server and NATS" if self.options.services else "api server"):
            endpoint, nats = await gather_or_cancel(
                self._start_control_plane(kubelets), self._start_nats()
            )
        self._endpoint = endpoint
        webhook_url = ""
        async with Installer(endpoint) as installer:
            if self.options.control_plane == "real" and self.options.workloads:
                # Until then, the API server refuses every pod.
                await installer.wait_until_exists(_DEFAULT_ACCOUNT)
            if nats is None:
                async with self._step("nodes"):
                    await self._start_nodes(endpoint, installer)
            else:
                traces = traces_directory(self.directory)
                self._services = ServicePrograms(self.options, endpoint, nats, self._nodes, traces)
                webhook_url = await self._start_dray(endpoint, installer, self._services)
        self._record = self._describe(endpoint, nats, webhook_url)
        self._write_record()

    async def _start_dray(
        self, endpoint: Endpoint, installer: Installer, services: ServicePrograms
    ) -> str:
        """Install dray, start its services and the nodes; returns the webhook's URL."""
        async with self._step("custom resources"):
            await self._install(installer)
        webhook_port = free_port()
        certificates = self.directory / "webhook"
        async with self._step("services and nodes"):
            await gather_or_cancel(
                self._start_services(services, certificates, webhook_port),
                self._start_nodes(endpoint, installer),
            )
        url = f"https://127.0.0.1:{webhook_port}"
        bundle = (certificates / "ca.crt").read_bytes()
        # The mutating one last: once the server calls it, it also calls the validating one.
        await installer.apply(
            reversed(
                webhook_configurations(
                    url, bundle, scheduler_names=SCHEDULER_NAMES, gpu_resources=GPU_RESOURCES
                )
            )
        )
        await installer.wait_until_denied(probe_pod(), by="admission webhook")
        await installer.wait_until_denied(refused_claim(), by="ValidatingAdmissionPolicy")
        await installer.apply(documents(chart_directory() / "files" / "basetemplate.yaml"))
        return url

    async def _start_nats(self) -> NatsAccess | None:
        if not self.options.services:
            return None
        return await start_nats(
            self.runner,
            self.directory,
            sync_interval=self.options.sync_interval,
            max_payload_bytes=self.options.max_payload_bytes,
        )

    async def _start_network(self) -> KubeletAccess:
        """Build the programs of real nodes and start their network."""
        own = check_machine(self.directory)
        programs = await build_programs(self._progress)
        self._cluster = NodeCluster(
            self.runner, self.directory / "cluster", self._nodes, programs, own
        )
        return await self._cluster.start_network()

    async def _start_control_plane(self, kubelets: KubeletAccess | None) -> Endpoint:
        names = (kubelets.address, API_SERVICE, *API_NAMES) if kubelets else ()
        credentials = make_credentials(self.directory / "access", names)
        if self.options.control_plane == "real":
            binary = await build(self._progress)
            folder = self.directory / "kubernetes"
            return await start_control_plane(
                self.runner,
                binary,
                folder,
                credentials,
                context=self._context,
                workloads=self.options.workloads,
                serve=self.options.serve,
                feature_gates=self.options.feature_gates,
                kubelets=kubelets,
            )
        return await start_sandbox(
            self.runner,
            self.directory,
            credentials,
            context=self._context,
            crds=_crds(),
            serve=self.options.serve,
            template_retry=self.options.template_retry,
        )

    async def _install(self, installer: Installer) -> None:
        crds = documents(_crds())
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": DRAY_NAMESPACE},
        }
        node_agents = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": DRAY_NAMESPACE},
        }
        await installer.apply([namespace, node_agents, *classes(), *crds, *admission_policies()])
        if self.options.control_plane == "real":
            await installer.apply(cluster_roles())
        await installer.wait_until_served(crds)

    async def _start_services(
        self, services: ServicePrograms, certificates: Path, port: int
    ) -> None:
        programs = [*services.allocators(), services.webhook(certificates, port)]

        async def claim_controllers() -> None:
            await self.runner.start_all(services.claim_controllers())
            self._identities.set()

        await gather_or_cancel(self.runner.start_all(programs), claim_controllers())

    async def _start_nodes(self, endpoint: Endpoint, installer: Installer) -> None:
        """Start kubelets and, if dray's services are processes, node-agents."""
        nodes = self.options.nodes
        if self._cluster is not None:
            self._nodes.mkdir(parents=True, exist_ok=True)
            archives = map(Path, self.options.images)
            await self._cluster.start_services(endpoint, self._context, archives)
            if self._services is not None:
                await self.runner.start(self._services.agent_tokens())
            await gather_or_cancel(*(self._start_real_node(node, installer) for node in nodes))
        elif self._services is not None and nodes:
            for node in nodes:
                self._services.folders(node.name).make()
            await self.runner.start(self._services.kubelet())
            await self._identities.wait()
            await self.runner.start_all(self._services.node_agents())

    async def _start_real_node(self, node: SimulatedNode, installer: Installer) -> None:
        assert self._cluster is not None
        await self._cluster.start_node(node)
        await installer.wait_until_ready(node.name)
        if self._services is not None:
            await self._identities.wait()
            await self.runner.start(self._services.node_agent(node))

    def _take_directory(self) -> None:
        """Empty the run directory, unless its state is kept."""
        remove_leftovers(self.options.name)
        if self.options.keep:
            check_kept_state(self.options.name, self.options.control_plane)
        else:
            remove_state(self.options.name)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        if not fits_unix_sockets(self._nodes):
            if not self._nodes.is_symlink():
                self._nodes.symlink_to(tempfile.mkdtemp(prefix="dray-"))
            self._nodes = self._nodes.resolve()
            self._nodes.mkdir(mode=0o700, exist_ok=True)  # the system may have emptied its folder

    def _running_elsewhere(self) -> StackFile | None:
        other = read_stack_file(self.options.name)
        return None if other is None or other.supervisor.pid == os.getpid() else other

    @property
    def _context(self) -> str:
        return f"dray-{self.options.name}"

    def _describe(self, endpoint: Endpoint, nats: NatsAccess | None, webhook_url: str) -> StackFile:
        return StackFile(
            name=self.options.name,
            directory=str(self.directory),
            control_plane=self.options.control_plane,
            kubelet=self.options.kubelet,
            server=endpoint.url,
            kubeconfig=str(endpoint.admin_kubeconfig),
            kubeconfigs={user: str(path) for user, path in endpoint.kubeconfigs.items()},
            nats_url=nats.url if nats else "",
            nats_passwords=dict(nats.passwords) if nats else {},
            webhook_url=webhook_url,
            audit_log=str(endpoint.audit_log or ""),
            nodes=tuple(node.name for node in self.options.nodes),
            restarts=self.options.restart,
            supervisor=process_record("supervisor", os.getpid()),
            created_unix_s=time.time(),
        )

    def _write_record(self) -> None:
        """Write ``stack.json`` with the current processes."""
        if self._record is None:
            return
        processes = tuple(
            process_record(
                name,
                pid,
                str(self.runner.log(name)),
                self.runner.program(name).health_url,
                self._restarts[name],
            )
            for name, pid in self.runner.last_pids().items()
        )
        self._record = msgspec.structs.replace(self._record, processes=processes)
        write_stack_file(self._record)

    @asynccontextmanager
    async def _step(self, what: str) -> AsyncIterator[None]:
        began = time.monotonic()
        self._progress(f"starting {what}")
        yield
        self._progress(f"ready: {what} ({time.monotonic() - began:.1f} s)")


def _crds() -> Path:
    return chart_directory() / "crds"
