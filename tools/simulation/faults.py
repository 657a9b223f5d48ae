"""Faults of single calls from a process to a server.

A call can be slow, fail before or after it is carried out, be carried out after its caller gave
up, and kill or stop the caller's process before or after. Calls about one object may get the same
answer each time (``refusals``).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from dray.api.errors import DrayError
from dray.kube.ports import Object, Resource
from tools.simulation.answers import FaultyAnswer, within
from tools.simulation.loop import Process, running_loop

T = TypeVar("T")


class Fault(StrEnum):
    """A fault of one call."""

    NONE = "none"
    REFUSED = "refused"
    """It fails and is not carried out."""
    ANSWER_LOST = "answer-lost"
    """It is carried out, but fails."""
    LATE = "late"
    """It fails, and is carried out later."""
    CRASH_BEFORE = "crash-before"
    CRASH_AFTER = "crash-after"
    STOP_BEFORE = "stop-before"
    """The process is stopped before it sends the request, which it sends when it continues."""
    STOP_AFTER = "stop-after"
    """The process is stopped when the answer arrives, and handles it when it continues."""
    SLOW = "slow"
    """The request takes seconds."""
    SLOW_ANSWER = "slow-answer"
    """The answer takes seconds."""


class FaultPolicy(Protocol):
    """Determines the faults of calls from a seed."""

    def answer(
        self, process: Process, call: str, what: str, namespace: str, payload: bytes
    ) -> FaultyAnswer | None:
        """A refusal's answer to the call; None: it is served."""

    def as_read(self, process: Process, resource: Resource, obj: Object) -> Object:
        """The object that the process reads."""

    def fault(self, process: Process, call: str, what: str) -> Fault:
        """The fault of this call."""

    def latency_s(self) -> float:
        """One-way latency of an ordinary call."""

    def long_s(self) -> float:
        """One-way latency of a slow call."""

    def crash(self, process: Process, why: str) -> None:
        """Kill the process."""

    def stop(self, process: Process) -> None:
        """Stop the process for a while."""

    def kube_away_s(self) -> float:
        """Seconds until the API server is back; 0 or less: it is available."""

    def grants_every_lease(self) -> bool:
        """Whether every request for a lease is granted."""

    def lag_s(self, process: Process) -> float:
        """Seconds until the process reads new messages from the bus; 0 or less: now."""


class FaultyConnection:
    """Applies the policy's faults to the calls of a process."""

    def __init__(
        self,
        process: Process,
        policy: FaultPolicy,
        error: Callable[[str], Exception],
        kind: str,
        answered: Callable[[FaultyAnswer, str, str], DrayError],
    ) -> None:
        """``answered`` converts an answer to a method and its subject into an error."""
        self.process = process
        self._policy = policy
        self._error = error
        self._kind = kind
        self._answered = answered
        self._last_s = 0.0

    async def call(
        self,
        method: str,
        what: str,
        work: Callable[[], Awaitable[T]],
        *,
        namespace: str = "",
        payload: bytes = b"",
        timeout_s: float | None = None,
    ) -> T:
        """Make a call with the policy's fault; ``timeout_s`` is the server-side timeout."""
        self._check(method)
        call = f"{self._kind}.{method}"
        answer = self._policy.answer(self.process, call, what, namespace, payload)
        if answer is not None:
            answer = within(answer, timeout_s)
            await self._answer(answer, method, work)
            raise self._answered(answer, method, what)
        fault = self._policy.fault(self.process, call, what)
        way_s = (
            self._policy.long_s() if fault in (Fault.SLOW, Fault.LATE) else self._policy.latency_s()
        )
        if fault is Fault.LATE:
            running_loop().run_outside(self._later(self._arrival_s(way_s), work))
            await self.travel()
            raise self._error(f"{method} {what}: no answer in time")
        await _until(self._arrival_s(way_s))
        self._check(method)
        if fault is Fault.REFUSED:
            raise self._error(f"{method} {what}: refused by the simulation")
        if fault is Fault.CRASH_BEFORE:
            await self._crash(f"before {method} {what}")
        if fault is Fault.STOP_BEFORE:
            await self._stop_process()
        result = await work()
        if fault is Fault.CRASH_AFTER:
            await self._crash(f"after {method} {what}")
        if fault is Fault.STOP_AFTER:
            await self._stop_process()
        await asyncio.sleep(
            self._policy.long_s() if fault is Fault.SLOW_ANSWER else self._policy.latency_s()
        )
        self._check(method)
        if fault is Fault.ANSWER_LOST:
            raise self._error(f"{method} {what}: the answer is lost")
        return result

    async def _answer(
        self, answer: FaultyAnswer, method: str, work: Callable[[], Awaitable[Any]]
    ) -> None:
        """The delays and effects of a call with a faulty answer."""
        await _until(self._arrival_s(self._policy.latency_s()))
        self._check(method)
        if answer.is_carried_out:
            await asyncio.gather(work(), return_exceptions=True)
        await asyncio.sleep(answer.after_s + self._policy.latency_s())
        self._check(method)

    def grants_every_lease(self) -> bool:
        """See ``FaultPolicy.grants_every_lease``."""
        return self._policy.grants_every_lease()

    def as_read(self, resource: Resource, obj: Object) -> Object:
        """See ``FaultPolicy.as_read``."""
        return self._policy.as_read(self.process, resource, obj)

    async def travel(self) -> None:
        """Wait for the latency of one message."""
        await asyncio.sleep(self._policy.latency_s())

    async def wait_until_caught_up(self) -> None:
        """Wait while the process' reads from the bus are delayed."""
        while (lag_s := self._policy.lag_s(self.process)) > 0:  # noqa: ASYNC110 it is virtual time
            await asyncio.sleep(lag_s)

    async def wait_until_back(self) -> None:
        """Wait while the API server is unavailable."""
        while (away_s := self._policy.kube_away_s()) > 0:  # noqa: ASYNC110 it is virtual time
            await asyncio.sleep(away_s)

    def _check(self, method: str) -> None:
        if self.process.killed or (self._kind == "kube" and self._policy.kube_away_s() > 0):
            raise self._error(f"{method}: no connection")

    def _arrival_s(self, way_s: float) -> float:
        """The arrival at the server; calls of one bus connection stay in order."""
        arrival_s = asyncio.get_running_loop().time() + way_s
        if self._kind == "bus":
            arrival_s = self._last_s = max(arrival_s, self._last_s + 1e-6)
        return arrival_s

    async def _stop_process(self) -> None:
        self._policy.stop(self.process)
        await asyncio.sleep(0)

    async def _crash(self, why: str) -> None:
        self._policy.crash(self.process, why)
        await asyncio.Event().wait()

    async def _later(self, arrival_s: float, work: Callable[[], Awaitable[Any]]) -> None:
        await _until(arrival_s)
        await asyncio.gather(work(), return_exceptions=True)


async def _until(at_s: float) -> None:
    await asyncio.sleep(at_s - asyncio.get_running_loop().time())


_WRITES = ("patch", "update", "create", "bind", "delete", "append", "publish", "ack")


@dataclass(slots=True)
class FaultRates:
    """Rates of faults per call, determined by the seed."""

    rates: dict[Fault, float]
    victims: tuple[str, ...]
    """Prefixes of the processes' names."""

    @classmethod
    def drawn(cls, draw: random.Random) -> "FaultRates":
        """Choose some faults and some processes."""
        faults: list[Fault] = [fault for fault in Fault if fault is not Fault.NONE]
        chosen = draw.sample(faults, draw.randint(1, len(faults)))
        scale = draw.choice((0.002, 0.01, 0.03, 0.08))
        rates: dict[Fault, float] = {fault: scale * draw.uniform(0.2, 1.0) for fault in chosen}
        for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.STOP_BEFORE, Fault.STOP_AFTER):
            if fault in rates:
                rates[fault] = min(rates[fault] / 4, 0.004)
        victims = draw.choice(
            (("cc", "alloc"), ("cc",), ("cc", "alloc", "agent"), ("cc", "alloc", "agent", "k"))
        )
        return cls(rates, victims)


def weight_of(call: str, what: str) -> float:
    """Weight of a call's faults: low for periodic calls, high for writes."""
    if ".tick." in what or what.startswith(("leases", "domain.")):
        return 0.1
    return 2.0 if call.rpartition(".")[2] in _WRITES else 0.3


@dataclass(frozen=True, slots=True)
class TriggeredFault:
    """A fault of the next matching call, by default a stop of its process before the request."""

    processes: str
    """Prefix of their names."""
    call: str
    what: str
    """Prefix of the call's subject."""
    sleep_s: float
    then: Callable[[str], Coroutine[Any, Any, None]]
    """The events that happen meanwhile; called with the call's subject."""
    wakes_when_void: bool = False
    """Whether the process continues when the call's claim is voided."""
    fault: Fault = Fault.STOP_BEFORE

    def matches(self, process: str, call: str, what: str) -> bool:
        """Whether the call triggers the fault."""
        return (
            call == self.call and process.startswith(self.processes) and what.startswith(self.what)
        )
