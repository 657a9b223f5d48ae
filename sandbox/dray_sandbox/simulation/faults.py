"""The line between one process and a server: what happens to one call on its way.

A call can be slow, fail before or after its work, be carried out long after the caller gave up,
and end or stop the caller's process before or after its work. Calls about one object may get the
same answer each time (``refusals``).
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from dray.api.errors import DrayError
from dray.kube.ports import Object, Resource
from dray_sandbox.simulation.answers import FaultyAnswer, within
from dray_sandbox.simulation.loop import CURRENT, Process

T = TypeVar("T")


class Fault(StrEnum):
    """What happens to one call."""

    NONE = "none"
    REFUSED = "refused"
    """It fails and nothing was done."""
    ANSWER_LOST = "answer-lost"
    """It was done, but fails."""
    LATE = "late"
    """It fails, and is done later."""
    CRASH_BEFORE = "crash-before"
    CRASH_AFTER = "crash-after"
    STOP_BEFORE = "stop-before"
    """The process sleeps right before its request leaves, and sends it when it wakes."""
    STOP_AFTER = "stop-after"
    """It sleeps when the answer is there, and acts upon it when it wakes."""
    SLOW = "slow"
    """Seconds until it is done."""
    SLOW_ANSWER = "slow-answer"
    """Done at once, answered after seconds."""


class FaultPolicy(Protocol):
    """Decides the faults of calls, from a seed."""

    def answer(
        self, process: Process, call: str, what: str, namespace: str, payload: bytes
    ) -> FaultyAnswer | None:
        """How such calls are answered from now on; None: they are served."""

    def shown(self, process: Process, resource: Resource, obj: Object) -> Object:
        """An object as the process gets it."""

    def fault(self, process: Process, call: str, what: str) -> Fault:
        """The fault of this call."""

    def latency_s(self) -> float:
        """Of an ordinary call, one way."""

    def long_s(self) -> float:
        """Of a slow one."""

    def crash(self, process: Process, why: str) -> None:
        """End the process now."""

    def stop(self, process: Process) -> None:
        """Stop the process for a while."""

    def kube_away_s(self) -> float:
        """How long the API server is still away; 0 or less: it is there."""

    def believes(self) -> bool:
        """Whether every request for a lease is granted."""

    def lag_s(self, process: Process) -> float:
        """How long what the process reads from the bus is held up; 0 or less: not at all."""


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
        """``answered`` makes the error of an answer to a method about something."""
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
        """Make a call with the policy's fault; the server gives it up after ``timeout_s``."""
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
            _outside(self._later(self._arrival_s(way_s), work))
            await self.travel()
            raise self._error(f"{method} {what}: no answer in time")
        await _until(self._arrival_s(way_s))
        self._check(method)
        if fault is Fault.REFUSED:
            raise self._error(f"{method} {what}: refused by fate")
        if fault is Fault.CRASH_BEFORE:
            await self._crash(f"before {method} {what}")
        if fault is Fault.STOP_BEFORE:
            await self._sleep_through()
        result = await work()
        if fault is Fault.CRASH_AFTER:
            await self._crash(f"after {method} {what}")
        if fault is Fault.STOP_AFTER:
            await self._sleep_through()
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
        """Everything of a call that is answered otherwise, but for the answer itself."""
        await _until(self._arrival_s(self._policy.latency_s()))
        self._check(method)
        if answer.is_carried_out:
            await asyncio.gather(work(), return_exceptions=True)
        await asyncio.sleep(answer.after_s + self._policy.latency_s())
        self._check(method)

    def believes(self) -> bool:
        """See ``FaultPolicy.believes``."""
        return self._policy.believes()

    def shown(self, resource: Resource, obj: Object) -> Object:
        """See ``FaultPolicy.shown``."""
        return self._policy.shown(self.process, resource, obj)

    async def travel(self) -> None:
        """The way of one message to this process."""
        await asyncio.sleep(self._policy.latency_s())

    async def until_caught_up(self) -> None:
        """Wait while what the process reads from the bus is held up."""
        while (lag_s := self._policy.lag_s(self.process)) > 0:  # noqa: ASYNC110 it is virtual time
            await asyncio.sleep(lag_s)

    async def until_back(self) -> None:
        """Wait while the API server is away."""
        while (away_s := self._policy.kube_away_s()) > 0:  # noqa: ASYNC110 it is virtual time
            await asyncio.sleep(away_s)

    def _check(self, method: str) -> None:
        if self.process.dead or (self._kind == "kube" and self._policy.kube_away_s() > 0):
            raise self._error(f"{method}: no connection")

    def _arrival_s(self, way_s: float) -> float:
        """Calls of one connection to the bus reach the server in their order."""
        arrival_s = asyncio.get_running_loop().time() + way_s
        if self._kind == "bus":
            arrival_s = self._last_s = max(arrival_s, self._last_s + 1e-6)
        return arrival_s

    async def _sleep_through(self) -> None:
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


def _outside(work: Any) -> None:
    """Run in no process: what a server does has begun and goes on."""
    token = CURRENT.set(None)
    try:
        task = asyncio.get_running_loop().create_task(work)
        _kept.add(task)
        task.add_done_callback(_kept.discard)
    finally:
        CURRENT.reset(token)


_kept: set[asyncio.Task[Any]] = set()
