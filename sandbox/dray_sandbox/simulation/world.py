"""The running cluster: servers, processes, and the hands that harm them."""

import asyncio
import copy
import random
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from dray.api.names import VOID
from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, LEASES, Object, Resource
from dray_sandbox.simulation import actors
from dray_sandbox.simulation.answers import FaultyAnswer
from dray_sandbox.simulation.fault_rates import FaultRates, TriggeredFault, weight_of
from dray_sandbox.simulation.faults import Fault
from dray_sandbox.simulation.faulty_adapters import FaultyBus, doors
from dray_sandbox.simulation.invariants import SimulationInvariants, WatchedStore
from dray_sandbox.simulation.loop import CURRENT, Process, VirtualLoop
from dray_sandbox.simulation.processes import CARDS, NODES, OWN, SimulatedProcess, all_processes
from dray_sandbox.simulation.refusals import READ, LastingRefusal
from dray_sandbox.simulation.trace import SimulationTrace
from dray_sandbox.simulation.unreadable import unreadable

_SHOWN = 3
"""Requests of a refusal that the trace shows."""


@dataclass(slots=True)
class SimulatedWorld:
    """One simulation."""

    seed: int
    loop: VirtualLoop
    trace: SimulationTrace
    kube: MemoryKube = field(init=False)
    bus: MemoryBus = field(init=False)
    invariants: SimulationInvariants = field(init=False)
    boards: dict[str, actors.SimulatedNodeGpus] = field(init=False)
    actors: dict[str, SimulatedProcess] = field(init=False)
    harming: bool = True
    """Whether calls may still fail."""
    kube_back_s: float = 0.0
    bus_back_s: float = 0.0
    believers_until_s: float = 0.0
    """Until then every replica believes to serve every pool."""
    triggered_fault: TriggeredFault | None = None
    sleepers: dict[str, Process] = field(default_factory=dict)
    """Who wakes when a claim is voided, by the claim's name."""
    lagging_until_s: dict[str, float] = field(default_factory=dict)
    """Per process, until when it reads nothing new from the bus."""
    refusals: list[LastingRefusal] = field(default_factory=list)
    """How certain requests are answered until that is lifted."""
    disturbed_s: float = 0.0
    """When something happened last that may keep every pod waiting for a while."""
    clocks_ahead_s: dict[str, float] = field(default_factory=dict)
    """How wrong wall clocks are, by the process on that host."""
    tolerated: set[str] = field(default_factory=set)
    """Alarms that a harm done makes right: budgets were lowered, records were lost."""
    quarrels: list[str] = field(default_factory=list)
    """What dray's own processes did that no process should."""
    counts: dict[str, int] = field(default_factory=dict)
    """Harms done, by kind."""
    _calls: random.Random = field(init=False)
    _mix: FaultRates = field(init=False)
    _sleep_s: float = 0.0
    """How long the next one to be stopped sleeps; 0: as it comes."""

    def __post_init__(self) -> None:
        draw = random.Random(f"{self.seed}-world")
        self._calls = random.Random(f"{self.seed}-calls")
        self._mix = FaultRates.drawn(draw)
        store = WatchedStore(self.loop.now_unix_s)
        self.invariants = SimulationInvariants(store)
        store.invariants = self._check
        self.kube = MemoryKube(store)
        self.bus = MemoryBus(now_unix_s=self.loop.now_unix_s)
        self.boards = {node: actors.SimulatedNodeGpus(node, CARDS) for node in NODES}
        self.actors = all_processes(self.seed, draw, self.boards, self.kube)

    # --- fate --------------------------------------------------------------------------

    def answer(
        self, process: Process, call: str, what: str, namespace: str, payload: bytes
    ) -> FaultyAnswer | None:
        """See ``Fate.answer``."""
        for refusal in self.refusals:
            if refusal.meets(process.name, call, what, namespace, payload):
                refusal.count += 1
                if refusal.count <= _SHOWN:
                    self.trace.say("FATE", f"{refusal}: {process.name} {call} {what}")
                return refusal.case.answer
        return None

    def shown(self, process: Process, resource: Resource, obj: Object) -> Object:
        """See ``Fate.shown``."""
        if not self.refusals:
            return obj
        metadata = obj["metadata"]
        what, namespace = f"{resource.plural}/{metadata['name']}", metadata.get("namespace", "")
        for refusal in self.refusals:
            if refusal.meets(process.name, READ, what, namespace, b""):
                refusal.count += 1
                return unreadable(resource.plural, obj, refusal.case.answer.shape, copy.deepcopy)
        return obj

    def fault(self, process: Process, call: str, what: str) -> Fault:
        """See ``FaultPolicy.fault``."""
        if self.harming and self._is_ambushed(process, call, what):
            return self._spring(process, what)
        if not self.harming or not process.name.startswith(self._mix.victims):
            return Fault.NONE
        weight = weight_of(call, what)
        point = self._calls.random()
        for fault, rate in self._mix.rates.items():
            point -= rate * weight
            if point < 0:
                self._count(f"call {fault}")
                self.trace.say("FATE", f"{fault} {process.name} {call} {what}")
                return fault
        return Fault.NONE

    def _is_ambushed(self, process: Process, call: str, what: str) -> bool:
        if self.triggered_fault is None or not self.triggered_fault.meets(process.name, call, what):
            return False
        kind = [actor for name, actor in self.actors.items() if name.startswith(process.name[:2])]
        return not any(actor.process is None or actor.process.paused for actor in kind)

    def _spring(self, process: Process, what: str) -> Fault:
        triggered_fault, self.triggered_fault = self.triggered_fault, None
        assert triggered_fault is not None
        self._count("ambush sprung")
        self.trace.say("FATE", f"ambush of {process.name} before {what}")
        self._sleep_s = triggered_fault.sleep_s
        if triggered_fault.wakes_when_void:
            self.sleepers[what.rpartition("/")[2]] = process
        self.outside(triggered_fault.then(what))
        return triggered_fault.fault

    def latency_s(self) -> float:
        """See ``Fate.latency_s``."""
        return 0.0005 + 0.004 * self._calls.random()

    def long_s(self) -> float:
        """See ``Fate.long_s``."""
        long_s, self._sleep_s = self._sleep_s, 0.0
        return long_s or float(0.05 * 400 ** self._calls.random())

    def crash(self, process: Process, why: str) -> None:
        """See ``Fate.crash``."""
        actor = self.actors[process.name]
        if actor.process is process:
            self.kill(actor.name, why)

    def stop(self, process: Process) -> None:
        """See ``Fate.stop``."""
        sleep_s, self._sleep_s = self._sleep_s, 0.0
        if self.actors[process.name].process is process:
            self.pause(process.name, sleep_s or self._calls.choice((2.0, 8.0, 17.0, 33.0)))

    def kube_away_s(self) -> float:
        """See ``Fate.kube_away_s``."""
        return self.kube_back_s - self.loop.time()

    def lag_s(self, process: Process) -> float:
        """See ``Fate.lag_s``."""
        return self.lagging_until_s.get(process.name, 0.0) - self.loop.time()

    def believes(self) -> bool:
        """See ``Fate.believes``."""
        return self.loop.time() < self.believers_until_s

    # --- processes ---------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Begin a life."""
        actor = self.actors[name]
        actor.lives += 1
        process = actor.process = Process(name)
        process.clock_ahead_s = self.clocks_ahead_s.get(name, 0.0)
        token = CURRENT.set(process)
        try:
            kube, bus = doors(process, self.kube, self.bus, self)
            assert isinstance(bus, FaultyBus)
            actor.bus, actor.kube = bus, kube
            if self.loop.time() < self.bus_back_s:
                bus.inner.disconnect()
            alias = name if actor.keeps_name else f"{name}.{actor.lives}"
            actor.running = actor.begin(kube, bus, alias)
            for work in actor.running.loops:
                task = self.loop.create_task(work)
                task.add_done_callback(lambda ended: self._ended(actor, process, ended))
        finally:
            CURRENT.reset(token)

    def kill(self, name: str, why: str, away_s: float | None = None) -> None:
        """End a process as kill -9 does; it starts again after a while."""
        actor = self.actors[name]
        if actor.process is None:
            return
        self.trace.say("FATE", f"kill {name}: {why}")
        self._count("kill")
        process, actor.process, actor.running = actor.process, None, None
        process.kill(self.loop)
        pause_s = away_s if away_s is not None else 0.1 * 300 ** self._calls.random()
        self.outside(self._start_after(name, pause_s if self.harming else 0.5))

    def pause(self, name: str, for_s: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        process = self.actors[name].process
        if process is None or process.paused:
            return
        self.trace.say("FATE", f"stop {name} for {for_s:.1f} s")
        self._count("stop")
        process.pause(self.loop)
        self.outside(self._resume_after(process, for_s))

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Set the wall clock of a process' host; it outlives the process."""
        self.trace.say("FATE", f"the clock of {name} is {ahead_s:.0f} s ahead")
        self.clocks_ahead_s[name] = ahead_s
        if (process := self.actors[name].process) is not None:
            process.clock_ahead_s = ahead_s

    def bus_away(self, for_s: float) -> None:
        """Nobody reaches the bus for a while."""
        self.bus_back_s = max(self.bus_back_s, self.loop.time() + for_s)
        for bus in self._buses():
            bus.disconnect()
        self.outside(self._reconnect_after(for_s))

    def spare(self) -> None:
        """Do no harm to calls."""
        self._mix = FaultRates({}, ())

    def heal(self) -> None:
        """End every harm under way."""
        self.harming = False
        self.kube_back_s = self.believers_until_s = 0.0
        self.triggered_fault = None
        self.lagging_until_s.clear()
        for name in list(self.clocks_ahead_s):
            self.set_clock(name, 0.0)
        for actor in self.actors.values():
            if actor.process is not None:
                actor.process.resume(self.loop)
            if actor.kube is not None:
                actor.kube.inner.release_watches()

    def refuse(self, refusal: LastingRefusal) -> None:
        """Answer certain requests so, until ``lift``."""
        self.trace.say("FATE", f"from now on {refusal}")
        self._count(f"refused: {refusal.case.kind.name}")
        refusal.since_s = self.loop.time()
        self.refusals.append(refusal)

    def disturb(self, for_s: float = 0.0) -> None:
        """Something happens that may keep every pod waiting for so long."""
        self.disturbed_s = max(self.disturbed_s, self.loop.time() + for_s)

    def lift(self) -> None:
        """Serve all requests again."""
        for refusal in self.refusals:
            self.trace.say("FATE", f"no longer {refusal}, after {refusal.count} requests")
            self.counts[f"answered: {refusal.case}"] = refusal.count
        self.refusals.clear()

    def leader(self) -> str:
        """The process that holds the Lease; empty: nobody, or one that is dead."""
        for lease in self.kube.store.of(LEASES).values():
            holder = str(lease["spec"].get("holderIdentity") or "").partition(".")[0]
            if holder in self.actors and self.actors[holder].process is not None:
                return holder
        return ""

    def allocators(self) -> Iterator[tuple[str, Any]]:
        """The allocators' states, by name."""
        for name, actor in self.actors.items():
            if actor.running is not None and actor.running.allocator is not None:
                yield name, actor.running.allocator

    def close(self) -> None:
        """End every process for good."""
        self.harming = False
        for actor in self.actors.values():
            process, actor.process = actor.process, None
            if process is not None:
                process.kill(self.loop)

    def _buses(self) -> list[MemoryBus]:
        return [actor.bus.inner for actor in self.actors.values() if actor.bus is not None]

    def alarms(self) -> list[str]:
        """What was logged that should never be, but for what is tolerated."""
        return [
            alarm
            for alarm in self.trace.alarms
            if not any(known in alarm for known in self.tolerated)
        ]

    def outside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in no process."""
        token = CURRENT.set(None)
        try:
            self.trace.keep(self.loop.create_task(work))
        finally:
            CURRENT.reset(token)

    async def _start_after(self, name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self.actors[name].process is None:
            self.start(name)

    async def _resume_after(self, process: Process, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if process.paused:
            self.trace.say("FATE", f"continue {process.name}")
            process.resume(self.loop)

    async def _reconnect_after(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self.loop.time() >= self.bus_back_s - 1e-6:
            for bus in self._buses():
                bus.reconnect()

    def _ended(self, actor: SimulatedProcess, process: Process, task: "asyncio.Task[Any]") -> None:
        if process.dead or actor.process is not process:
            if not task.cancelled():
                task.exception()
            return
        error = None if task.cancelled() else task.exception()
        why = f"{actor.name} ended by itself: {error!r}"
        if isinstance(error, BaseExceptionGroup):
            why += f" {error.exceptions!r}"
        if actor.name in OWN:
            self.quarrels.append(why)
        self.kill(actor.name, why)

    def _check(self, event: Any) -> None:
        self.trace.event(event)
        before = len(self.invariants.violations)
        self.invariants.see(event)
        for violation in self.invariants.violations[before:]:
            self.trace.say("JUDGE", violation)
        if event.resource == CLAIMS and event.after and _void(event.before) != _void(event.after):
            sleeper = self.sleepers.pop(event.after["metadata"]["name"], None)
            if sleeper is not None:
                self.outside(self._resume_after(sleeper, 0.001))

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def count(self, kind: str) -> None:
        """One more fault of a kind."""
        self._count(kind)


def _void(obj: Object | None) -> str | None:
    annotations: dict[str, str] = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    return annotations.get(VOID)
