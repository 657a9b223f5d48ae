"""The agent's two conversations with the bus: its node's state in, its reports out."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from dray.bus.ports import (
    Bus,
    BusUnavailableError,
    Fence,
    MessageTooLargeError,
    StaleSequenceError,
    StreamMissingError,
)
from dray.bus.topology import FACTS_STREAM
from dray.domain.names import DRIVER
from dray.messages.base import (
    Delivered,
    UndecodableMessageError,
    decode,
    encode,
    subject_of,
    subject_prefix,
    token,
)
from dray.messages.events import ClaimPrepared
from dray.messages.facts import ClusterObserved, Fact, InventoryObserved, NodeObserved
from dray.runtime.backoff import Backoff
from dray_node_agent.inventory import NodeState
from dray_node_agent.kubelet.preparing import Prepared

MOST_PAUSE_S = 2.0
"""Between attempts to read or write a stream that is not there yet."""
WAITING_EVENTS = 1000
"""Events kept while the bus is away; older ones are dropped, they only make timelines."""


class NodeFollower:
    """Hands every published state of ``node`` to ``on_state``; in no pool once it is gone.

    ``on_server`` hears what the API server keeps.
    ``on_generation`` hears the generations that were ever reported for the node, also by an
    agent whose disk is lost. ``on_lost`` is called when the stream of facts is found missing
    or made anew. Health whose tombstone was published while the node was gone is reported again
    when the node is back, with a generation above the tombstone's.
    """

    def __init__(
        self,
        bus: Bus,
        node: str,
        on_state: Callable[[NodeState], None],
        on_generation: Callable[[int], None] = lambda _: None,
        on_lost: Callable[[], None] = lambda: None,
        on_server: Callable[[ClusterObserved], None] = lambda _: None,
    ) -> None:
        self._bus = bus
        self._node = node
        self._on_state = on_state
        self._on_generation = on_generation
        self._on_lost = on_lost
        self._on_server = on_server
        self._buried: InventoryObserved | None = None

    async def run(self) -> None:
        """Read for ever; a lost stream is read from its start once it is back."""
        backoff, said = Backoff(most_s=MOST_PAUSE_S), ""
        while True:
            try:
                await self._read(backoff)
            except (StreamMissingError, BusUnavailableError) as error:
                if isinstance(error, StreamMissingError):
                    self._on_lost()
                if said != str(error):
                    said = str(error)
                    structlog.get_logger().info("no facts to read just now", why=said)
            await backoff.pause()

    async def _read(self, backoff: Backoff) -> None:
        subjects: dict[str, type[Fact]] = {
            f"{subject_prefix(fact)}.{token(self._node)}": fact
            for fact in (NodeObserved, InventoryObserved)
        }
        subjects[subject_prefix(ClusterObserved)] = ClusterObserved
        async for delivered in self._bus.read(FACTS_STREAM, subjects=list(subjects)):
            backoff.reset()
            try:
                self._take(decode(delivered, subjects[delivered.subject]))
            except UndecodableMessageError as error:
                structlog.get_logger().error("fact ignored", error=str(error))

    def _take(self, fact: Fact) -> None:
        match fact:
            case ClusterObserved():
                self._on_server(fact)
            case InventoryObserved(node=self._node, deleted=True):
                self._buried = fact
            case InventoryObserved(node=self._node, revision=generation):
                self._on_generation(generation)
            case NodeObserved(node=node, deleted=True) if node.name == self._node:
                self._on_state(NodeState(self._node, node.uid))
            case NodeObserved(node=node) if node.name == self._node:
                if self._buried is not None:
                    self._on_generation(self._buried.revision)
                    self._buried = None
                self._on_state(NodeState.of(node))


class Reporter:
    """Publishes the node's health (the last one counts) and what was prepared (each one)."""

    def __init__(self, bus: Bus, node: str, source: str) -> None:
        self._bus = bus
        self._node = node
        self._source = source
        self._inventory: InventoryObserved | None = None
        self._known: int | None = None
        """Sequence of the newest report that the bus has; None: to be asked for."""
        self._inventory_changed = asyncio.Event()
        self._events: asyncio.Queue[ClaimPrepared] = asyncio.Queue(WAITING_EVENTS)
        self.dropped_events = 0

    def inventory(self, generation: int, unhealthy: tuple[str, ...]) -> None:
        """Report health with the next chance, unless it was reported already."""
        fact = InventoryObserved(
            revision=generation, node=self._node, driver=DRIVER, unhealthy=unhealthy
        )
        if fact != self._inventory:
            self._inventory = fact
            self._inventory_changed.set()

    def repeat(self) -> None:
        """Report health again: the stream was lost with what it held."""
        self._known = None
        self._inventory_changed.set()

    def prepared(self, prepared: Prepared) -> None:
        """Report a claim that became ready. Never blocks."""
        if self._events.full():
            self._events.get_nowait()
            self.dropped_events += 1
        claim = prepared.claim
        self._events.put_nowait(
            ClaimPrepared(
                claim_uid=claim.uid,
                namespace=claim.namespace,
                name=claim.name,
                node=self._node,
                cdi_device_ids=tuple(
                    dict.fromkeys(one for device in claim.devices for one in device.cdi_ids)
                ),
                env=claim.env,
                now_unix_s=prepared.now_unix_s,
                took_us=prepared.took_us,
                traceparent=claim.traceparent,
            )
        )

    async def report_inventory(self) -> None:
        """Loop: publish the newest inventory until the bus has it."""
        while True:
            await self._inventory_changed.wait()
            self._inventory_changed.clear()
            await self._until_done(self._store_inventory)

    async def report_events(self) -> None:
        """Loop: publish events in their order."""
        while True:
            event = await self._events.get()
            await self._until_done(partial(self._store_event, event))

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff(most_s=MOST_PAUSE_S)
        while True:
            try:
                await work()
            except MessageTooLargeError as error:
                structlog.get_logger().error("left out", error=str(error))
                return
            except (BusUnavailableError, StreamMissingError, StaleSequenceError) as error:
                structlog.get_logger().debug("not published yet", error=str(error))
                await backoff.pause()
            else:
                return

    async def _store_event(self, event: ClaimPrepared) -> None:
        await self._bus.publish(encode(event, source=self._source, traceparent=event.traceparent))

    async def _store_inventory(self) -> None:
        """The newest report, unless the bus has it, or a newer one.

        Fenced by the report before it: one that was on its way for long, or of an agent that
        slept while another took its place, must not come last.
        """
        fact = self._inventory
        if fact is None:
            return
        subject = subject_of(fact)
        known, self._known = self._known, None
        if known is None:
            last = await self._bus.last(FACTS_STREAM, subject)
            if last is not None and _makes_needless(last, fact):
                return
            known = 0 if last is None else last.sequence
        self._known = await self._bus.publish(
            encode(fact, source=self._source), fence=Fence(subject, known)
        )


def _makes_needless(last: Delivered, fact: InventoryObserved) -> bool:
    """Whether the bus has the report, or a newer one of another life of this agent, of which
    the follower tells the generation to be exceeded."""
    try:
        known = decode(last, InventoryObserved)
    except UndecodableMessageError:
        return False
    return known == fact or known.revision > fact.revision
