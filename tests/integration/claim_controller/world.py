"""The cluster with its bus: controllers are started on it, and decisions appended to its logs."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from tests.integration.claim_controller.kubernetes import POOL, Kubernetes

from dray.api import json_codec
from dray.api.claims import AllocatedDevice, Allocation, first_attempt
from dray.api.devices import DeviceId
from dray.api.names import DRAY_SCHEDULER, DRIVER, OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray.bus.memory import MemoryBus
from dray.bus.topology import FACTS_STREAM
from dray.kube.convert import claim_from
from dray.kube.ports import PODS, POOLS
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
from dray.runtime.settings import LogSettings
from dray_claim_controller.app import Controller
from dray_claim_controller.execution.steps import Hook
from dray_claim_controller.settings import (
    ControllerSettings,
    ExecutionSettings,
    Lease,
    Publishing,
    Templates,
)

_ANYTHING = msgspec.json.Decoder[Any]()


def fast_settings(instance: str, **changes: Any) -> ControllerSettings:
    """Settings with short intervals."""
    values: dict[str, Any] = {
        "instance": instance,
        "log": LogSettings(),
        "lease": Lease(retry=0.05),
        "execution": ExecutionSettings(
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
        loops = {
            "watch": controller.watch(),
            "stand": controller.stand(),
            "look-up": controller.look_up(),
            "derive": controller.derive(),
            "readings": controller.readings.run(),
            "journal": controller.write_journal(),
        }
        self.tasks = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]

    async def stop(self) -> None:
        """As SIGTERM does: the Lease is given up."""
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                await task


class World(Kubernetes):
    """What dray's controller meets, and a hand on every part of it."""

    def __init__(self, kube: Any = None, bus: Any = None) -> None:
        super().__init__(kube)
        self.bus = bus or MemoryBus()
        self.running: list[Running] = []

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
                and set(running.controller.term.followers.executions) >= set(self.names(POOLS))
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
        (tick,) = (await self.facts())["tick"]
        return await self.append(
            Decided(
                domain=domain,
                epoch=epoch,
                writer="test",
                facts_sequence=1,
                now_unix_s=tick["now_unix_s"],
                policy_version=2,
                learned_version=7,
                pods=(decision,),
            ),
            headers,
        )

    # --- facts -------------------------------------------------------------------------

    async def newest(self, kind: str, name: str = "") -> Any:
        """The last fact of a kind about the object of this name."""
        for fact in reversed((await self.facts()).get(kind, [])):
            values = [value for value in fact.values() if isinstance(value, dict)]
            if not name or any(value.get("name") == name for value in values):
                return fact
        return None

    async def epoch(self, pool: str = POOL) -> int:
        """The epoch that the pool's status remembers."""
        status = (await self.kube.get(POOLS, pool)).get("status") or {}
        return int((status.get("decisionLog") or {}).get("epoch") or 0)

    async def facts(self) -> dict[str, list[dict[str, Any]]]:
        """Everything the stream of facts holds, by kind, in order."""
        found: dict[str, list[dict[str, Any]]] = {}
        state = await self.bus.state(FACTS_STREAM)
        if state is None or state.last_sequence < state.first_sequence:
            return found
        async for delivered in self.bus.read(FACTS_STREAM):
            kind = delivered.subject.split(".")[2]
            found.setdefault(kind, []).append(json_codec.decode(delivered.payload, _ANYTHING))
            if not delivered.pending:
                break
        return found


async def hold_before_writing(_: str, __: Any) -> None:
    """A controller that does everything but execute."""
    await asyncio.Event().wait()
