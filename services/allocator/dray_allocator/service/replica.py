"""A replica: facts, logs and leases into the core; appends and commands out of it.

Everything runs in one event loop, and only ``_dispatch`` and ``_fold`` enter the core, one event at
a time.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from dray.api.errors import DrayError
from dray.bus.ports import Bus
from dray.messages.base import encode
from dray.messages.commands import VoidClaim
from dray_allocator.core.handle import handle, is_followed_by_more, is_searching
from dray_allocator.service.decision_logs import DecisionLogs
from dray_allocator.service.facts_consumer import FactsReader
from dray_allocator.service.leases import LeaseHolder
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    Continue,
    DoublyAllocated,
    Effect,
    Event,
    Follow,
    Send,
    StopServing,
    Unfollow,
)
from dray_allocator.values.undecodable import UndecodableFact

_WIND_UP_S = 3.0
"""How long pending appends may take when the process ends."""


class Replica:
    """One replica. ``run`` serves until cancelled; ``stop`` releases the leases."""

    def __init__(
        self,
        bus: Bus,
        state: AllocatorState,
        metrics: AllocatorMetrics,
        *,
        lease_ttl_s: float = 3.0,
        lease_renewal_s: float = 1.0,
    ) -> None:
        self._bus = bus
        self._state = state
        self._metrics = metrics
        self._instance = state.options.writer
        self._source = f"/allocator/{self._instance}"
        self._log = structlog.get_logger()
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._searching: asyncio.Task[None] | None = None
        self._facts = FactsReader(bus, state, self._fold, self._dispatch, self._undecodable)
        self._serving = LeaseHolder(
            bus,
            state,
            self._dispatch,
            subscribe=self._facts.subscribe,
            lease_ttl_s=lease_ttl_s,
            lease_renewal_s=lease_renewal_s,
        )
        self._logs = DecisionLogs(
            bus,
            state,
            metrics,
            self._dispatch,
            give_up=self._serving.give_up,
            hurry=self._serving.hurry,
        )
        self._broken = asyncio.Event()
        self._error: BaseException | None = None
        """The error of a background task."""

    @property
    def problem(self) -> str | None:
        """Why this replica can't decide anything, or None."""
        if not self._state.facts.synced:
            return "the facts are not complete yet"
        left = self._serving.undecodable
        if left and len(left) == len(self._state.domains) + len(self._state.unread_domains):
            return f"no pool can be served: {next(iter(left.values()))}"
        return None

    @property
    def undecodable(self) -> str | None:
        """Pools that this replica leaves to others, and why, or None."""
        left = self._serving.undecodable
        if not left:
            return None
        return f"pools left to other replicas: {', '.join(left)}: {next(iter(left.values()))}"

    async def run(self) -> None:
        """Fold and serve until cancelled; then finish the pending appends.

        Raises the error of a background task: without it nothing would be decided any more.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._facts.run(), name="facts")
                group.create_task(self._serving.run(), name="leases")
                group.create_task(self._until_broken(), name="effects")
        finally:
            await self._wind_up()

    async def stop(self) -> None:
        """Release the leases, after ``run``."""
        await self._serving.release()

    async def _until_broken(self) -> None:
        await self._broken.wait()
        if self._error is not None:
            raise self._error

    async def _wind_up(self) -> None:
        await self._serving.stand_by()
        for follower in self._followers.values():
            follower.cancel()
        if ending := [*self._followers.values(), *self._tasks]:
            _, late = await asyncio.wait(ending, timeout=_WIND_UP_S)
            for task in late:
                task.cancel()

    def _undecodable(self, fact: UndecodableFact) -> None:
        """Leave the pools that depend on the fact to other replicas."""
        self._metrics.undecodable.inc()
        if fact.stops:
            self._serving.hurry()
        else:
            self._log.warning(
                "a fact that can't be decoded is skipped", subject=fact.subject, why=fact.why
            )

    def _fold(self, event: Event) -> None:
        """Hand an event that is followed by more to the core."""
        if effects := handle(self._state, event):
            self._perform(effects, "")

    async def _dispatch(self, event: Event, cause: str = "") -> None:
        """Hand an event to the core, and continue until no active pod is left.

        ``cause``: id of the event's message.
        """
        self._perform(handle(self._state, event), cause)
        is_last = not is_followed_by_more(event)
        while is_last and self._state.unfinished:
            if is_searching(self._state):
                self._search()
                break
            await asyncio.sleep(0)
            self._perform(handle(self._state, Continue()), cause)
        if self._serving.skipped:
            self._serving.retry_skipped(event)

    def _search(self) -> None:
        """Continue long searches between other events."""
        if self._searching is None or self._searching.done():
            self._searching = self._spawn(self._search_on())

    async def _search_on(self) -> None:
        while self._state.unfinished:
            await asyncio.sleep(0)
            self._perform(handle(self._state, Continue()), "")

    def _perform(self, effects: list[Effect], cause: str) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self._spawn(self._logs.append(effect, *self._logs.chain(effect), cause))
                case Send(command=command):
                    self._spawn(self._send(command, cause))
                case Follow(domain=domain, epoch=epoch, start=start):
                    self._unfollow(domain)
                    task = asyncio.create_task(self._logs.follow(domain, epoch, start))
                    task.add_done_callback(self._ended)
                    self._followers[domain] = task
                case Unfollow(domain=domain):
                    self._unfollow(domain)
                    self._metrics.remove(domain)
                case StopServing(domain=domain):
                    self._log.info("a log was trimmed; reading it from a checkpoint", domain=domain)
                    self._serving.give_up(domain)
                    self._logs.forget(domain)
                case DoublyAllocated():
                    self._metrics.oversold.inc()
                    self._log.error(
                        "a device is allocated twice, or its budget was lowered below its use",
                        device=effect.device,
                        claim=effect.claim_uid,
                        detail=effect.detail,
                    )

    def _unfollow(self, domain: str) -> None:
        self._serving.give_up(domain)
        self._logs.forget(domain)
        if (task := self._followers.pop(domain, None)) is not None:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("a background task failed", error=repr(error))
            self._error = self._error or error
            self._broken.set()

    async def _send(self, command: VoidClaim, cause: str) -> None:
        message = encode(command, source=self._source, causation_id=cause)
        try:
            await self._bus.publish(message)
        except DrayError as error:
            self._log.warning("a command was not sent; it will be repeated", why=str(error))
