"""Marks silent nodes, evicts their pods, and deletes the pods of nodes that do not exist."""

import asyncio
from collections.abc import Awaitable

import structlog

from dray.api.errors import DrayError
from dray.kube.convert import time_to
from dray.kube.ports import LEASES, NODES, PODS, Kube, Object, Resource
from dray.runtime.clock import Clock, SystemClock
from dray_sandbox.controllers.node_rules import (
    QUARANTINE_S,
    eviction_delay_s,
    grace_s,
    is_ready,
    unknown_status,
    wanted_taints,
)
from dray_sandbox.informer import changes, key_of
from dray_sandbox.kubelet.node import LEASE_NAMESPACE

PERIOD_S = 1.0
Key = tuple[str, str]


class NodeLifecycleController:
    """Watches nodes, their leases and pods, and calls ``check`` every ``PERIOD_S`` seconds."""

    def __init__(self, kube: Kube, clock: Clock | None = None) -> None:
        self._kube = kube
        self._clock = clock or SystemClock()
        self._nodes: dict[Key, Object] = {}
        self._pods: dict[Key, Object] = {}
        self._renewed_s: dict[str, float] = {}
        """By node, when its lease was last seen to change: kubelets' clocks are not compared."""
        self._grace_s: dict[str, float] = {}
        """By node, how long its lease may stay unchanged."""
        self._tainted_s: dict[str, float] = {}
        """By pod uid, since when its node has had a NoExecute taint that ends the pod."""
        self._orphaned_s: dict[str, float] = {}
        """By pod uid, since when its node has not existed."""
        self._synced: set[str] = set()
        self._disrupted = False
        """Whether no node was ready at the last check."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(NODES, self._nodes))
            group.create_task(self._keep(PODS, self._pods))
            group.create_task(self._watch_leases())
            while True:
                await asyncio.sleep(PERIOD_S)
                if len(self._synced) == 3:
                    await self.check()

    async def check(self) -> None:
        """Carry out the current decisions of the rules.

        If no node is ready, no pod is evicted: the cluster is starting, or the controller is cut
        off. When a node is ready again, the grace periods of all nodes start again
        (`handleDisruption` in node_lifecycle_controller.go).
        """
        now_s = self._clock.monotonic_s()
        silent = {
            name for name, at_s in self._renewed_s.items() if now_s - at_s >= self._grace_s[name]
        }
        disrupted = not any(
            is_ready(node) and name not in silent for (_, name), node in self._nodes.items()
        )
        if self._disrupted and not disrupted:
            self._renewed_s = dict.fromkeys(self._renewed_s, now_s)
            silent = set()
        self._disrupted = disrupted
        for (_, name), node in list(self._nodes.items()):
            if name in silent:
                await self._mark(name, node)
            await self._taint(name, node, evicts=not disrupted)
        for pod in self._ending(now_s):
            await self._delete(pod, force=self._is_orphan(pod))

    def _ending(self, now_s: float) -> list[Object]:
        """Pods to delete now. Forgets the times of pods that are gone or may stay."""
        pods = [pod for pod in self._pods.values() if pod["spec"].get("nodeName")]
        orphans = {pod["metadata"]["uid"]: QUARANTINE_S for pod in pods if self._is_orphan(pod)}
        delays = {
            pod["metadata"]["uid"]: delay_s
            for pod in pods
            if (node := self._node_of(pod)) is not None
            and "deletionTimestamp" not in pod["metadata"]
            and (delay_s := eviction_delay_s(pod, node)) is not None
        }
        due = _due(self._orphaned_s, orphans, now_s) | _due(self._tainted_s, delays, now_s)
        return [pod for pod in pods if pod["metadata"]["uid"] in due]

    def _node_of(self, pod: Object) -> Object | None:
        return self._nodes.get(("", pod["spec"]["nodeName"]))

    def _is_orphan(self, pod: Object) -> bool:
        return self._node_of(pod) is None

    async def _mark(self, name: str, node: Object) -> None:
        status = unknown_status(node, self._now())
        if status is not None:
            structlog.get_logger().warning("node is silent", node=name)
            await self._try(self._kube.patch(NODES, name, {"status": status}, subresource="status"))

    async def _taint(self, name: str, node: Object, *, evicts: bool) -> None:
        taints = wanted_taints(node, self._now(), evicts=evicts)
        if taints is None:
            return
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "spec": {"taints": taints or None}}
        await self._try(self._kube.patch(NODES, name, patch))

    async def _delete(self, pod: Object, *, force: bool) -> None:
        namespace, name = key_of(pod)
        structlog.get_logger().info("pod of a lost node deleted", namespace=namespace, pod=name)
        uid, grace_period_s = pod["metadata"]["uid"], 0 if force else None
        await self._try(
            self._kube.delete(PODS, name, namespace, uid=uid, grace_period_s=grace_period_s)
        )

    async def _try(self, request: Awaitable[object]) -> None:
        """Make a request; if it fails, the next check repeats it."""
        try:
            await request
        except DrayError as error:
            structlog.get_logger().info("not done yet", error=str(error))

    async def _keep(self, resource: Resource, known: dict[Key, Object]) -> None:
        async for batch in changes(self._kube, resource):
            for obj, deleted in batch:
                if deleted:
                    known.pop(key_of(obj), None)
                else:
                    known[key_of(obj)] = obj
            self._synced.add(resource.plural)

    async def _watch_leases(self) -> None:
        async for batch in changes(self._kube, LEASES):
            for lease, deleted in batch:
                namespace, node = key_of(lease)
                if namespace == LEASE_NAMESPACE and not deleted:
                    self._renewed_s[node] = self._clock.monotonic_s()
                    self._grace_s[node] = grace_s(lease)
            self._synced.add(LEASES.plural)

    def _now(self) -> str:
        return time_to(self._clock.now_unix_s())


def _due(since_s: dict[str, float], delays_s: dict[str, float], now_s: float) -> set[str]:
    """The keys that have been in ``delays_s`` for their whole delay. Updates ``since_s``."""
    for key in since_s.keys() - delays_s.keys():
        del since_s[key]
    return {
        key
        for key, delay_s in delays_s.items()
        if now_s - since_s.setdefault(key, now_s) >= delay_s
    }
