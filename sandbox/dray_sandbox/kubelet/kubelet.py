"""The stand-in kubelet of one node: its Node object, its plugins, its pods."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.kube.ports import (
    NODES,
    PODS,
    Changed,
    Deleted,
    Kube,
    Listed,
    Object,
    RefusedError,
    WatchEvent,
)
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock, SystemClock
from dray_sandbox.informer import changes
from dray_sandbox.kubelet.admission import Rejection, admit
from dray_sandbox.kubelet.claims import Prepared
from dray_sandbox.kubelet.device_health import DeviceKey
from dray_sandbox.kubelet.node import NodeObject, addresses_of
from dray_sandbox.kubelet.plan import NodePlan
from dray_sandbox.kubelet.plugins import PluginRegistry
from dray_sandbox.kubelet.pod_object import PodObject
from dray_sandbox.kubelet.pod_resources import serve_forever
from dray_sandbox.kubelet.timings import KubeletTimings
from dray_sandbox.kubelet.tokens import TokenFile
from dray_sandbox.kubelet.worker import ClaimInfoCache, PodWorker

_REFUSAL_TIMEOUT_S = 30.0
"""After this time, the API server's refusal of a node is final."""
_ALL_DRIVERS = ""
_REGISTERING_AT_ONCE = 64
_PODS_PER_NETWORK = 253


class Kubelet:
    """The stand-in kubelet of one node. ``handle`` gets the events of all pods."""

    def __init__(
        self,
        kube: Kube,
        plan: NodePlan,
        *,
        clock: Clock | None = None,
        timings: KubeletTimings | None = None,
    ) -> None:
        self.plan = plan
        self._kube = kube
        self._clock = clock or SystemClock()
        self._timings = timings or KubeletTimings()
        self._node = NodeObject(kube, plan, self._clock, renew_s=self._timings.renew_s)
        self.plugins = PluginRegistry(
            plan.registry_dir,
            self._timings,
            on_usable=self._cancel_wipe,
            on_away=self._schedule_wipe,
            on_health=self._show_health,
        )
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._claim_infos = ClaimInfoCache()
        self._is_rebooted = False
        self._log = structlog.get_logger().bind(node=plan.name)

    async def run(self) -> None:
        """Loop: register plugins and renew the lease of the registered node.

        Existing slices are deleted at once: no driver has registered yet.
        """
        self._wipes[_ALL_DRIVERS] = asyncio.create_task(self._wipe(_ALL_DRIVERS, 0.0))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.plugins.run())
                group.create_task(self._node.keep_alive())
                group.create_task(serve_forever(self.plan.pod_resources, self._active_pods))
                if self.plan.token_file is not None:
                    token = TokenFile(self._kube, self.plan.name, self.plan.token_file)
                    group.create_task(token.run())
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop the workers; the pods stay Running, as containers do without their kubelet."""
        tasks = [*self._tasks.values(), *self._wipes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._workers.clear()
        self._wipes.clear()

    def observe(self, node: Object | None) -> None:
        """Note the Node's newest object; None: it was deleted."""
        self._node.observe(node)

    def handle(self, event: WatchEvent) -> None:
        """Apply an event of the watch of pods; other nodes' pods are ignored."""
        match event:
            case Listed(objects):
                self._handle_list([pod for pod in objects if self._is_here(pod)])
            case Changed(pod) if self._is_here(pod):
                self._handle_pod(pod)
            case Deleted(pod) if (worker := self._workers.get(pod["metadata"]["uid"])) is not None:
                worker.pod.update(pod, gone=True)

    def _active_pods(self) -> list[tuple[Object, Prepared]]:
        workers = [one for one in self._workers.values() if one.admitted and not one.pod.terminal]
        return [(one.pod.obj, one.prepared) for one in workers]

    def _is_here(self, pod: Object) -> bool:
        return bool(pod["spec"].get("nodeName") == self.plan.name)

    def _handle_list(self, pods: Sequence[Object]) -> None:
        uids = {pod["metadata"]["uid"] for pod in pods}
        for uid, worker in self._workers.items():
            if uid not in uids:
                worker.pod.update(worker.pod.obj, gone=True)
        for pod in sorted(pods, key=_age):
            self._handle_pod(pod)

    def _handle_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._workers:
            self._workers[uid].pod.update(pod)
            return
        prefix, host_ip = addresses_of(self.plan.name)
        worker = PodWorker(
            PodObject(self._kube, pod, self.plan.name),
            kube=self._kube,
            plan=self.plan,
            plugins=self.plugins,
            claim_infos=self._claim_infos,
            clock=self._clock,
            timings=self._timings,
            pod_ip=(pod.get("status") or {}).get("podIP") or self._free_ip(prefix),
            host_ip=host_ip,
            admit=self._admit,
            is_rebooted=self._is_rebooted,
        )
        self._workers[uid] = worker
        self._tasks[uid] = asyncio.create_task(self._work(uid, worker))

    async def _work(self, uid: str, worker: PodWorker) -> None:
        try:
            await worker.run()
        except DrayError as error:
            self._log.error("pod given up", uid=uid, error=str(error))
        finally:
            if self._workers.get(uid) is worker:
                del self._workers[uid]
                del self._tasks[uid]

    async def _admit(self, pod: Object) -> Rejection | None:
        node = await self._node.current()
        others = [
            worker.pod.obj
            for worker in self._workers.values()
            if worker.admitted and not worker.done and worker.pod.obj is not pod
        ]
        return admit(pod, others, node)

    def _free_ip(self, prefix: str) -> str:
        taken = {worker.pod_ip for worker in self._workers.values()}
        addresses = (f"{prefix}.{number}" for number in range(1, _PODS_PER_NETWORK + 1))
        return next((one for one in addresses if one not in taken), f"{prefix}.0")

    async def register(self, turns: asyncio.Semaphore) -> None:
        """Register the node at its turn. Raises RefusedError if the API server keeps refusing it.

        It checks before the first await whether the node was rebooted: pods may come at once.
        """
        self._is_rebooted = _is_rebooted(self.plan)
        async with turns:
            await self._register()

    async def _register(self) -> None:
        backoff = Backoff()
        began_s = self._clock.monotonic_s()
        while True:
            try:
                await self._node.register()
            except (TemporaryError, RefusedError) as error:
                # A server that has just started may refuse requests until it knows its roles.
                waited_s = self._clock.monotonic_s() - began_s
                if isinstance(error, RefusedError) and waited_s > _REFUSAL_TIMEOUT_S:
                    raise
                self._log.info("node not registered yet", error=str(error))
                await backoff.pause()
            else:
                self._log.info("node registered", labels=self.plan.labels)
                return

    def _cancel_wipe(self, driver: str) -> None:
        if wipe := self._wipes.pop(driver, None):
            wipe.cancel()

    def _schedule_wipe(self, driver: str) -> None:
        if driver not in self._wipes:
            self._wipes[driver] = asyncio.create_task(self._wipe(driver, self._timings.wipe_s))

    def _show_health(self, devices: Sequence[DeviceKey]) -> None:
        for worker in self._workers.values():
            worker.on_health(devices)

    async def _wipe(self, driver: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        backoff = Backoff()
        while True:
            try:
                await self._node.wipe_slices(driver)
            except TemporaryError as error:
                self._log.info("slices not wiped yet", error=str(error))
                await backoff.pause()
            except DrayError as error:
                self._log.error("slices of an absent driver stay", error=str(error))
                return
            else:
                self._log.warning("slices of absent drivers wiped", driver=driver or "all")
                return


class Kubelets:
    """Several stand-in kubelets that share one watch of pods and one of nodes."""

    def __init__(self, kube: Kube, kubelets: Sequence[Kubelet]) -> None:
        self._kube = kube
        self.kubelets = tuple(kubelets)
        self._by_node = {kubelet.plan.name: kubelet for kubelet in kubelets}
        self._registering = asyncio.Semaphore(_REGISTERING_AT_ONCE)

    async def run(self) -> None:
        """Run all until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kubelet in self.kubelets:
                group.create_task(self._run(kubelet), name=f"kubelet {kubelet.plan.name}")
            group.create_task(self._watch_pods(), name="pods")
            group.create_task(self._watch_nodes(), name="nodes")

    async def _run(self, kubelet: Kubelet) -> None:
        await kubelet.register(self._registering)
        await kubelet.run()

    async def _watch_pods(self) -> None:
        async for event in self._kube.watch(PODS):
            match event:
                case Changed(pod) | Deleted(pod):
                    if kubelet := self._by_node.get(pod["spec"].get("nodeName")):
                        kubelet.handle(event)
                case _:
                    for kubelet in self.kubelets:
                        kubelet.handle(event)

    async def _watch_nodes(self) -> None:
        async for batch in changes(self._kube, NODES):
            for node, deleted in batch:
                if kubelet := self._by_node.get(node["metadata"]["name"]):
                    kubelet.observe(None if deleted else node)


@asynccontextmanager
async def running_kubelets(
    kube: Kube, *plans: NodePlan, timings: KubeletTimings | None = None
) -> AsyncIterator[Kubelets]:
    """Run kubelets in this process until the block ends."""
    kubelets = Kubelets(kube, [Kubelet(kube, plan, timings=timings) for plan in plans])
    task = asyncio.create_task(kubelets.run())
    try:
        yield kubelets
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _is_rebooted(plan: NodePlan) -> bool:
    """Whether no kubelet has run since the node started. A start empties the CDI folder."""
    marker = plan.cdi_dir / ".kubelet-has-run"
    is_first = not marker.exists()
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return is_first


def _age(pod: Object) -> tuple[str, str]:
    metadata = pod["metadata"]
    return (metadata.get("creationTimestamp") or "", metadata["name"])
