"""Reads every domain's decision log and hands its decisions to the executor.

A record of a newer release that this one can't decode is skipped and reported. No device is
allocated twice by that: a decision that is not carried out is voided after a while, and an
execution whose end was skipped stops at the claim's void. But the pods of the record wait, and a
node that it releases stays in its pool, until a claim-controller of that release leads.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.bus.dead import dead_letter
from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.kube.ports import NODES, POOLS, ConflictError, KubeError, NotFoundError
from dray.messages.base import Delivered
from dray.messages.checkpoints import is_first_part
from dray.messages.decisions import (
    LOG_PREFIX,
    AnyRecord,
    Decided,
    NodeLeft,
    Waiting,
    decode_record,
    log_stream,
)
from dray.messages.facts import DomainObserved
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.changes import Unread, enter
from dray_claim_controller.execution.decisions.executions import Execution, OpenExecutions
from dray_claim_controller.informers import Informers
from dray_claim_controller.logs.epochs import Epochs, PoolInUseError
from dray_claim_controller.tracing import MESSAGE_ID, TRACEPARENT
from dray_claim_controller.work_queue import FairWorkQueue

_CLOSED_EVERY_S: Final = 10.0
"""The longest time between two tries to close a domain."""


class Followers:
    """One reader per pool. The reader of a lost log opens its next epoch."""

    def __init__(
        self,
        bus: Bus,
        informers: Informers,
        epochs: Epochs,
        clock: Clock,
        *,
        decided: Callable[[Execution], None],
        waiting: Callable[[Waiting], None],
        nodes_of: Callable[[str], Iterable[str]] = lambda _: (),
        published: Callable[[str], DomainObserved | None] = lambda _: None,
    ) -> None:
        """``nodes_of``: the nodes that are in a domain, or are leaving it, as published.
        ``published``: the last fact about a domain."""
        self.executions: dict[str, OpenExecutions] = {}
        self.undecodable = 0
        """Records that were skipped in this term."""
        self._bus = bus
        self._informers = informers
        self._epochs = epochs
        self._clock = clock
        self._decided = decided
        self._waiting = waiting
        self._nodes_of = nodes_of
        self._published = published
        self._unread: Unread[str] = Unread()
        """Pools that came, changed or went, and those whose log is to be opened again."""
        self._unread_nodes: Unread[str] = Unread()
        self._left_by: dict[str, dict[str, None]] = {}
        """By node, the domains whose logs say that it has left them."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closings = FairWorkQueue(
            clock, self._close, name="close", group_of=lambda domain: domain, most_s=_CLOSED_EVERY_S
        )
        self._read: dict[str, OpenExecutions] = {}
        """By domain, for logs that are read and not being opened."""

    async def run(self) -> None:
        """Follow the logs of all pools, and close those of deleted pools, concurrently, until
        cancelled."""
        pools = self._informers.cache.plain[POOLS.plural]
        # A pool may have been created again since the term began to close it.
        for domain in sorted({*self._epochs.closing, *self._epochs.orphans()}):
            self._closings.add(domain)
        cache = self._informers.cache
        self._unread.add(pools)
        changes = cache.changed_pools.subscribed(self._unread)
        with changes, cache.changed_nodes.subscribed(self._unread_nodes):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._closings.run(), name="close-domains")
                while True:
                    for domain in self._unread.take():
                        if domain not in pools and domain in self._tasks:
                            await self._unfollow(domain)
                        elif domain in pools and not self._is_served(domain):
                            task = group.create_task(self._follow(domain), name=f"log-{domain}")
                            self._tasks[domain] = task
                    for node in self._unread_nodes.take():
                        self._forget_node(node)
                    if not self._unread:
                        await self._informers.changed()

    def _is_served(self, domain: str) -> bool:
        return domain in self._tasks or domain in self._epochs.closing

    def _forget_node(self, node: str) -> None:
        """Forget which domains a node has left, if it is gone."""
        if node not in self._informers.cache.plain[NODES.plural]:
            for domain in self._left_by.pop(node, {}):
                if (executions := self.executions.get(domain)) is not None:
                    executions.left.pop(node, None)

    def left(self, domain: str, node: str) -> int:
        """Highest node-left revision of a node in a domain's log; 0: none."""
        executions = self.executions.get(domain)
        return 0 if executions is None else executions.left.get(node, 0)

    async def check(self) -> None:
        """Open the next epoch of logs that are gone or end before a sequence known to be stored.
        Their reader may not notice, because it may not have read so far.

        Few requests ask about all logs; only those that seem to be short are asked about again.
        """
        if not self._read:
            return
        ends = {state.name: state.last_sequence for state in await self._bus.streams(LOG_PREFIX)}
        for domain, executions in tuple(self._read.items()):
            if ends.get(log_stream(domain, executions.epoch), 0) < _end_of(executions):
                # A log that has no leading server now must not hide the others.
                with contextlib.suppress(BusUnavailableError):
                    await self._check(domain)

    async def _check(self, domain: str) -> None:
        if (executions := self._read.get(domain)) is None:
            return
        state = await self._bus.state(log_stream(domain, executions.epoch))
        short = state is None or state.last_sequence < _end_of(executions)
        if short and self._read.get(domain) is executions and domain in self._tasks:
            structlog.get_logger().warning("a decision log has lost records", domain=domain)
            self._epochs.lost[domain] = executions.epoch
            self._tasks.pop(domain).cancel()
            self._look_again(domain)

    def _look_again(self, domain: str) -> None:
        """Have the domain looked at again: its log may have to be followed."""
        self._unread.add((domain,))
        self._informers.wake()

    def finished(self, execution: Execution) -> None:
        """The execution needs no more work."""
        if (executions := self.executions.get(execution.domain)) is not None:
            executions.finish(execution.decision.pod_uid, execution.attempt)

    async def _unfollow(self, domain: str) -> None:
        task = self._tasks.pop(domain)
        task.cancel()
        await asyncio.wait([task])
        self.executions.pop(domain, None)
        self._epochs.begin_closing(domain)
        self._closings.add(domain)

    async def _close(self, domain: str) -> None:
        try:
            await self._epochs.close(domain)
        except PoolInUseError as error:
            structlog.get_logger().warning("a pool can't be closed", why=str(error))
            raise
        self._mark_nodes(self._nodes_of(domain))
        self._look_again(domain)

    async def _follow(self, domain: str) -> None:
        backoff = Backoff(0.05, 5.0)
        while True:
            try:
                await self._follow_epoch(domain, backoff)
            except ConflictError as error:
                # Another write of the pool's status came in between: read it again.
                structlog.get_logger().debug("not opened yet", domain=domain, error=str(error))
            except NotFoundError:
                structlog.get_logger().debug("the pool is gone", domain=domain)
            except (StreamMissingError, TemporaryError, KubeError) as error:
                structlog.get_logger().warning(
                    "the decision log can't be read", domain=domain, error=str(error)
                )
            await self._clock.sleep(backoff.next_s())

    async def _follow_epoch(self, domain: str, backoff: Backoff) -> None:
        known = self.executions.get(domain)
        seen = (known.epoch, max(known.sequence, known.stored)) if known is not None else (0, 0)
        epoch = await self._epochs.open(domain, *seen)
        start = 1
        if known is not None and known.epoch == epoch:
            executions, start = known, known.sequence + 1
        else:
            executions = OpenExecutions(domain, epoch)
            if (fact := self._published(domain)) is not None and fact.epoch == epoch:
                executions.checkpoints, start = fact.checkpoints, fact.start
        self.executions[domain] = executions
        self._mark_nodes(self._nodes_of(domain))
        stream = log_stream(domain, epoch)
        state = await self._bus.state(stream)
        if state is None:
            raise BusUnavailableError(f"stream {stream} vanished while it was opened")
        history = state.last_sequence
        executions.stored = max(executions.stored, history)
        if executions.sequence >= history:
            self._submit_all(executions)
        self._read[domain] = executions
        try:
            async for delivered in self._bus.read(stream, start=start):
                backoff.reset()
                try:
                    record = decode_record(delivered.payload)
                except msgspec.MsgspecError as error:
                    await self._pass_over(executions, delivered, str(error))
                    record = None
                is_start = executions.sequence == 0 and 1 < start == delivered.sequence
                if is_start and record is not None and not is_first_part(record):
                    raise StreamMissingError(
                        f"record {start} of {stream} is not the checkpoint that was published: "
                        "the log lost its newest records and has grown again"
                    )
                self._fold(executions, delivered, record, live=history)
        except StreamMissingError:
            self._epochs.lost[domain] = epoch
            raise
        finally:
            if self._read.get(domain) is executions:
                del self._read[domain]

    async def _pass_over(
        self, executions: OpenExecutions, delivered: Delivered, error: str
    ) -> None:
        self.undecodable += 1
        why = (
            f"claim-controller skips record {delivered.sequence} of {delivered.stream}: "
            f"{error}; was it written by another version of dray?"
        )
        structlog.get_logger().error("a record is skipped", domain=executions.domain, why=why)
        with contextlib.suppress(DrayError):
            await self._bus.publish(dead_letter(delivered, why))

    def _fold(
        self,
        executions: OpenExecutions,
        delivered: Delivered,
        record: AnyRecord | None,
        *,
        live: int,
    ) -> None:
        """``record``: None if it is skipped."""
        sequence, begins = delivered.sequence, False
        if record is None:
            executions.pass_over(sequence)
        else:
            headers = delivered.headers
            traceparent, cause = headers.get(TRACEPARENT, ""), headers.get(MESSAGE_ID, "")
            begins = executions.fold(sequence, record, traceparent, cause)
        if begins:
            for node in executions.left:
                enter(self._left_by, node, executions.domain)
            self._mark_nodes(executions.left)
        if sequence == live or (begins and sequence > live):
            self._submit_all(executions)
        elif sequence > live:
            for pod_uid in executions.decided if isinstance(record, Decided) else ():
                self._decided(executions.open[pod_uid])
            if isinstance(record, Waiting):
                for one in record.by_pod():
                    self._waiting(one)
        if isinstance(record, NodeLeft):
            enter(self._left_by, record.node, executions.domain)
            self._forget_node(record.node)
            self._mark_nodes((record.node,))

    def _submit_all(self, executions: OpenExecutions) -> None:
        for execution in list(executions.open.values()):
            self._decided(execution)
        for waiting in executions.waiting.values():
            self._waiting(waiting)

    def _mark_nodes(self, names: Iterable[str]) -> None:
        """Mark nodes that may be free to enter their new pools."""
        for name in names:
            self._informers.cache.mark(FactKey("node", name))
        self._informers.wake()


def _end_of(executions: OpenExecutions) -> int:
    """The last sequence of a log that is known to be stored."""
    return max(executions.stored, executions.sequence)
