"""The stack that all tests of this folder share, and what they do with it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from dray.api import names
from dray.bus.jetstream import connect as connect_bus
from dray.bus.ports import Bus
from dray.bus.topology import FACTS_STREAM
from dray.kube.ports import CLAIMS, NODES, PODS, POOLS, SLICES, Kube, Object, RefusedError
from dray.messages.base import decode, subject_prefix
from dray.messages.decisions import Decided, decode_record, log_stream
from dray.messages.facts import ClaimObserved, PodObserved
from dray_sandbox.stack import Stack
from tools.faults.history import StackHistory, watch_history
from tools.retry import connect_with_retries

ON_THE_REAL_ONE = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(240),
    pytest.mark.real,
    pytest.mark.parametrize("arena", ["real"], indirect=True),
]
"""Of modules whose tests say nothing of the sandbox."""
HOSTNAME = "kubernetes.io/hostname"
NAMESPACE = "default"
PATIENCE_S = 60.0
WITHDRAW_AFTER_S = 2.0
OTHER_DRIVER = "gpu.example.com"
Condition = Callable[[Object], Any]


@dataclass(slots=True)
class Cluster:
    """The stack, what it holds, and what was ever seen on it."""

    stack: Stack
    kube: Kube
    bus: Bus
    history: StackHistory
    made: list[str] = field(default_factory=list)
    """Pods of the test at hand."""

    async def submit(
        self, name: str, pool: str = "", *, cpu: str = "100m", tflops: int = 100, **spec: Any
    ) -> None:
        """Create a pod; one of a pool asks for a fraction of a card. ``spec`` goes into its spec,
        ``labels`` and, of one of a pool, ``annotations`` into its metadata."""
        annotations = {
            names.GPUPOOL: pool,
            names.TFLOPS_REQUEST: str(tflops),
            names.VRAM_REQUEST: "16Gi",
            **spec.pop("annotations", {}),
        }
        container = {
            "name": "app",
            "image": "app",
            "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
            **spec.pop("container", {}),
        }
        metadata = {"name": name, "labels": spec.pop("labels", {})}
        if pool:
            metadata["annotations"] = annotations
        self.made.append(name)
        pod = {"metadata": metadata, "spec": {"containers": [container], **spec}}
        await self.kube.create(PODS, pod, NAMESPACE)

    async def denial(self, name: str, pool: str, **spec: Any) -> str:
        """Why there can't be such a pod where device taints are dropped."""
        with pytest.raises(RefusedError, match="drops device taints") as refusal:
            await self.submit(name, pool, **spec)
        self.made.remove(name)
        return str(refusal.value)

    async def pod(self, name: str) -> Object:
        """A pod as it is."""
        return await self.kube.get(PODS, name, NAMESPACE)

    async def claim(self, pod: str, reference: str = names.CLAIM_REFERENCE) -> Object:
        """A pod's claim, once it is there."""
        found = await self.until(pod, lambda obj: _claim_name(obj, reference), "its claim")
        return await self.kube.get(CLAIMS, _claim_name(found, reference), NAMESPACE)

    async def keeps_taints(self) -> bool:
        """Whether the server keeps the taints of devices: else nothing is gated."""
        slices = (await self.kube.list(SLICES)).objects
        return any(
            device.get("taints") for one in slices for device in one["spec"].get("devices", ())
        )

    async def until(
        self, name: str, condition: Condition, what: str, *, within_s: float = PATIENCE_S
    ) -> Object:
        """The pod as soon as ``condition`` holds for it."""
        last: Object = {}
        try:
            async with asyncio.timeout(within_s):
                async for _ in self.kube.watch(
                    PODS, NAMESPACE, field_selector=f"metadata.name={name}"
                ):
                    last = await self.pod(name)
                    if condition(last):
                        return last
        except TimeoutError:
            pytest.fail(f"pod {name}: not within {within_s:g} s: {what}\n{_in_short(last)}")
        raise AssertionError("a watch has no end")

    async def running(self, *pods: str) -> list[str]:
        """The nodes of the pods, once all of them run."""
        found = [await self.until(one, _runs, "it runs") for one in pods]
        return [str(pod["spec"]["nodeName"]) for pod in found]

    async def node(self, name: str, **spec: Any) -> None:
        """Change the spec of a node."""
        await self.kube.patch(NODES, name, {"spec": spec})

    async def fill(self, name: str, node: str, cpu: int) -> None:
        """Let an ordinary pod take so many cpus of a node."""
        await self.submit(name, cpu=str(cpu), nodeSelector={HOSTNAME: node})
        await self.running(name)

    @asynccontextmanager
    async def decided(self, pod: str, pool: str, **asked: Any) -> AsyncIterator[str]:
        """Create a pod and let dray decide about it; the decision, on the node it gives, is not
        carried out before the block ends. Whatever the block does, dray has not read."""
        self.stack.pause("allocator")
        try:
            await self.submit(pod, pool, **asked)
            claim = await self.claim(pod)
            await self._published(claim["metadata"]["uid"])
            await self._published_with(pod, claim["metadata"]["name"])
            self.stack.pause("claim-controller")
        finally:
            self.stack.resume("allocator")
        try:
            yield await self._node_decided(claim["metadata"]["uid"], pool)
        finally:
            self.stack.resume("claim-controller")

    def allocations(self, claim_uid: str) -> list[tuple[str, int]]:
        """What the claim was seen as, change by change: the node of its allocation, or nothing,
        and up to which attempt it is void."""
        seen: list[tuple[str, int]] = []
        for change in sorted(self.history.changes, key=lambda change: change.version):
            obj = change.object
            if change.resource != CLAIMS or obj is None or obj["metadata"]["uid"] != claim_uid:
                continue
            state = (_node_of(obj), int(_annotations(obj).get(names.VOID, "0")))
            if not seen or seen[-1] != state:
                seen.append(state)
        return seen

    async def clean_up(self) -> None:
        """Delete the pods of the test, and wait until they are gone."""
        made = [*self.made]
        self.made.clear()
        for name in made:
            await self.kube.delete(PODS, name, NAMESPACE)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in self.kube.watch(PODS, NAMESPACE):
                here = await self.kube.list(PODS, NAMESPACE)
                if not {pod["metadata"]["name"] for pod in here.objects} & set(made):
                    return

    async def _published(self, claim_uid: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            async for delivered in self.bus.read(
                FACTS_STREAM, subjects=[f"{subject_prefix(ClaimObserved)}.>"]
            ):
                if decode(delivered, ClaimObserved).claim.uid == claim_uid:
                    return

    async def _published_with(self, pod: str, claim: str) -> None:
        """The pod's own fact names its claim; facts of several objects come in no order."""
        async with asyncio.timeout(PATIENCE_S):
            async for delivered in self.bus.read(
                FACTS_STREAM, subjects=[f"{subject_prefix(PodObserved)}.>"]
            ):
                seen = decode(delivered, PodObserved).pod
                if seen.name == pod and claim in {one.claim for one in seen.claims}:
                    return

    async def _node_decided(self, claim_uid: str, pool: str) -> str:
        async with asyncio.timeout(PATIENCE_S):
            epoch = await self.epoch(pool)
            async for delivered in self.bus.read(log_stream(pool, epoch)):
                record = decode_record(delivered.payload)
                for decision in record.pods if isinstance(record, Decided) else ():
                    if claim_uid in [claim.uid for claim in decision.claims]:
                        return decision.node
        raise AssertionError("a log has no end")

    async def epoch(self, pool: str) -> int:
        """Of the pool's log, which its status tells a moment after the first decision."""
        while True:
            status = (await self.kube.get(POOLS, pool)).get("status") or {}
            if "decisionLog" in status:
                return int(status["decisionLog"]["epoch"])
            await asyncio.sleep(0.1)


def _claim_name(pod: Object, reference: str) -> str:
    statuses = pod.get("status", {}).get("resourceClaimStatuses") or ()
    return next((one["resourceClaimName"] for one in statuses if one["name"] == reference), "")


def _node_of(claim: Object) -> str:
    allocation = (claim.get("status") or {}).get("allocation")
    return str(allocation["devices"]["results"][0]["pool"]) if allocation else ""


def _annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _runs(pod: Object) -> bool:
    status = pod.get("status", {})
    if status.get("phase") in ("Failed", "Succeeded"):
        pytest.fail(f"pod {pod['metadata']['name']} ended:\n{_in_short(pod)}")
    return bool(status.get("phase") == "Running")


def _in_short(pod: Object) -> str:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    reported = {name: status.get(name) for name in ("phase", "reason", "message", "conditions")}
    return f"{reported}\non {spec.get('nodeName')}, gates {spec.get('schedulingGates')}"


@asynccontextmanager
async def connected(stack: Stack) -> AsyncIterator[Cluster]:
    """A running stack, watched from now on."""
    record = stack.record
    async with AsyncExitStack() as undo:
        kube = await connect_with_retries(record.kubeconfig, user_agent="dray-test")
        undo.push_async_callback(kube.close)
        password = record.nats_passwords["admin"]
        bus = await connect_bus(record.nats_url, name="test", user="admin", password=password)
        undo.push_async_callback(bus.close)
        history = await undo.enter_async_context(watch_history(kube))
        yield Cluster(stack, kube, bus, history)


async def until_published(kube: Kube, cards: int) -> None:
    """Wait until so many cards are published, and every node is ready."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        listed = await kube.list(SLICES)
        if sum(len(one["spec"].get("devices") or ()) for one in listed.objects) == cards:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{cards} cards are not published within {PATIENCE_S:g} s")
