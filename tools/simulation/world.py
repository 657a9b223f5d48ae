"""The simulated cluster: servers, processes, and the faults of their calls."""

import asyncio
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dray.api.names import VOID
from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, LEASES, Object, Resource
from tools.simulation.answers import FaultyAnswer, unreadable
from tools.simulation.faults import Fault, FaultRates, TriggeredFault, weight_of
from tools.simulation.faulty_adapters import FaultyBus, connections
from tools.simulation.invariants import SimulationInvariants, WatchedStore
from tools.simulation.loop import CURRENT, Process, VirtualLoop
from tools.simulation.processes import (
    DRAY_PROCESSES,
    GPUS_PER_NODE,
    POOL_OF_NODE,
    ProcessFactory,
    SimulatedNodeGpus,
    SimulatedProcess,
    all_processes,
)
from tools.simulation.refusals import READ, LastingRefusal
from tools.simulation.trace import SimulationTrace

_SHOWN = 3
"""Requests per refusal in the trace."""


@dataclass(slots=True)
class SimulatedWorld:
    """One simulation."""

    seed: int
    loop: VirtualLoop
    trace: SimulationTrace
    kube: MemoryKube = field(init=False)
    bus: MemoryBus = field(init=False)
    invariants: SimulationInvariants = field(init=False)
    gpus: dict[str, SimulatedNodeGpus] = field(init=False)
    processes: dict[str, SimulatedProcess] = field(init=False)
    faults_enabled: bool = True
    """Whether calls may fail."""
    has_latency: bool = True
    """Whether calls and messages take time."""
    kube_back_s: float = 0.0
    bus_back_s: float = 0.0
    split_brain_until_s: float = 0.0
    """Before this time every replica gets every lease."""
    triggered_fault: TriggeredFault | None = None
    paused_until_void: dict[str, Process] = field(default_factory=dict)
    """Stopped processes that continue when a claim is voided, by the claim's name."""
    lagging_until_s: dict[str, float] = field(default_factory=dict)
    """By process, until when its reads from the bus are delayed."""
    refusals: list[LastingRefusal] = field(default_factory=list)
    """Lasting refusals in force."""
    grace_until_s: float = 0.0
    """Before this time every pod may wait without an explanation."""
    clocks_ahead_s: dict[str, float] = field(default_factory=dict)
    """Errors of wall clocks, by the process on that host."""
    tolerated: set[str] = field(default_factory=set)
    """Alarms that are correct after a fault: lowered budgets, lost records."""
    unexpected_exits: list[str] = field(default_factory=list)
    """dray's processes that ended by themselves."""
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers of faults, by kind."""
    _calls: random.Random = field(init=False)
    _rates: FaultRates = field(init=False)
    _sleep_s: float = 0.0
    """Duration of the next stop; 0: random."""

    def __post_init__(self) -> None:
        draw = random.Random(f"{self.seed}-world")
        self._calls = random.Random(f"{self.seed}-calls")
        self._rates = FaultRates.drawn(draw)
        store = WatchedStore(self.loop.now_unix_s)
        self.invariants = SimulationInvariants(store)
        store.invariants = self._check
        self.kube = MemoryKube(store)
        self.bus = MemoryBus(now_unix_s=self.loop.now_unix_s)
        self.gpus = {node: SimulatedNodeGpus(node, GPUS_PER_NODE) for node in POOL_OF_NODE}
        self.processes = all_processes(self.seed, draw, self.gpus, self.kube)

    # --- FaultPolicy -------------------------------------------------------------------

    def answer(
        self, process: Process, call: str, what: str, namespace: str, payload: bytes
    ) -> FaultyAnswer | None:
        """See ``FaultPolicy.answer``."""
        for refusal in self.refusals:
            if refusal.matches(process.name, call, what, namespace, payload):
                refusal.count += 1
                if refusal.count <= _SHOWN:
                    self.trace.record("FAULT", f"{refusal}: {process.name} {call} {what}")
                return refusal.case.answer
        return None

    def as_read(self, process: Process, resource: Resource, obj: Object) -> Object:
        """See ``FaultPolicy.as_read``."""
        if not self.refusals:
            return obj
        metadata = obj["metadata"]
        what, namespace = f"{resource.plural}/{metadata['name']}", metadata.get("namespace", "")
        for refusal in self.refusals:
            if refusal.matches(process.name, READ, what, namespace, b""):
                refusal.count += 1
                return unreadable(resource.plural, obj, refusal.case.answer.shape, copy.deepcopy)
        return obj

    def fault(self, process: Process, call: str, what: str) -> Fault:
        """See ``FaultPolicy.fault``."""
        if self.faults_enabled and self._is_triggered(process, call, what):
            return self._trigger(process, what)
        if not self.faults_enabled or not process.name.startswith(self._rates.victims):
            return Fault.NONE
        weight = weight_of(call, what)
        point = self._calls.random()
        for fault, rate in self._rates.rates.items():
            point -= rate * weight
            if point < 0:
                self.count(f"call {fault}")
                self.trace.record("FAULT", f"{fault} {process.name} {call} {what}")
                return fault
        return Fault.NONE

    def _is_triggered(self, process: Process, call: str, what: str) -> bool:
        if self.triggered_fault is None or not self.triggered_fault.matches(
            process.name, call, what
        ):
            return False
        kind = [
            actor for name, actor in self.processes.items() if name.startswith(process.name[:2])
        ]
        return not any(actor.process is None or actor.process.paused for actor in kind)

    def _trigger(self, process: Process, what: str) -> Fault:
        triggered_fault, self.triggered_fault = self.triggered_fault, None
        assert triggered_fault is not None
        self.count("triggered fault")
        self.trace.record("FAULT", f"{triggered_fault.fault} {process.name} before {what}")
        self._sleep_s = triggered_fault.sleep_s
        if triggered_fault.wakes_when_void:
            self.paused_until_void[what.rpartition("/")[2]] = process
        self.loop.run_outside(triggered_fault.then(what))
        return triggered_fault.fault

    def latency_s(self) -> float:
        """See ``FaultPolicy.latency_s``."""
        return 0.0005 + 0.004 * self._calls.random() if self.has_latency else 0.0

    def long_s(self) -> float:
        """See ``FaultPolicy.long_s``."""
        long_s, self._sleep_s = self._sleep_s, 0.0
        return long_s or float(0.05 * 400 ** self._calls.random())

    def crash(self, process: Process, why: str) -> None:
        """See ``FaultPolicy.crash``."""
        actor = self.processes[process.name]
        if actor.process is process:
            self.kill(actor.name, why)

    def stop(self, process: Process) -> None:
        """See ``FaultPolicy.stop``."""
        sleep_s, self._sleep_s = self._sleep_s, 0.0
        if self.processes[process.name].process is process:
            self.pause(process.name, sleep_s or self._calls.choice((2.0, 8.0, 17.0, 33.0)))

    def kube_away_s(self) -> float:
        """See ``FaultPolicy.kube_away_s``."""
        return self.kube_back_s - self.loop.time()

    def lag_s(self, process: Process) -> float:
        """See ``FaultPolicy.lag_s``."""
        return self.lagging_until_s.get(process.name, 0.0) - self.loop.time()

    def grants_every_lease(self) -> bool:
        """See ``FaultPolicy.grants_every_lease``."""
        return self.loop.time() < self.split_brain_until_s

    def add_process(self, name: str, make: ProcessFactory) -> None:
        """Add a process, not started."""
        self.processes[name] = SimulatedProcess(name, make)

    # --- processes ---------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a process."""
        actor = self.processes[name]
        actor.lives += 1
        process = actor.process = Process(name)
        process.clock_ahead_s = self.clocks_ahead_s.get(name, 0.0)
        token = CURRENT.set(process)
        try:
            kube, bus = connections(process, self.kube, self.bus, self)
            assert isinstance(bus, FaultyBus)
            actor.bus, actor.kube = bus, kube
            if self.loop.time() < self.bus_back_s:
                bus.inner.disconnect()
            alias = name if actor.keeps_name else f"{name}.{actor.lives}"
            actor.running = actor.make(kube, bus, alias)
            for work in actor.running.loops:
                task = self.loop.create_task(work)
                task.add_done_callback(lambda ended: self._ended(actor, process, ended))
        finally:
            CURRENT.reset(token)

    def kill(self, name: str, why: str, away_s: float | None = None) -> None:
        """Kill a process; it starts again after ``away_s``, else after a random time."""
        actor = self.processes[name]
        if actor.process is None:
            return
        self.trace.record("FAULT", f"kill {name}: {why}")
        self.count("kill")
        process, actor.process, actor.running = actor.process, None, None
        process.kill(self.loop)
        pause_s = away_s if away_s is not None else 0.1 * 300 ** self._calls.random()
        self.loop.run_outside(self._start_after(name, pause_s if self.faults_enabled else 0.5))

    def pause(self, name: str, for_s: float) -> None:
        """Stop a process; it continues after ``for_s``."""
        process = self.processes[name].process
        if process is None or process.paused:
            return
        self.trace.record("FAULT", f"stop {name} for {for_s:.1f} s")
        self.count("stop")
        process.pause(self.loop)
        self.loop.run_outside(self._resume_after(process, for_s))

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Set the wall clock of a process' host, also for the restarts of the process."""
        self.trace.record("FAULT", f"set the clock of {name} {ahead_s:.0f} s ahead")
        self.clocks_ahead_s[name] = ahead_s
        if (process := self.processes[name].process) is not None:
            process.clock_ahead_s = ahead_s

    def bus_away(self, for_s: float) -> None:
        """Disconnect all processes from the bus."""
        self.bus_back_s = max(self.bus_back_s, self.loop.time() + for_s)
        for bus in self._buses():
            bus.disconnect()
        self.loop.run_outside(self._reconnect_after(for_s))

    def disable_call_faults(self) -> None:
        """Stop making calls fail."""
        self._rates = FaultRates({}, ())

    def end_faults(self) -> None:
        """End all faults in progress."""
        self.faults_enabled = False
        self.kube_back_s = self.split_brain_until_s = 0.0
        self.triggered_fault = None
        self.lagging_until_s.clear()
        for name in list(self.clocks_ahead_s):
            self.set_clock(name, 0.0)
        for actor in self.processes.values():
            if actor.process is not None:
                actor.process.resume(self.loop)
            if actor.kube is not None:
                actor.kube.inner.release_watches()

    def refuse(self, refusal: LastingRefusal) -> None:
        """Put a refusal in force until ``lift_refusals``."""
        self.trace.record("FAULT", f"refuse {refusal}")
        self.count(f"refused: {refusal.case.kind.name}")
        refusal.since_s = self.loop.time()
        self.refusals.append(refusal)

    def extend_grace(self, for_s: float = 0.0) -> None:
        """Allow every pod to wait for this time without an explanation."""
        self.grace_until_s = max(self.grace_until_s, self.loop.time() + for_s)

    def lift_refusals(self) -> None:
        """End all refusals."""
        for refusal in self.refusals:
            self.trace.record("FAULT", f"end of {refusal}, after {refusal.count} requests")
            self.counts[f"answered: {refusal.case}"] = refusal.count
        self.refusals.clear()

    def leader(self) -> str:
        """The running process that holds the Lease; empty: none."""
        for lease in self.kube.store.of(LEASES).values():
            holder = str(lease["spec"].get("holderIdentity") or "").partition(".")[0]
            if holder in self.processes and self.processes[holder].process is not None:
                return holder
        return ""

    def allocators(self) -> Iterator[tuple[str, Any]]:
        """The allocators' states, by name."""
        for name, actor in self.processes.items():
            if actor.running is not None and actor.running.allocator is not None:
                yield name, actor.running.allocator

    def close(self) -> None:
        """Kill all processes."""
        self.faults_enabled = False
        for actor in self.processes.values():
            process, actor.process = actor.process, None
            if process is not None:
                process.kill(self.loop)

    def _buses(self) -> list[MemoryBus]:
        return [actor.bus.inner for actor in self.processes.values() if actor.bus is not None]

    def alarms(self) -> list[str]:
        """Alarms that are not tolerated."""
        return [
            alarm
            for alarm in self.trace.alarms
            if not any(known in alarm for known in self.tolerated)
        ]

    async def _start_after(self, name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self.processes[name].process is None:
            self.start(name)

    async def _resume_after(self, process: Process, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if process.paused:
            self.trace.record("FAULT", f"continue {process.name}")
            process.resume(self.loop)

    async def _reconnect_after(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self.loop.time() >= self.bus_back_s - 1e-6:
            for bus in self._buses():
                bus.reconnect()

    def _ended(self, actor: SimulatedProcess, process: Process, task: "asyncio.Task[Any]") -> None:
        if process.killed or actor.process is not process:
            if not task.cancelled():
                task.exception()
            return
        error = None if task.cancelled() else task.exception()
        why = f"{actor.name} ended by itself: {error!r}"
        if isinstance(error, BaseExceptionGroup):
            why += f" {error.exceptions!r}"
        if actor.name in DRAY_PROCESSES:
            self.unexpected_exits.append(why)
        self.kill(actor.name, why)

    def _check(self, event: Any) -> None:
        self.trace.event(event)
        before = len(self.invariants.violations)
        self.invariants.check(event)
        for violation in self.invariants.violations[before:]:
            self.trace.record("INVARIANT", violation)
        if event.resource == CLAIMS and event.after and _void(event.before) != _void(event.after):
            sleeper = self.paused_until_void.pop(event.after["metadata"]["name"], None)
            if sleeper is not None:
                self.loop.run_outside(self._resume_after(sleeper, 0.001))

    def count(self, kind: str) -> None:
        """Count a fault."""
        self.counts[kind] = self.counts.get(kind, 0) + 1


def _void(obj: Object | None) -> str | None:
    annotations: dict[str, str] = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    return annotations.get(VOID)
