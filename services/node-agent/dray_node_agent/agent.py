"""The agent's loops: read GPUs, publish slices, serve the kubelet, sweep claims."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from dray.api.enforcement import MPS, Enforcement
from dray.api.errors import DrayError, TemporaryError
from dray.kube.ports import KubeError
from dray.messages.facts import ClusterObserved
from dray.runtime.backoff import Backoff
from dray_node_agent.decisions.device_health import GpuHealth, device_health
from dray_node_agent.decisions.device_use import devices_in_use
from dray_node_agent.decisions.foreign_processes import foreign_gpus, with_users
from dray_node_agent.decisions.gpus import GpuSnapshot, GpuUsage, with_problems
from dray_node_agent.decisions.inventory import NodeInventory, NodeState, unhealthy_devices
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.enforcement import NEEDS_NODE, CardEnforcement, NoEnforcement
from dray_node_agent.files.agent_locks import AgentLock, LockHeldError
from dray_node_agent.gpus.reader import GpuReader
from dray_node_agent.gpus.source import GpusUnavailableError
from dray_node_agent.kubelet.preparer import Preparer
from dray_node_agent.kubelet.server import KubeletServer
from dray_node_agent.node_state import NodeReporter
from dray_node_agent.settings import NodeGroup
from dray_node_agent.slice_publisher import SlicePublisher

_ENFORCE_EVERY_S = 1.0
"""How often the agent checks whether enforcers are ready."""
_UNREGISTERED = "the kubelet has not called yet"
ORDER_EVERY_S = 5.0
"""Shortest time between two changes of the order of devices by the prepared claims."""


class NodeAgent:
    """One node's agent. Its loops run until cancelled; ``app`` runs them concurrently."""

    def __init__(
        self,
        *,
        node: NodeGroup,
        gpus: GpuReader,
        publisher: SlicePublisher,
        reporter: NodeReporter,
        publishing: AgentLock | None = None,
        enforcement: CardEnforcement | None = None,
        claims: Callable[[], Iterable[PreparedClaim]] = tuple,
    ) -> None:
        """``publishing``: the lock that the node's publishing agent holds; None: there is only
        this agent. ``enforcement``: None: nothing is set up on the node. ``claims``: the claims
        that are prepared now."""
        self._node = node
        self._gpus = gpus
        self._publisher = publisher
        self._reporter = reporter
        self._publishing = publishing
        self._enforcement = enforcement or NoEnforcement()
        self._claims = claims
        self._suspected: frozenset[str] = frozenset()
        """GPUs with foreign processes at the last check; a process may outlive its claim a bit."""
        self._foreign: frozenset[str] = frozenset()
        self._enforced: Enforcement | None = None
        """The enforcement that has the problems below; None: they are not known yet."""
        self._problems: Mapping[str, str] = {}
        self._driver_snapshot: GpuSnapshot | None = None
        """The snapshot as it was read, without the problems of enforcers."""
        self._snapshot: GpuSnapshot | None = None
        self._state: NodeState | None = None
        self._inventory: NodeInventory | None = None
        """Made from snapshot and state; it is kept because it computes its GPUs only once."""
        self._server: ClusterObserved | None = None
        self._read = asyncio.Event()
        self._registered = asyncio.Event()
        self._health_changed = asyncio.Event()
        self._state_received = asyncio.Event()
        self._wake = asyncio.Event()
        self._enforce = asyncio.Event()
        self._restored = asyncio.Event()
        self._in_use: Mapping[str, float] = {}
        """The use of devices by which the published devices are ordered."""
        self._ordered_until_s = 0.0
        """The order of devices stays until this time of the event loop's clock."""
        self._next_order: asyncio.TimerHandle | None = None
        self._log = structlog.get_logger().bind(node=node.name)
        self.generation = 0
        """The published generation of the pool; 0 before the first publication."""
        self.registration = _UNREGISTERED
        """Empty once the kubelet has registered the plugin."""
        self.usage: tuple[GpuUsage, ...] = ()
        """The last read use of the GPUs; empty while it can't be read."""
        self.gpus_problem = "the GPUs have not been read yet"
        self.publishing_problem = "nothing has been published yet"
        """Also empty while another agent of this node publishes."""

    def inventory(self) -> NodeInventory | None:
        """The GPUs and the node's state now; None until both are known."""
        snapshot, state, known = self._snapshot, self._state, self._inventory
        if snapshot is None or state is None:
            return None
        if known is None or known.snapshot is not snapshot or known.state is not state:
            known = self._inventory = NodeInventory(snapshot, state)
        return known

    @property
    def snapshot(self) -> GpuSnapshot | None:
        """The GPUs as they were read last."""
        return self._snapshot

    def device_health(self) -> tuple[GpuHealth, ...]:
        """The health of all devices, for the kubelet."""
        return device_health(self._snapshot, self._node.name, self.gpus_problem)

    async def health_changed(self) -> None:
        """Wait for the next change of any device's health."""
        await self._health_changed.wait()

    def on_state(self, state: NodeState) -> None:
        """Take the node's state from the bus."""
        self._state_received.set()
        if state != self._state:
            self._log.info("node state", pool=state.pool, owner=state.owner, qos=state.qos)
            self._state = state
            self._enforce.set()
            self._wake.set()

    def on_generation(self, generation: int) -> None:
        """Take a generation that was reported before; the next one must be above it."""
        if generation > self._publisher.floor:
            self._publisher.floor = generation
            self._wake.set()

    def on_claims(self) -> None:
        """Take a change of the prepared claims. A cordoned node publishes at once, because it may
        be drained now. Devices that kube-scheduler allocates are ordered within
        ``ORDER_EVERY_S``."""
        if self._state is None:
            return
        if self._state.unschedulable:
            self._wake.set()
        elif self._state.device_order and self._next_order is None:
            loop = asyncio.get_running_loop()
            due_s = max(self._ordered_until_s, loop.time())
            self._next_order = loop.call_at(due_s, self._order_again)

    def _order_again(self) -> None:
        self._next_order = None
        self._wake.set()

    def _devices_in_use(self, snapshot: GpuSnapshot, state: NodeState) -> Mapping[str, float]:
        """The devices in use now, or a bit earlier: each new order is a write, after which
        kube-scheduler retries all pods that wait for devices."""
        now_s = asyncio.get_running_loop().time()
        if state.unschedulable or now_s >= self._ordered_until_s:
            published = NodeInventory(snapshot, state).published_gpus
            self._in_use = devices_in_use(self._claims(), published)
            self._ordered_until_s = now_s + ORDER_EVERY_S
        return self._in_use

    def on_server(self, server: ClusterObserved) -> None:
        """Take the API server's features, which change with upgrades."""
        self._server = server
        self._wake.set()

    def on_registered(self, problem: str) -> None:
        """Take the kubelet's registration result; the kubelet may have deleted the slices."""
        self.registration = problem
        if not problem:
            self._reporter.registered()
            self._registered.set()
        self._wake.set()

    async def watch_gpus(self) -> None:
        """Loop: read the GPUs; publish after changes."""
        while True:
            try:
                snapshot = await self._gpus.read()
                self._note_gpus_problem("")
                if snapshot != self._driver_snapshot:
                    self._driver_snapshot = snapshot
                    self._take_snapshot(snapshot)
                    self._enforce.set()
            except GpusUnavailableError as error:
                self._note_gpus_problem(str(error))
            await self._gpus.wait(self._node.poll)

    def _take_snapshot(self, snapshot: GpuSnapshot) -> None:
        snapshot = with_users(with_problems(snapshot, self._problems), self._foreign)
        if snapshot != self._snapshot:
            self._report_health(snapshot)
            self._snapshot = snapshot
            self._read.set()
            self._wake.set()
            self._wake_health()

    async def enforce(self) -> None:
        """Loop: set up the enforcers of shares; a device without its enforcer is not offered.

        It starts once the agent knows which devices earlier claims use."""
        await self._read.wait()
        await self._restored.wait()
        while True:
            self._enforce.clear()
            snapshot, state = self._driver_snapshot, self._state
            if snapshot is not None and state is not None:
                problems = await self._enforcement.apply(snapshot, state)
                if problems is not None:
                    self._take_problems(problems, state.enforcement)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ENFORCE_EVERY_S):
                    await self._enforce.wait()

    def _take_problems(self, problems: Mapping[str, str], enforcement: Enforcement) -> None:
        if (problems, enforcement) == (self._problems, self._enforced):
            return
        self._problems, self._enforced = problems, enforcement
        for device, why in problems.items():
            self._log.warning("device not offered", device=device, why=why)
        self._wake.set()
        if self._driver_snapshot is not None:
            self._take_snapshot(self._driver_snapshot)

    def _is_enforced(self, state: NodeState) -> bool:
        """Whether the agent knows which devices the enforcer is ready for."""
        needs_node = state.enforcement.enforcer in NEEDS_NODE
        return not needs_node or self._enforced == state.enforcement

    def enforcement_problem(self, device: str) -> str:
        """Why a device's enforcer is not ready; empty: it is."""
        if self._state is not None and not self._is_enforced(self._state):
            return f"enforcer {self._state.enforcement.enforcer} is being set up"
        return self._problems.get(device, "")

    async def watch_usage(self) -> None:
        """Loop: read the use of the GPUs."""
        await self._read.wait()
        while True:
            try:
                self.usage = await self._gpus.read_usage()
                self._look_for_foreign_processes()
            except GpusUnavailableError:
                self.usage = ()  # readiness says why
            await asyncio.sleep(self._node.usage)

    def _look_for_foreign_processes(self) -> None:
        if (snapshot := self._driver_snapshot) is None or not self._restored.is_set():
            return
        found: frozenset[str] = frozenset()
        # MPS runs its own process on each GPU, even if no claim is prepared there.
        if self._state is None or self._state.enforcement.enforcer != MPS:
            claimed = {device.device for claim in self._claims() for device in claim.devices}
            found = foreign_gpus(snapshot, self.usage, claimed, self._suspected)
        foreign, self._suspected = found & self._suspected, found
        if foreign == self._foreign:
            return
        self._foreign = foreign
        self._log.warning("GPUs with processes that no claim explains", gpus=sorted(foreign))
        self._take_snapshot(snapshot)

    async def publish(self) -> None:
        """Loop: publish slices and report health after changes.

        The first publication waits until the kubelet has registered the plugin. Before that, the
        kubelet would refuse pods that get these devices, and retry them only after a minute.
        """
        await self._wait_for_gpus_and_state()
        await self._registered.wait()
        async with contextlib.AsyncExitStack() as stack:
            if self._publishing is not None:
                await self._become_publisher(self._publishing, stack)
            await self._publish_forever()

    async def _become_publisher(self, lock: AgentLock, stack: contextlib.AsyncExitStack) -> None:
        try:
            await stack.enter_async_context(lock.held(within_s=0.0))
        except LockHeldError:
            self._log.info("another node-agent publishes the slices; waiting for its end")
            self.publishing_problem = ""
            await stack.enter_async_context(lock.held())
            self._publisher.forget_record()
            self._log.info("this node-agent publishes the slices now")

    async def _publish_forever(self) -> None:
        backoff = Backoff(most_s=self._node.resync)
        while True:
            self._wake.clear()
            try:
                await self._publish_once()
                backoff.reset()
            except DrayError as error:
                if self.publishing_problem != str(error):
                    self._log.warning("slices not published, will retry", error=str(error))
                self.publishing_problem = str(error)
                await backoff.pause()
            else:
                await self._woken_within(self._node.resync)

    async def watch_slices(self) -> None:
        """Loop: compare the slices after each change of them; a starting kubelet deletes them."""
        backoff = Backoff(most_s=self._node.resync)
        while True:
            try:
                async for _ in self._publisher.changes():
                    backoff.reset()
                    self._wake.set()
            except KubeError as error:
                self._log.error("slices are not watched, will retry", error=str(error))
            await backoff.pause()

    async def serve(self, preparer: Preparer, server: KubeletServer) -> None:
        """Loop: restore the claims of an earlier agent, then serve the kubelet."""
        backoff = Backoff()
        while True:
            try:
                await preparer.restore()
                break
            except (TemporaryError, KubeError, OSError) as error:
                self._log.warning("claims not restored, will retry", error=str(error))
                self.registration = f"the claims of earlier agents can't be restored: {error}"
                await backoff.pause()
        self.registration = _UNREGISTERED
        self._restored.set()
        try:
            await server.start()
            await asyncio.Event().wait()
        finally:
            await server.stop(self._node.grace)

    async def serve_device_plugin(
        self, loops: Mapping[str, Callable[[], Coroutine[Any, Any, None]]], lock: AgentLock
    ) -> None:
        """Run the loops once earlier claims are restored and no other agent of this node runs
        them: the kubelet would take the end of the old plugin for the end of the new one."""
        await self._restored.wait()
        await self._read.wait()
        async with lock.held(), asyncio.TaskGroup() as group:
            for name, loop in loops.items():
                group.create_task(loop(), name=name)

    async def sweep(self, preparer: Preparer) -> None:
        """Loop: remove claims that ended without Unprepare."""
        await self._restored.wait()
        while True:
            try:
                await preparer.sweep()
            except (DrayError, OSError) as error:
                self._log.info("sweep postponed", error=str(error))
            await asyncio.sleep(self._node.sweep)

    async def _publish_once(self) -> None:
        snapshot, state = self._snapshot, self._state
        if snapshot is None or state is None:
            return
        if not self._is_enforced(state):
            self.publishing_problem = f"enforcer {state.enforcement.enforcer} is being set up"
            return
        if self._server is not None:
            self._publisher.expect(self._server)
        in_use = self._devices_in_use(snapshot, state)
        generation = await self._publisher.publish(snapshot, state, in_use)
        self.publishing_problem = ""
        if generation != self.generation:
            self._log.info("slices published", generation=generation, gpus=len(snapshot.gpus))
        self.generation = generation
        self._reporter.inventory(generation, len(snapshot.gpus), self._publisher.unhealthy)

    async def _wait_for_gpus_and_state(self) -> None:
        """Wait for the first snapshot, and for a state: the bus's, or the one on disk.

        Without one on disk, waits ``patience`` for the bus.
        """
        await self._read.wait()
        remembered = (await self._publisher.record()).node
        if self._state is None and remembered is not None:
            self._state = replace(remembered, name=self._node.name)
            self._enforce.set()
        if self._state is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._node.patience):
                    await self._state_received.wait()
        if self._state is None:
            self._log.warning("no pool known for this node: publishing without one")
            self._state = NodeState(self._node.name)

    def _note_gpus_problem(self, problem: str) -> None:
        if problem == self.gpus_problem:
            return
        if problem:
            self._log.error("the GPUs can't be read", error=problem)
        self.gpus_problem = problem
        self._wake_health()

    def _wake_health(self) -> None:
        changed, self._health_changed = self._health_changed, asyncio.Event()
        changed.set()

    async def _woken_within(self, wait_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    def _report_health(self, snapshot: GpuSnapshot) -> None:
        before = set(unhealthy_devices(self._snapshot)) if self._snapshot else set()
        now = set(unhealthy_devices(snapshot))
        if failed := sorted(now - before):
            self._log.error("devices became unhealthy", devices=failed)
        if recovered := sorted(before - now):
            self._log.info("devices are healthy again", devices=recovered)
