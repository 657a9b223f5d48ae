"""A small cluster in memory as Kubernetes has it, with a stand-in for kube-controller-manager."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from dray.api.groups import GROUP_NAME_KEYS
from dray.api.names import (
    ALLOCATION_GATE,
    CLAIM_REFERENCE,
    DERIVED_FROM_LABEL,
    DEVICE_CLASS,
    DRA_ENABLED,
    DRAY_NAMESPACE,
    DRAY_SCHEDULER,
    DRIVER,
    GPU_SHARE_RESOURCE,
    GPUPOOL,
    POOL_LABEL,
    REQUEST_ID,
    SHAPE,
    TRACEPARENT,
)
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    POOLS,
    SLICES,
    TEMPLATES,
    AlreadyExistsError,
    Changed,
    Listed,
    NotFoundError,
    Object,
)

POOL = "default-pool"
CARD_TFLOPS, CARD_VRAM = "312", "40Gi"


class Kubernetes:
    """The API server, its objects, and the claims that are made as pods appear."""

    def __init__(self, kube: Any = None) -> None:
        self.kube = kube or MemoryKube()
        self.poll_s = 0.003 if kube is None else 0.05  # a server's processor is not ours alone
        self.helpers: list[asyncio.Task[None]] = []

    async def until(
        self, condition: Callable[[], Any], what: str = "", within_s: float = 30
    ) -> Any:
        """Wait for a condition (plain or awaitable); its value."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    value = condition()
                    if isinstance(value, Awaitable):
                        value = await value
                    if value:
                        return value
                    await asyncio.sleep(self.poll_s)
        except TimeoutError:
            raise AssertionError(f"not within {within_s} s: {what or condition}") from None

    def allocations(self) -> list[Any]:
        """Every allocation that any claim ever had, in order."""
        return self._history(CLAIMS, lambda obj: (obj.get("status") or {}).get("allocation"))

    def bindings(self) -> list[Any]:
        """Every node that any pod was ever bound to, in order."""
        return self._history(PODS, lambda obj: obj["spec"].get("nodeName"))

    def _history(self, resource: Any, read: Callable[[Object], Any]) -> list[Any]:
        found = []
        for event in self.kube.store.events:
            if event.resource == resource and event.after is not None:
                before = None if event.before is None else read(event.before)
                value = read(event.after)
                if value and value != before:
                    found.append(value)
        return found

    def names(self, resource: Any) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.kube.store.of(resource).values()]

    async def base(self, *, dedicated: bool = True) -> None:
        """Namespaces, class, one pool and one node with two cards."""
        for name in ("default", DRAY_NAMESPACE):
            await self.kube.create(NAMESPACES, {"metadata": {"name": name}})
        await self.kube.create(CLASSES, {"metadata": {"name": DEVICE_CLASS}, "spec": {}})
        await self.pool(POOL, dedicated=dedicated)
        await self.node("node-1", POOL)

    async def pool(self, name: str, **spec: Any) -> Object:
        return await self.kube.create(POOLS, {"metadata": {"name": name}, "spec": spec})

    async def lose_pool(self, name: str) -> None:
        """Delete a pool at once, as by hand where dray is gone: without its finalizer."""
        await self.kube.delete(POOLS, name)
        with suppress(NotFoundError):
            await self.kube.patch(POOLS, name, {"metadata": {"finalizers": None}})

    async def node(self, name: str, pool: str = "", cards: int = 2) -> None:
        labels = {POOL_LABEL: pool} if pool else {}
        await self.kube.create(
            NODES,
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {},
                "status": {
                    "allocatable": {
                        "cpu": "8",
                        "memory": "32Gi",
                        "pods": "110",
                        GPU_SHARE_RESOURCE: str(256 * cards),
                    }
                },
            },
        )
        await self.kube.create(
            SLICES,
            {
                "metadata": {"name": f"slice-{name}", "labels": labels},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [self.card(index) for index in range(cards)],
                },
            },
        )

    @staticmethod
    def card(index: int) -> Object:
        free = {"default": "0", "validValues": ["0"]}
        capacity: dict[str, Any] = {
            "tflops": {"value": CARD_TFLOPS, "requestPolicy": free},
            "vram": {"value": CARD_VRAM, "requestPolicy": free},
        }
        for name, value in (("virtual_tflops", CARD_TFLOPS), ("virtual_vram", CARD_VRAM)):
            policy = {"default": value, "validRange": {"min": "1"}}
            capacity[name] = {"value": value, "requestPolicy": policy}
        return {
            "name": f"gpu-{index}",
            "allowMultipleAllocations": True,
            "attributes": {"model": {"string": "A100"}},
            "capacity": capacity,
        }

    def shape(self, tflops: str = "100", vram: str = "16Gi", pool: str = POOL) -> str:
        """What the webhook writes."""
        spec = {
            "metadata": {"labels": {POOL_LABEL: pool, DERIVED_FROM_LABEL: "base"}},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "gpu-request",
                            "exactly": {
                                "deviceClassName": DEVICE_CLASS,
                                "capacity": {
                                    "requests": {"virtual_tflops": tflops, "virtual_vram": vram}
                                },
                            },
                        }
                    ]
                }
            },
        }
        return json.dumps(spec, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def template_of(shape: str) -> str:
        return f"base-{hashlib.sha256(shape.encode()).hexdigest()[:10]}"

    async def pod(
        self,
        name: str = "workload",
        *,
        gated: bool = False,
        shape: str = "",
        pool: str = POOL,
        traceparent: str = "",
        namespace: str = "default",
        group: str = "",
        native: str = "",
        labels: dict[str, str] | None = None,
    ) -> Object:
        """A pod as the webhook leaves it; ``group`` and ``native`` name its PodGroup."""
        shape = shape or self.shape(pool=pool)
        resources = {"requests": {"cpu": "1"}, "claims": [{"name": CLAIM_REFERENCE}]}
        spec: dict[str, Any] = {
            "schedulerName": "default-scheduler" if gated else DRAY_SCHEDULER,
            "containers": [{"name": "app", "image": "app", "resources": resources}],
            "tolerations": [{"operator": "Exists"}],
            "resourceClaims": [
                {
                    "name": CLAIM_REFERENCE,
                    "resourceClaimTemplateName": self.template_of(shape),
                }
            ],
        }
        if gated:
            spec["schedulingGates"] = [{"name": ALLOCATION_GATE}]
        if native:
            spec["schedulingGroup"] = {"podGroupName": native}
        annotations = {SHAPE: shape, GPUPOOL: pool, TRACEPARENT: traceparent}
        annotations |= {GROUP_NAME_KEYS[0]: group} if group else {}
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "annotations": annotations,
            "labels": labels or {},
        }
        return await self.kube.create(PODS, {"metadata": metadata, "spec": spec}, namespace)

    async def pod_without_claims(
        self, name: str = "workload", *, shape: str = "", namespace: str = "default"
    ) -> Object:
        """A pod that gets its GPUs by the device plugin, as the webhook leaves it."""
        resources = {"limits": {GPU_SHARE_RESOURCE: "1"}, "requests": {GPU_SHARE_RESOURCE: "1"}}
        spec: dict[str, Any] = {
            "schedulerName": DRAY_SCHEDULER,
            "containers": [{"name": "app", "image": "app", "resources": resources}],
            "tolerations": [{"operator": "Exists"}],
        }
        annotations = {SHAPE: shape or self.shape(), GPUPOOL: POOL, DRA_ENABLED: "false"}
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        return await self.kube.create(PODS, {"metadata": metadata, "spec": spec}, namespace)

    async def rider(self, name: str, group: str, namespace: str = "default") -> Object:
        """A pod of a group without GPUs, as the webhook leaves it."""
        spec = {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "app", "image": "app"}],
            "schedulingGates": [{"name": ALLOCATION_GATE}],
        }
        annotations = {GROUP_NAME_KEYS[0]: group, REQUEST_ID: name}
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        return await self.kube.create(PODS, {"metadata": metadata, "spec": spec}, namespace)

    async def claim(self, pod: str = "workload", namespace: str = "default") -> Object | None:
        """The pod's claim, as stored."""
        obj = await self.kube.get(PODS, pod, namespace)
        for entry in (obj.get("status") or {}).get("resourceClaimStatuses") or ():
            with suppress(NotFoundError):
                return await self.kube.get(CLAIMS, entry["resourceClaimName"], namespace)
        return None

    async def bound(
        self, pod: str = "workload", namespace: str = "default", within_s: float = 30
    ) -> Any:
        """Wait until the pod is bound; its node."""
        return await self.until(
            lambda: self.kube.store.get(PODS, pod, namespace)["spec"].get("nodeName"),
            "the pod is bound",
            within_s,
        )

    async def ungated(self, pod: str = "workload") -> None:
        """Wait until the pod's gate is lifted."""
        await self.until(
            lambda: not self.kube.store.get(PODS, pod, "default")["spec"].get("schedulingGates"),
            "the gate is lifted",
        )

    def make_claims(self, *, on_template: bool = True) -> None:
        """kube-controller-manager's claim controller; before 1.36 it ignored templates."""
        self.helpers.append(asyncio.ensure_future(self._make_claims(PODS)))
        if on_template:
            self.helpers.append(asyncio.ensure_future(self._make_claims(TEMPLATES)))

    async def _make_claims(self, resource: Any) -> None:
        kube = self.kube.peer()
        async for event in kube.watch(resource):
            if isinstance(event, Changed) and resource is PODS:
                await self._make_claim(kube, event.object)
            elif isinstance(event, Listed | Changed):
                for pod in (await kube.list(PODS)).objects:
                    await self._make_claim(kube, pod)

    @staticmethod
    async def _make_claim(kube: MemoryKube, pod: Object) -> None:
        metadata = pod["metadata"]
        if (pod.get("status") or {}).get("resourceClaimStatuses"):
            return
        entries, namespace = pod["spec"].get("resourceClaims"), metadata["namespace"]
        if not entries:
            return
        (entry,) = entries
        try:
            template = await kube.get(TEMPLATES, entry["resourceClaimTemplateName"], namespace)
        except NotFoundError:
            return
        name = f"{metadata['name']}-{entry['name']}"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"]}
        owner |= {"uid": metadata["uid"], "controller": True}
        spec = template["spec"]
        claim = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": spec["metadata"]["labels"],
                "ownerReferences": [owner],
            },
            "spec": spec["spec"],
        }
        with suppress(AlreadyExistsError):
            await kube.create(CLAIMS, claim, namespace)
        statuses = [{"name": entry["name"], "resourceClaimName": name}]
        with suppress(NotFoundError):
            patch = {"status": {"resourceClaimStatuses": statuses}}
            await kube.patch(PODS, metadata["name"], patch, namespace, subresource="status")
