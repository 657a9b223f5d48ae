"""A stack on a real control plane, and a hand on what it holds: for conformance tests."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dray.api.names import DRIVER, GPUPOOL, TFLOPS_REQUEST, VRAM_REQUEST
from dray.api.quantities import Quantity, parse_quantity
from dray.bus.jetstream import connect as connect_bus
from dray.bus.ports import Bus
from dray.bus.topology import FACTS_STREAM
from dray.kube.ports import CLAIMS, EVENTS, PODS, SLICES, Kube, NotFoundError, Object
from dray.messages.base import decode, subject_prefix
from dray.messages.facts import ClusterObserved
from dray_sandbox.controlplane.audit import AuditedRequest, audited_requests
from dray_sandbox.layout import StackOptions
from dray_sandbox.stack import Stack
from tools.faults.history import StackHistory
from tools.retry import connect_with_retries

NAMESPACE = "default"
PATIENCE_S = 120.0
"""A busy machine does everything within that."""
T = TypeVar("T")


@dataclass(slots=True)
class Stand:
    """A running stack with the administrator's connections."""

    stack: Stack
    kube: Kube
    bus: Bus

    async def submit(self, name: str, pool: str = "", **asked: str) -> Object:
        """Create a pod; one of a pool asks for a fraction of a card."""
        amounts = {GPUPOOL: pool, TFLOPS_REQUEST: "100", VRAM_REQUEST: "16Gi"} if pool else {}
        further = {f"tensor-fusion.ai/{key.replace('_', '-')}": v for key, v in asked.items()}
        metadata = {"name": name, "annotations": amounts | further}
        container = {"name": "app", "image": "app"}
        pod = {"metadata": metadata, "spec": {"containers": [container]}}
        return await self.kube.create(PODS, pod, NAMESPACE)

    async def running(self, *names: str) -> None:
        """Wait until the pods run."""

        async def all_run() -> bool:
            pods = await self.pods()
            return all(phase_of(pods.get(name)) == "Running" for name in names)

        await self.until(all_run, f"{', '.join(names)} running")

    async def delete(self, *names: str) -> None:
        """Delete pods and wait until they and their claims are gone."""
        claims = [await self.claim_of(name) for name in names]
        for name in names:
            await self.kube.delete(PODS, name, NAMESPACE)
        left = {claim["metadata"]["name"] for claim in claims if claim is not None}

        async def gone() -> bool:
            listed = await self.kube.list(CLAIMS, NAMESPACE)
            present = {claim["metadata"]["name"] for claim in listed.objects}
            return not (set(names) & (await self.pods()).keys()) and not (left & present)

        await self.until(gone, f"{', '.join(names)} gone")

    async def pods(self) -> dict[str, Object]:
        """The pods of the namespace, by name."""
        listed = await self.kube.list(PODS, NAMESPACE)
        return {pod["metadata"]["name"]: pod for pod in listed.objects}

    async def claim_of(self, pod: str) -> Object | None:
        """The claim of a pod that has one."""
        obj = await self.kube.get(PODS, pod, NAMESPACE)
        for entry in obj.get("status", {}).get("resourceClaimStatuses") or ():
            try:
                return await self.kube.get(CLAIMS, entry["resourceClaimName"], NAMESPACE)
            except NotFoundError:
                return None
        return None

    async def published(self) -> ClusterObserved | None:
        """What the claim-controller says of the API server."""
        newest = await self.bus.last(FACTS_STREAM, subject_prefix(ClusterObserved))
        return None if newest is None else decode(newest.payload, ClusterObserved)

    async def devices(self) -> list[Object]:
        """Every device of dray's driver."""
        listed = await self.kube.list(SLICES, field_selector=f"spec.driver={DRIVER}")
        return [device for part in listed.objects for device in part["spec"].get("devices") or ()]

    async def recounted(self) -> "Recount":
        """What all devices have left. Fails where anything is oversold."""
        slices, claims = await self.kube.list(SLICES), await self.kube.list(CLAIMS)
        return recount(slices.objects, claims.objects)

    def audited(self, *users: str) -> list[AuditedRequest]:
        """What the users have asked of the API server."""
        log = Path(self.stack.record.audit_log)
        return [one for one in audited_requests(log) if one.user in users]

    async def until(
        self, holds: Callable[[], Awaitable[T]], what: str, within_s: float = PATIENCE_S
    ) -> T:
        """Wait for a condition; its value."""
        try:
            async with asyncio.timeout(within_s):
                value = await holds()
                while not value:
                    await asyncio.sleep(0.1)
                    value = await holds()
        except TimeoutError:
            listed = await self.kube.list(EVENTS, NAMESPACE)
            events = sorted(listed.objects, key=lambda one: str(one.get("lastTimestamp")))
            notes = {one["involvedObject"]["name"]: str(one.get("message")) for one in events}
            pods = {
                name: f"{_described(pod)}; {notes.get(name, 'no event')}"
                for name, pod in (await self.pods()).items()
            }
            raise AssertionError(f"not within {within_s:g} s: {what}; pods: {pods}") from None
        return value


def phase_of(pod: Object | None) -> str:
    """The pod's phase; empty for one that isn't there."""
    return "" if pod is None else str(pod.get("status", {}).get("phase", ""))


def _described(pod: Object) -> str:
    """The pod's phase, and all that it waits for."""
    status, spec = pod.get("status", {}), pod["spec"]
    waits = [
        f"{one['type']}: {one.get('message') or one.get('reason', '')}"
        for one in status.get("conditions") or ()
        if one["status"] != "True"
    ]
    metadata = pod["metadata"]
    deleted = metadata.get("deletionTimestamp")
    ending = [f"deleted at {deleted}, finalizers {metadata.get('finalizers')}"] if deleted else []
    gates = [f"gate {gate['name']}" for gate in spec.get("schedulingGates") or ()]
    claims = [f"claim {one}" for one in status.get("resourceClaimStatuses") or ()]
    node = spec.get("nodeName") or "no node"
    return "; ".join([phase_of(pod), node, *ending, *gates, *claims, *waits])


def results_of(claim: Object) -> list[Object]:
    """The devices that a claim has."""
    allocation = claim.get("status", {}).get("allocation") or {}
    return list(allocation.get("devices", {}).get("results") or ())


async def until_seen(kube: Kube, history: StackHistory, within_s: float = PATIENCE_S) -> None:
    """Wait until the history's watches have delivered everything there is."""
    async with asyncio.timeout(within_s):
        for resource in (SLICES, CLAIMS, PODS):
            while not history.matches(resource, (await kube.list(resource)).objects):  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # they are other watches than ours


Device = tuple[str, str, str]
"""Driver, pool and name."""


@dataclass(slots=True)
class Recount:
    """What the published devices have left, counted from Kubernetes' objects alone."""

    free: dict[Device, dict[str, Quantity]]
    """Amounts by capacity."""
    counters: dict[tuple[str, str, str, str], Quantity]
    """What is left of what devices share: by driver, pool, set of counters and counter."""
    holders: dict[Device, list[str]]
    """Claims that have the device."""
    wholly: set[Device]
    """Devices that one claim has for itself."""


def recount(slices: Iterable[Object], claims: Iterable[Object]) -> Recount:
    """Start counting again.

    Fails where a device or a counter is used beyond what it has, where a device is used by two
    though one of them has it wholly, or where it is used and not published.
    """
    found = Recount({}, {}, defaultdict(list), set())
    needs: dict[Device, list[tuple[tuple[str, str, str, str], Quantity]]] = {}
    for part in slices:
        _publish(part["spec"], found, needs)
    for claim in claims:
        name = f"{claim['metadata'].get('namespace', '')}/{claim['metadata']['name']}"
        for result in results_of(claim):
            _use(result, name, found, needs)
    for device, held in found.holders.items():
        assert len(held) == 1 or device not in found.wholly, f"{device}: {held}"
    return found


def _publish(spec: Object, found: Recount, needs: dict[Device, Any]) -> None:
    place = (spec["driver"], spec["pool"]["name"])
    for counted in spec.get("sharedCounters") or ():
        for counter, entry in counted["counters"].items():
            found.counters[*place, counted["name"], counter] = parse_quantity(entry["value"])
    for device in spec.get("devices") or ():
        identity = (*place, device["name"])
        found.free[identity] = {
            name: parse_quantity(entry["value"])
            for name, entry in (device.get("capacity") or {}).items()
        }
        needs[identity] = [
            ((*place, consumed["counterSet"], counter), parse_quantity(entry["value"]))
            for consumed in device.get("consumesCounters") or ()
            for counter, entry in consumed["counters"].items()
        ]


def _use(result: Object, claim: str, found: Recount, needs: dict[Device, Any]) -> None:
    device = (result["driver"], result["pool"], result["device"])
    assert device in found.free, f"{device} is allocated to {claim}, but not published"
    held, left = found.holders[device], found.free[device]
    for counter, amount in () if held else needs[device]:
        found.counters[counter] = found.counters[counter] - amount
        assert found.counters[counter] >= Quantity(0), f"{counter} is overdrawn by {device}"
    held.append(claim)
    if "shareID" not in result:
        found.wholly.add(device)
    for name, amount in (result.get("consumedCapacity") or {}).items():
        left[name] = left[name] - parse_quantity(amount)
        assert left[name] >= Quantity(0), f"{device}: {name} is oversold to {held}"


@asynccontextmanager
async def standing(options: StackOptions) -> AsyncIterator[Stand]:
    """The stack of the options for the length of a block."""
    async with Stack(options) as stack:
        record = stack.record
        kube = await connect_with_retries(record.kubeconfig, user_agent="dray-test")
        bus = await connect_bus(
            record.nats_url, name="test", user="admin", password=record.nats_passwords["admin"]
        )
        try:
            yield Stand(stack, kube, bus)
        finally:
            await bus.close()
            await kube.close()
