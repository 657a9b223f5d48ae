"""A replica: facts, logs and leases into the core; appends and commands out of it.

Everything runs in one event loop, and only ``_hand`` and ``_fold`` enter the core, one event at a
time. Appends overlap, in the order of the calls.
"""

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any
from uuid import uuid4

import structlog

from dray.api.errors import DrayError
from dray.bus.ports import (
    Bus,
    BusUnavailableError,
    StaleSequenceError,
    StreamMissingError,
)
from dray.messages.base import UndecodableMessageError, encode
from dray.messages.commands import VoidClaim
from dray.messages.decisions import log_stream
from dray.runtime.backoff import Backoff
from dray_allocator.core.handle import handle, is_followed_by_more, is_searching
from dray_allocator.service.facts_consumer import FactsReader, id_of
from dray_allocator.service.leases import LeaseHolder
from dray_allocator.service.metrics import AllocatorMetrics
from dray_allocator.service.tracing import Traces
from dray_allocator.service.wire import OwnRecords, outgoing
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    AppendFailed,
    Continue,
    DoublyAllocated,
    Effect,
    Event,
    Follow,
    LogLost,
    LogShortened,
    RecordSeen,
    RecordUndecodable,
    Send,
    StopServing,
    Unfollow,
)
from dray_allocator.values.undecodable import UndecodableFact

_WIND_UP_S = 3.0
"""How long pending appends may take when the process ends."""
_REFUSED_S = 1.0
"""Pause before a record that the bus refused is decided again."""


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
        self._instance = state.rules.writer
        self._source = f"/allocator/{self._instance}"
        self._log = structlog.get_logger()
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._searching: asyncio.Task[None] | None = None
        self._facts = FactsReader(bus, state, self._fold, self._hand, self._undecodable)
        self._serving = LeaseHolder(
            bus,
            state,
            self._hand,
            subscribe=self._facts.subscribe,
            lease_ttl_s=lease_ttl_s,
            lease_renewal_s=lease_renewal_s,
        )
        self._identities = (f"{self._instance}.{uuid4().hex}.{n}" for n in count(1))
        self._traces = Traces()
        self._own = OwnRecords()
        self._last: dict[str, str] = {}
        """Per domain, the identity of the last append."""
        self._refused_s: dict[str, float] = {}
        """Per domain, when one of its records was refused last, by the loop's clock."""
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

    async def _follow_log(self, domain: str, epoch: int, start: int) -> None:
        stream = log_stream(domain, epoch)
        backoff = Backoff(0.05, 2.0)
        created, lost = "", False
        undecodable = 0
        """Sequence of the first record that can't be decoded; nothing from there on is folded."""
        while True:
            try:
                state = await self._bus.state(stream)
                created = created or (state.created if state is not None else "")
                if lost and (state is None or state.created != created):
                    await backoff.pause()
                    continue
                if lost:
                    lost, undecodable = False, 0
                    self._serving.give_up(domain)
                    await self._hand(LogShortened(domain, epoch))
                is_there = state is not None and state.last_sequence >= start
                async for delivered in self._bus.read(stream, start=start if is_there else 1):
                    if 0 < undecodable <= delivered.sequence:
                        continue
                    try:
                        record = self._own.record_of(domain, epoch, delivered)
                    except UndecodableMessageError as error:
                        undecodable = delivered.sequence
                        self._metrics.undecodable.inc()
                        await self._hand(RecordUndecodable(domain, epoch, str(error)))
                        self._serving.hurry()
                        continue
                    self._traces.folded(record, delivered.headers, delivered.time_unix_s)
                    more = delivered.pending > 0
                    seen = RecordSeen(domain, epoch, delivered.sequence, record, more)
                    await self._hand(seen, id_of(delivered))
            except StreamMissingError as error:
                self._log.error("a decision log is lost", stream=stream, why=str(error))
                lost = True
                await self._hand(LogLost(domain, epoch))
            except DrayError as error:
                self._log.warning("a log can't be read", stream=stream, why=str(error))
            await backoff.pause()

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

    async def _hand(self, event: Event, cause: str = "") -> None:
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
        self._serving.look()

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
                    self._spawn(self._append(effect, *self._chain(effect), cause))
                case Send(command=command):
                    self._spawn(self._send(command, cause))
                case Follow(domain=domain, epoch=epoch, start=start):
                    self._unfollow(domain)
                    task = asyncio.create_task(self._follow_log(domain, epoch, start))
                    task.add_done_callback(self._ended)
                    self._followers[domain] = task
                case Unfollow(domain=domain):
                    self._unfollow(domain)
                case StopServing(domain=domain):
                    self._log.info("a log was trimmed; reading it from a checkpoint", domain=domain)
                    self._serving.give_up(domain)
                    self._own.forget(domain)
                case DoublyAllocated():
                    self._metrics.oversold.inc()
                    self._log.error(
                        "a device is allocated twice, or its budget was lowered below its use",
                        device=effect.device,
                        claim=effect.claim_uid,
                        detail=effect.detail,
                    )

    def _chain(self, effect: Append) -> tuple[int, str, str]:
        """The term of serving, the append's identity, and that of the append before it."""
        after = self._last.get(effect.domain, "") if effect.chained else ""
        identity = self._last[effect.domain] = next(self._identities)
        return self._serving.term_of(effect.domain), identity, after

    def _unfollow(self, domain: str) -> None:
        self._serving.give_up(domain)
        self._own.forget(domain)
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

    async def _append(
        self, effect: Append, term: int, identity: str, after: str, cause: str
    ) -> None:
        record = effect.record
        try:
            with self._traces.appending(record) as traceparent:
                message = outgoing(
                    record, self._source, traceparent, identity=identity, cause=cause
                )
                self._own.written(effect.expected_last + 1, message.payload, record)
                await self._bus.append(
                    message, expected_last=effect.expected_last, identity=identity, after=after
                )
        except StaleSequenceError as error:
            self._metrics.conflicts.inc()
            await self._failed(effect, term, str(error))
        except BusUnavailableError as error:
            await self._failed(effect, term, str(error))
        except StreamMissingError as error:
            self._log.error("a decision log is lost", domain=effect.domain, why=str(error))
            await self._hand(LogLost(effect.domain, effect.epoch))
        except DrayError as error:
            self._log.error("a record is refused", domain=effect.domain, why=str(error))
            self._refused_s[effect.domain] = asyncio.get_running_loop().time()
            await self._failed(effect, term, str(error))
        else:
            self._metrics.appended(record)

    async def _failed(self, effect: Append, term: int, reason: str) -> None:
        """Forget the appends built on it, once per term of serving; then read and serve again.

        After a refusal this waits ``_REFUSED_S``, for the appends built on the refused one, too.
        """
        if (refused_s := self._refused_s.get(effect.domain)) is not None:
            await asyncio.sleep(refused_s + _REFUSED_S - asyncio.get_running_loop().time())
        if self._serving.term_of(effect.domain) not in (term, 0):  # 0: not serving.
            return
        self._log.warning("an append failed; reading the log again", why=reason)
        self._serving.give_up(effect.domain)
        await self._hand(AppendFailed(effect.domain, effect.epoch, reason))

    async def _send(self, command: VoidClaim, cause: str) -> None:
        message = encode(command, source=self._source, causation_id=cause)
        try:
            await self._bus.publish(message)
        except DrayError as error:
            self._log.warning("a command was not sent; it will be repeated", why=str(error))
