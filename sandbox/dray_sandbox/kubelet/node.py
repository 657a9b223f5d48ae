"""The Node object and its lease."""

import asyncio
import hashlib
from typing import Any

import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.kube.convert import time_to
from dray.kube.ports import (
    LEASES,
    NAMESPACES,
    NODES,
    SLICES,
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    Object,
)
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_sandbox.kubelet.plan import HOST, NodePlan

LEASE_NAMESPACE = "kube-node-lease"
_RENEWALS_PER_DURATION = 4
"""As in kubelets. A failed write is retried sooner, because a local stack waits only for the time
of two renewals."""
NOT_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def addresses_of(node: str) -> tuple[str, str]:
    """Invented addresses: the first three octets of the node's pods, and the node's address."""
    digest = hashlib.sha256(node.encode()).digest()
    prefix = f"10.{digest[0]}.{digest[1]}"
    return prefix, f"{prefix}.254"


class NodeObject:
    """Registers a Node, keeps it Ready and renews its lease."""

    def __init__(self, kube: Kube, plan: NodePlan, clock: Clock, *, renew_s: float) -> None:
        """``renew_s``: the period after which the lease is renewed."""
        self._kube = kube
        self._plan = plan
        self._clock = clock
        self._renew_s = renew_s
        self._observed: Object | None = None

    def observe(self, node: Object | None) -> None:
        """Note the Node's newest object; None: it was deleted."""
        if node is None:
            structlog.get_logger().warning("node object gone", node=self._plan.name)
        self._observed = node

    async def register(self) -> None:
        """Create the Node if it is missing; set its labels, capacity and Ready condition.

        Raises:
            KubeUnavailableError, ConflictError: call it again.
        """
        node = self._wanted()
        try:
            await self._kube.create(NODES, node)
        except AlreadyExistsError:
            labels = node["metadata"]["labels"]
            await self._kube.patch(NODES, self._plan.name, {"metadata": {"labels": labels}})
        await self._post_status()
        await self._remove_not_ready_taints(await self._kube.get(NODES, self._plan.name))

    async def current(self) -> Object:
        """The API server's Node object; if it has none, the one that this kubelet would create."""
        backoff = Backoff()
        while True:
            try:
                return await self._kube.get(NODES, self._plan.name)
            except NotFoundError:
                return self._wanted()
            except TemporaryError as error:
                structlog.get_logger().info("node not read yet", error=str(error))
                await backoff.pause()

    async def keep_alive(self) -> None:
        """Loop: renew the lease, and post the status if it says that the node is not ready.

        Like a kubelet, it does not create a deleted Node again until this process restarts.
        """
        backoff = Backoff(0.5, self._renew_s)
        while True:
            wait_s = self._renew_s
            try:
                await self._renew()
                backoff.reset()
                if self._observed is not None:
                    await self._keep_ready(self._observed)
            except DrayError as error:
                structlog.get_logger().info("lease not renewed", error=str(error))
                wait_s = backoff.next_s()
            await asyncio.sleep(wait_s)

    async def _keep_ready(self, node: Object) -> None:
        conditions = (node.get("status") or {}).get("conditions") or ()
        if {"Ready": "True"}.items() <= {one["type"]: one["status"] for one in conditions}.items():
            await self._remove_not_ready_taints(node)
            return
        await self._post_status()

    async def _post_status(self) -> None:
        status = {"status": self._wanted()["status"]}
        await self._kube.patch(NODES, self._plan.name, status, subresource="status")

    async def _remove_not_ready_taints(self, node: Object) -> None:
        """Remove the taints that a node lifecycle controller would remove."""
        taints = (node.get("spec") or {}).get("taints") or []
        kept = [taint for taint in taints if taint["key"] not in NOT_READY_TAINTS]
        if kept != taints:
            version = node["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": kept or None}}
            await self._kube.patch(NODES, self._plan.name, patch)

    async def wipe_slices(self, driver: str) -> None:
        """Delete the node's slices of a driver (empty: of all drivers)."""
        listed = await self._kube.list(SLICES, field_selector=f"spec.nodeName={self._plan.name}")
        for one in listed.objects:
            if driver in ("", one["spec"]["driver"]):
                await self._kube.delete(SLICES, one["metadata"]["name"])

    def _wanted(self) -> Object:
        return node_object(self._plan, now_unix_s=self._clock.now_unix_s())

    async def _renew(self) -> None:
        now = self._now()
        patch = {"spec": self._lease_spec(now)}
        try:
            await self._kube.patch(LEASES, self._plan.name, patch, LEASE_NAMESPACE)
        except NotFoundError:
            await self._make_lease(now)

    async def _make_lease(self, now: str) -> None:
        lease: Object = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._plan.name, "namespace": LEASE_NAMESPACE},
            "spec": self._lease_spec(now),
        }
        try:
            await self._kube.create(LEASES, lease, LEASE_NAMESPACE)
        except AlreadyExistsError:
            return
        except NotFoundError:
            await self._make_namespace()
            await self._kube.create(LEASES, lease, LEASE_NAMESPACE)

    def _lease_spec(self, now: str) -> dict[str, Any]:
        return {
            "holderIdentity": self._plan.name,
            "leaseDurationSeconds": max(1, round(_RENEWALS_PER_DURATION * self._renew_s)),
            "renewTime": now,
        }

    async def _make_namespace(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
        try:
            await self._kube.create(NAMESPACES, namespace)
        except (AlreadyExistsError, ConflictError):
            return

    def _now(self) -> str:
        """``metav1.MicroTime``."""
        now = self._clock.now_unix_s()
        return time_to(now).replace("Z", f".{int(now % 1 * 1e6):06d}Z")


def node_object(plan: NodePlan, *, now_unix_s: float) -> Object:
    """The Node object of a ready kubelet."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": plan.name, "labels": _labels(plan)},
        "spec": {},
        "status": _status(plan, now_unix_s),
    }


def _status(plan: NodePlan, now_unix_s: float) -> dict[str, Any]:
    now = time_to(now_unix_s)
    return {
        "capacity": dict(plan.capacity),
        "allocatable": dict(plan.capacity),
        "addresses": [
            {"type": "InternalIP", "address": addresses_of(plan.name)[1]},
            {"type": "Hostname", "address": plan.name},
            {"type": "InternalDNS", "address": HOST},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": plan.containers_port}},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "the stand-in is posting ready status",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
        ],
        "nodeInfo": {
            "kubeletVersion": "v1.36.3",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
            "containerRuntimeVersion": "sandbox://0",
            "kernelVersion": "",
            "osImage": "dray sandbox",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }


def _labels(plan: NodePlan) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": plan.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    } | plan.labels
