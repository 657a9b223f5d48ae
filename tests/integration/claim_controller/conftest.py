"""A small cluster in memory: what dray's controller meets, and a hand on every part of it."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from dray.bus.memory import MemoryBus
from dray.bus.topology import FACTS_STREAM
from dray.domain.claims import AllocatedDevice, Allocation, first_attempt
from dray.domain.devices import DeviceId
from dray.domain.names import (
    ALLOCATION_GATE,
    CLAIM_REFERENCE,
    DERIVED_FROM_LABEL,
    DEVICE_CLASS,
    DRAY_NAMESPACE,
    DRAY_SCHEDULER,
    DRIVER,
    GPUPOOL,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    POOL_LABEL,
    SHAPE,
    TRACEPARENT,
)
from dray.kube.convert import claim_from
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
from dray.messages.base import Outgoing
from dray.messages.decisions import (
    AnyRecord,
    ClaimDecision,
    Decided,
    PodDecision,
    encode_record,
    log_stream,
    log_subject,
)
from dray.runtime.clock import Clock
from dray.runtime.settings import Log
from dray_claim_controller.app import Controller
from dray_claim_controller.execute.steps import Hook
from dray_claim_controller.settings import (
    ControllerSettings,
    Execution,
    Lease,
    Publishing,
    Templates,
)

POOL = "default-pool"
CARD_TFLOPS, CARD_VRAM = "312", "40Gi"


def fast_settings(instance: str, **changes: Any) -> ControllerSettings:
    """Settings with short intervals."""
    values: dict[str, Any] = {
        "instance": instance,
        "log": Log(),
        "lease": Lease(retry=0.05),
        "execution": Execution(
            withdraw_after=0.1, finish_after=0.1, withdraw_every=0.02, watch_timeout=0.2
        ),
        "publishing": Publishing(tick=0.05, status_every=0.02, report_every=0.02),
        "templates": Templates(unused_after=60.0, collect_every=0.05),
    }
    return ControllerSettings(**{**values, **changes})


class Running:
    """A controller and its tasks."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.tasks = [
            asyncio.ensure_future(loop)
            for loop in (controller.watch(), controller.stand(), controller.look_up())
        ]

    async def stop(self) -> None:
        """As SIGTERM does: the Lease is given up."""
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                await task


class World:
    """The API server, the bus and the stand-ins for kube-controller-manager."""

    def __init__(self, kube: Any = None, bus: Any = None) -> None:
        self.kube = kube or MemoryKube()
        self.bus = bus or MemoryBus()
        self.poll_s = 0.003 if kube is None else 0.05  # a server's processor is not ours alone
        self.running: list[Running] = []
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

    async def start(
        self,
        name: str = "one",
        *,
        kube: Any = None,
        clock: Clock | None = None,
        hook: Hook | None = None,
        **changes: Any,
    ) -> Running:
        """A controller of its own connections."""
        controller = Controller(
            self.bus.peer(),
            kube or self.kube.peer(),
            fast_settings(name, **changes),
            clock=clock,
            hook=hook,
        )
        running = Running(controller)
        self.running.append(running)
        return running

    async def ready(self, running: Running) -> Running:
        """Wait until the controller leads and every pool has its log."""
        await self.until(
            lambda: (
                running.controller.term is not None
                and running.controller.term.ready
                and set(running.controller.term.followers.orders) >= set(self.names(POOLS))
            ),
            "the controller leads",
        )
        return running

    async def close(self) -> None:
        """End everything."""
        for helper in self.helpers:
            helper.cancel()
        await asyncio.gather(*self.helpers, return_exceptions=True)
        for running in self.running:
            await running.stop()

    # --- objects -----------------------------------------------------------------------

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

    async def node(self, name: str, pool: str = "", cards: int = 2) -> None:
        labels = {POOL_LABEL: pool} if pool else {}
        await self.kube.create(
            NODES,
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {},
                "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
            },
        )
        await self.kube.create(
            SLICES,
            {
                "metadata": {"name": f"slice-{name}"},
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
    ) -> Object:
        """A pod as the webhook leaves it."""
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
        annotations = {SHAPE: shape, GPUPOOL: pool, TRACEPARENT: traceparent}
        metadata = {"name": name, "namespace": "default", "annotations": annotations}
        return await self.kube.create(PODS, {"metadata": metadata, "spec": spec}, "default")

    async def claim(self, pod: str = "workload") -> Object | None:
        """The pod's claim, as stored."""
        obj = await self.kube.get(PODS, pod, "default")
        for entry in (obj.get("status") or {}).get("resourceClaimStatuses") or ():
            with suppress(NotFoundError):
                return await self.kube.get(CLAIMS, entry["resourceClaimName"], "default")
        return None

    def make_claims(self, *, on_template: bool = True) -> None:
        """kube-controller-manager's claim controller; before 1.36 it ignored templates."""
        self.helpers.append(asyncio.ensure_future(self._make_claims(PODS)))
        if on_template:
            self.helpers.append(asyncio.ensure_future(self._make_claims(TEMPLATES)))

    async def _make_claims(self, resource: Any) -> None:
        kube = self.kube.peer()
        async for event in kube.watch(resource):
            if isinstance(event, Listed | Changed):
                for pod in (await kube.list(PODS)).objects:
                    await self._make_claim(kube, pod)

    @staticmethod
    async def _make_claim(kube: MemoryKube, pod: Object) -> None:
        metadata = pod["metadata"]
        if (pod.get("status") or {}).get("resourceClaimStatuses"):
            return
        entry = pod["spec"]["resourceClaims"][0]
        try:
            template = await kube.get(TEMPLATES, entry["resourceClaimTemplateName"], "default")
        except NotFoundError:
            return
        name = f"{metadata['name']}-{entry['name']}"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"]}
        owner |= {"uid": metadata["uid"], "controller": True}
        spec = template["spec"]
        claim = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": spec["metadata"]["labels"],
                "ownerReferences": [owner],
            },
            "spec": spec["spec"],
        }
        with suppress(AlreadyExistsError):
            await kube.create(CLAIMS, claim, "default")
        statuses = [{"name": entry["name"], "resourceClaimName": name}]
        with suppress(NotFoundError):
            patch = {"status": {"resourceClaimStatuses": statuses}}
            await kube.patch(PODS, metadata["name"], patch, "default", subresource="status")

    # --- the allocator's part ----------------------------------------------------------

    async def decision(
        self,
        pod: str = "workload",
        *,
        device: str = "gpu-0",
        node: str = "node-1",
        attempt: int = 0,
        tflops: str = "100",
        vram: str = "16Gi",
    ) -> PodDecision:
        """What an allocator would decide for the pod."""
        obj = await self.kube.get(PODS, pod, "default")
        claim = claim_from(await self.until(lambda: self.claim(pod), f"the claim of {pod}"))
        taken = AllocatedDevice(
            "gpu-request",
            DeviceId(DRIVER, node, device),
            consumed={"virtual_tflops": tflops, "virtual_vram": vram},
        )
        gated = obj["spec"]["schedulerName"] != DRAY_SCHEDULER
        return PodDecision(
            pod_uid=obj["metadata"]["uid"],
            namespace="default",
            name=pod,
            node=node,
            binder=OWNER_KUBE_SCHEDULER if gated else OWNER_DRAY,
            claims=(
                ClaimDecision(
                    uid=claim.uid,
                    namespace="default",
                    name=claim.name,
                    attempt=attempt or first_attempt(1),
                    allocation=Allocation((taken,), node),
                ),
            ),
        )

    async def append(self, record: AnyRecord, headers: dict[str, str] | None = None) -> int:
        """Add a record to its log, whatever its end is."""
        stream = log_stream(record.domain, record.epoch)

        async def opened() -> Any:
            state = await self.bus.state(stream)
            return state if state is not None and state.last_sequence else None

        state = await self.until(opened, f"log {stream}", 20)
        subject = log_subject(record.domain, record.epoch)
        message = Outgoing(subject, encode_record(record), headers or {})
        return await self.bus.append(message, expected_last=state.last_sequence)

    async def decide(
        self,
        decision: PodDecision,
        *,
        epoch: int = 1,
        domain: str = POOL,
        headers: dict[str, str] | None = None,
    ) -> int:
        """Append a decision."""
        return await self.append(
            Decided(
                domain=domain,
                epoch=epoch,
                writer="test",
                facts_sequence=1,
                now_unix_s=0.0,
                policy_version=2,
                learned_version=7,
                pods=(decision,),
            ),
            headers,
        )

    async def newest(self, kind: str, name: str = "") -> Any:
        """The last fact of a kind about the object of this name."""
        for fact in reversed((await self.facts()).get(kind, [])):
            values = [value for value in fact.values() if isinstance(value, dict)]
            if not name or any(value.get("name") == name for value in values):
                return fact
        return None

    async def bound(self, pod: str = "workload") -> Any:
        """Wait until the pod is bound; its node."""
        return await self.until(
            lambda: self.kube.store.get(PODS, pod, "default")["spec"].get("nodeName"),
            "the pod is bound",
        )

    async def ungated(self, pod: str = "workload") -> None:
        """Wait until the pod's gate is lifted."""
        await self.until(
            lambda: not self.kube.store.get(PODS, pod, "default")["spec"].get("schedulingGates"),
            "the gate is lifted",
        )

    async def facts(self) -> dict[str, list[dict[str, Any]]]:
        """Everything the stream of facts holds, by kind, in order."""
        found: dict[str, list[dict[str, Any]]] = {}
        state = await self.bus.state(FACTS_STREAM)
        if state is None or state.last_sequence < state.first_sequence:
            return found
        async for delivered in self.bus.read(FACTS_STREAM):
            kind = delivered.subject.split(".")[2]
            found.setdefault(kind, []).append(json.loads(delivered.payload))
            if not delivered.pending:
                break
        return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A cluster with one dedicated pool of one node, and claims made as pods appear."""
    made = World()
    await made.base()
    made.make_claims()
    yield made
    await made.close()


@pytest.fixture
async def shared_world() -> AsyncIterator[World]:
    """The same with the pool on shared nodes: pods are gated and kube-scheduler binds."""
    made = World()
    await made.base(dedicated=False)
    made.make_claims()
    yield made
    await made.close()


@pytest.fixture
def bare_world() -> type[World]:
    """For tests that lay out their cluster themselves."""
    return World
