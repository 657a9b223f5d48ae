"""Users' actions and faults at seeded times."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from dray.api.errors import DrayError
from dray.api.names import DERIVED_FROM_LABEL
from dray.kube.convert import claim_from, pod_from
from dray.kube.ports import CLAIMS, PODS, POOLS, TEMPLATES, Object, Resource
from tools.simulation.administrators import Administrators
from tools.simulation.bus_losses import BusLosses
from tools.simulation.cluster import (
    DEDICATED,
    SHARED,
    SPARE,
    TEAM,
    admit,
    gpu_pod,
    plain_pod,
)
from tools.simulation.processes import DRAY_PROCESSES
from tools.simulation.refusal_faults import RefusalFaults
from tools.simulation.refusals import Case
from tools.simulation.triggered_faults import TriggeredFaults
from tools.simulation.world import SimulatedWorld

FaultAction = Callable[[], Awaitable[None]]
CALM: Final = (
    "lose_log",
    "delete_pod",
    "delete_claim",
    "clear_allocation",
    "delete_template",
    "move_node",
    "cordon",
    "delete_pool",
    "create_pool",
    "change_ratio",
    "change_gpu_health",
)
"""Faults that end no term: users' and administrators' actions, and a lost decision log."""
_REOPENED_S: Final[Mapping[str, float]] = {
    "lose_log": 30.0,
    "delete_pool": 60.0,
    "create_pool": 30.0,
}
"""Time until a decision log is open again if claims can't be written: dray gives a claim up after
5 s, but a request without an answer takes 10 s. The log of a deleted pool is closed first."""
TEN_YEARS_S = 10 * 365 * 86_400.0


class FaultInjector:
    """One seed's users and faults."""

    def __init__(
        self,
        world: SimulatedWorld,
        *,
        pods: int,
        faults: int,
        until_s: float,
        only: tuple[str, ...] = (),
        case: Case | None = None,
    ) -> None:
        self._world = world
        self._case = case
        self._draw = random.Random(f"{world.seed}-faults")
        self._pods = pods
        self._count = faults
        self._until_s = until_s
        self._further = pods
        self._administrators = administrators = Administrators(world, self._draw)
        losses = BusLosses(world, self._draw)
        triggered_faults = TriggeredFaults(
            world,
            self._draw,
            (
                losses.lose_facts,
                administrators.move_node,
                administrators.delete_pool,
                self.delete_pod,
                self.clear_allocation,
            ),
        )
        self._refusals = RefusalFaults(world, self._draw, self._make_gpu_pod)
        every: tuple[FaultAction, ...] = (
            self.kill,
            self.kill,
            self.kill_all_of_a_kind,
            self.stop,
            self.stop,
            self.stop_all,
            self.expire_watches,
            self.hold_watches,
            triggered_faults.pause_before_any_call,
            triggered_faults.pause_before_claim_patch,
            triggered_faults.delay_claim_patch,
            triggered_faults.delay_claim_patch,
            triggered_faults.pause_before_publish,
            triggered_faults.pause_before_publish,
            self.concurrent_allocators,
            self.split_brain,
            self.lag,
            self.lag,
            self.wrong_clock,
            losses.bus_away,
            losses.lose_bus,
            losses.restart_bus_empty,
            losses.lose_facts,
            losses.lose_log,
            losses.truncate_log,
            losses.lose_commands,
            self.kube_away,
            self.delete_pod,
            self.delete_pod,
            self.delete_claim,
            self.clear_allocation,
            self.delete_template,
            administrators.move_node,
            administrators.move_node,
            administrators.cordon,
            administrators.delete_node,
            administrators.delete_pool,
            administrators.recreate_pool,
            administrators.create_pool,
            administrators.overlap_pools,
            administrators.change_owner,
            administrators.change_owner,
            administrators.change_ratio,
            administrators.change_policy,
            self.change_gpu_health,
            self._refusals.refuse_pod,
            self._refusals.refuse_node,
            self._refusals.refuse_pool,
            self._refusals.refuse_process,
        )
        provocations = (
            self._refusals.delete_odd,
            self._refusals.replace_pods,
            self._refusals.fail_once,
            self._refusals.kill_leader,
        )
        wanted = case.kind.provoked_by if case else ()
        self._provocations = [
            fault for fault in (*every, *provocations) if fault.__name__ in wanted
        ]
        names = sorted({fault.__name__ for fault in every})
        drawn = self._draw.sample(names, self._draw.randint(2, len(names)))
        chosen = set(only or drawn)
        self._faults = [fault for fault in every if fault.__name__ in chosen]

    async def run(self) -> None:
        """Create pods and cause faults until ``until_s``."""
        bursts = [self._moment(0.85) for _ in range(self._draw.choice((1, 3, self._pods)))]
        bursts.append(self._draw.uniform(2.0, 5.0))
        plan = [(self._draw.choice(bursts), self._make_pod, index) for index in range(self._pods)]
        plan += [(self._moment(1.0), self._one_fault, index) for index in range(self._count)]
        if self._case is not None:
            begins_s = self._draw.choice((0.0, self._draw.uniform(2.0, 6.0)))
            plan.append((begins_s, self._begin_case, -1))
            provoked_s = begins_s + self._draw.choice((-0.001, 0.1, 0.5, 3.0, 8.0))
            plan += [(provoked_s + 4.0 * again, self._provoke, -1) for again in (0, 1)]
        for at_s, act, index in sorted(plan, key=lambda entry: (entry[0], entry[2])):
            await asyncio.sleep(max(0.0, at_s - self._world.loop.time()))
            await act(index)
        await asyncio.sleep(max(0.0, self._until_s - self._world.loop.time()))

    async def repair(self) -> None:
        """Undo the faults that keep pods waiting; dray recovers from the others."""
        await self._administrators.repair()
        for node_gpus in self._world.gpus.values():
            node_gpus.unhealthy.clear()

    async def restart_some(self) -> bool:
        """Restart some processes, which must reach the same state; returns whether any restarts."""
        killed = [name for name in DRAY_PROCESSES if self._draw.random() < 0.3]
        for name in killed:
            self._world.kill(name, "restart after the faults")
        return bool(killed)

    async def delete_everything(self) -> None:
        """Delete all pods."""
        for obj in self._all(PODS):
            metadata = obj["metadata"]
            await self._world.kube.delete(PODS, metadata["name"], metadata["namespace"])

    async def lift_refusals(self) -> None:
        """End all refusals."""
        await self._refusals.lift_refusals()

    def draws(self, share: float) -> bool:
        """True for this share of all seeds."""
        return self._draw.random() < share

    async def _make_pod(self, index: int) -> None:
        if self._draw.random() < 0.12:
            await self._world.kube.create(
                PODS, plain_pod(f"plain-{index}", life_s=self._life_s()), TEAM
            )
        else:
            await self._make_gpu_pod(TEAM, f"gpu-{index}")

    async def _make_gpu_pod(self, namespace: str, name: str, fits: bool = True) -> None:
        """Create a pod with GPUs, or without them if there is no pool."""
        draw = self._draw
        known = [name for _, name in self._world.kube.store.of(POOLS)]
        pools = [name for name in (DEDICATED, SHARED, SPARE) if name in known]
        life_s = self._life_s()
        if not pools:
            await self._world.kube.create(
                PODS, plain_pod(f"plain-{name}", life_s=life_s), namespace
            )
            return
        pod = gpu_pod(
            name,
            draw.choice(pools),
            tflops=draw.choice((30, 100, 100, 156, 200, 312)) if fits else 1000,
            vram_gib=draw.choice((4, 10, 40, 80)),
            count=draw.choice((1, 1, 1, 2)),
            life_s=life_s,
        )
        pod["metadata"]["namespace"] = namespace
        await self._world.kube.create(PODS, admit(self._world.kube, pod), namespace)

    def _life_s(self) -> float | None:
        return self._draw.choice((None, None, 3.0, 10.0, 40.0))

    async def _begin_case(self, index: int) -> None:
        assert self._case is not None
        await self._refusals.begin(self._case)

    async def _provoke(self, index: int) -> None:
        if self._provocations:
            await self._one_of(self._provocations)

    async def _one_fault(self, index: int) -> None:
        await self._one_of(self._faults)

    async def _one_of(self, faults: Sequence[FaultAction]) -> None:
        fault = self._draw.choice(faults)
        reopened_s = _REOPENED_S.get(fault.__name__, 0.0) if self._world.refusals else 0.0
        self._world.extend_grace(reopened_s)
        await self._try(fault)

    async def _try(self, fault: FaultAction) -> None:
        self._world.count(fault.__name__)
        self._world.trace.record("FAULTS", fault.__name__)
        try:
            await fault()
        except DrayError as error:
            self._world.trace.record("FAULTS", f"{fault.__name__}: {error}")

    # --- faults ------------------------------------------------------------------------

    async def kill(self) -> None:
        """Kill one process."""
        self._world.kill(self._draw.choice(list(self._world.processes)), "fault")

    async def kill_all_of_a_kind(self) -> None:
        """Kill both replicas at once."""
        kind = self._draw.choice(("cc", "alloc"))
        away_s = self._draw.uniform(0.1, 5.0)
        for name in list(self._world.processes):
            if name.startswith(kind):
                self._world.kill(name, "fault, both", away_s * self._draw.uniform(0.5, 1.0))

    async def stop(self) -> None:
        """Stop one process, often for longer than a lease."""
        name = self._draw.choice([*DRAY_PROCESSES[:4], *DRAY_PROCESSES[:4], *self._world.processes])
        self._world.pause(name, self._draw.choice((2.0, 8.0, 20.0, 33.0)))

    async def stop_all(self) -> None:
        """Stop all of dray's processes, as a suspended machine does."""
        for name in DRAY_PROCESSES:
            self._world.pause(name, self._draw.uniform(3.0, 25.0))

    async def concurrent_allocators(self) -> None:
        """Let two allocators decide on many new pods while one of them is behind."""
        await self.split_brain()
        name = self._draw.choice(DRAY_PROCESSES[2:4])
        for_s = self._draw.uniform(0.1, 2.0)
        self._world.lagging_until_s[name] = self._world.loop.time() + for_s
        for _ in range(self._draw.randint(2, 6)):
            self._further += 1
            await self._make_pod(self._further)

    async def split_brain(self) -> None:
        """Grant every lease to every replica."""
        for_s = self._draw.uniform(2.0, 15.0)
        self._world.split_brain_until_s = self._world.loop.time() + for_s

    async def lag(self) -> None:
        """Delay one process' reads from the bus, not its writes."""
        name = self._draw.choice((*DRAY_PROCESSES[:4], *DRAY_PROCESSES[2:4]))
        for_s = self._draw.choice((0.5, 2.0, 6.0))
        self._world.lagging_until_s[name] = self._world.loop.time() + for_s

    async def wrong_clock(self) -> None:
        """Set a host's wall clock wrong, for a moment or until the faults end."""
        name = self._draw.choice(DRAY_PROCESSES[:4])
        ahead_s = self._draw.choice((-1, 1)) * self._draw.choice((40.0, 3600.0, TEN_YEARS_S))
        self._world.set_clock(name, ahead_s)
        for_s = self._draw.choice((0.5, 3.0, 100.0))
        self._world.loop.call_later(for_s, self._world.set_clock, name, 0.0)

    async def expire_watches(self) -> None:
        """Expire all watches (410)."""
        self._world.kube.expire_watches()

    async def hold_watches(self) -> None:
        """Delay the watches of one process."""
        actor = self._world.processes[self._draw.choice(list(self._world.processes))]
        if actor.kube is None:
            return
        inner, for_s = actor.kube.inner, self._draw.uniform(0.5, 20.0)
        inner.hold_watches()
        self._world.trace.record("FAULT", f"delay watches of {actor.name} for {for_s:.1f} s")
        self._world.loop.call_later(for_s, inner.release_watches)

    async def kube_away(self) -> None:
        """Make the API server unavailable."""
        self._world.kube_back_s = self._world.loop.time() + self._draw.uniform(0.2, 14.0)

    async def delete_pod(self) -> None:
        """Delete a pod."""
        if obj := self._any(PODS):
            grace_s = self._draw.choice((None, None, 0))
            await self._world.kube.delete(
                PODS, obj["metadata"]["name"], TEAM, grace_period_s=grace_s
            )

    async def delete_claim(self) -> None:
        """Delete a claim."""
        if obj := self._any(CLAIMS):
            await self._world.kube.delete(CLAIMS, obj["metadata"]["name"], TEAM)

    async def clear_allocation(self) -> None:
        """Deallocate an unreserved claim, as kube-scheduler's PostFilter does."""
        found = [obj for obj in self._all(CLAIMS) if self._may_be_cleared(obj)]
        if not found:
            return
        obj = self._draw.choice(found)
        current = await self._world.kube.get(CLAIMS, obj["metadata"]["name"], TEAM)
        current["status"].pop("allocation", None)
        await self._world.kube.update(CLAIMS, current, subresource="status")

    def _may_be_cleared(self, obj: Object) -> bool:
        claim = claim_from(obj)
        if claim.allocation is None or claim.reserved_for:
            return False
        pods = [pod_from(pod) for pod in self._all(PODS)]
        return any(pod.uid == claim.pod_uid and not pod.gated and not pod.node for pod in pods)

    async def delete_template(self) -> None:
        """Delete a derived template."""
        derived = [
            obj
            for obj in self._all(TEMPLATES)
            if DERIVED_FROM_LABEL in (obj["metadata"].get("labels") or {})
        ]
        if derived:
            name = self._draw.choice(derived)["metadata"]["name"]
            await self._world.kube.delete(TEMPLATES, name, TEAM)

    async def change_gpu_health(self) -> None:
        """Make a GPU unhealthy, or healthy again."""
        node_gpus = self._world.gpus[self._draw.choice(list(self._world.gpus))]
        index = self._draw.randrange(node_gpus.count)
        if index in node_gpus.unhealthy:
            del node_gpus.unhealthy[index]
        else:
            node_gpus.unhealthy[index] = None

    def _all(self, resource: Resource) -> list[Object]:
        return list(self._world.kube.store.of(resource).values())

    def _any(self, resource: Resource) -> Object | None:
        found = [obj for obj in self._all(resource) if obj["metadata"].get("namespace") == TEAM]
        return self._draw.choice(found) if found else None

    def _moment(self, share: float) -> float:
        return self._draw.uniform(2.0, 2.0 + share * (self._until_s - 2.0))
