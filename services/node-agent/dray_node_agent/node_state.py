"""The node's state from the bus, and the agent's reports to it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec
import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.api.names import DRIVER
from dray.bus.ports import Bus, BusUnavailableError, MessageTooLargeError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.messages.base import UndecodableMessageError, decode, encode, subject_prefix, token
from dray.messages.events import ClaimPrepared
from dray.messages.facts import ClusterObserved, Fact, InventoryObserved, NodeObserved
from dray.messages.rpc import INVENTORY_SUBJECT, Inventory, InventoryReply
from dray.messages.usage import GpusUsed, UsedGpu
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock, SystemClock
from dray_node_agent.decisions.gpus import GpuUsage
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.kubelet.preparer import CompletedPreparation

_MAX_RETRY_DELAY_S = 2.0
"""Longest pause between attempts to use a missing stream."""
_REPORT_TIMEOUT_S = 5.0
"""Time-out of a report's answer."""
_REPEAT_S = 10.0
"""After this time a report is repeated."""
_TELL_PREPARED_AFTER_S = 0.5
"""How long prepared claims are collected before they are reported: the leader wants to know them
within two seconds."""
_TELL_PREPARED_FOR_S = 30.0
USAGE_EVERY_S = 15.0
"""How often the use of the GPUs is published."""
_MAX_QUEUED_EVENTS = 1000
"""Events kept while the bus is unavailable; older ones are dropped. They are for timelines only."""


class NodeFollower:
    """Passes every published state of ``node`` to ``on_state``; a deleted node has no pool.

    ``on_server`` gets the API server's features. ``on_generation`` gets the generations that were
    reported for the node before, also by an agent that has lost its disk since. ``on_lost`` is
    called when the facts stream is missing or was recreated. If a deleted node comes back, it
    reports a generation above the one in its inventory's tombstone.
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
        self._tombstone: InventoryObserved | None = None

    async def run(self) -> None:
        """Read until cancelled; a lost stream is read from its start once it exists again."""
        backoff, logged = Backoff(most_s=_MAX_RETRY_DELAY_S), ""
        while True:
            try:
                await self._read(backoff)
            except (StreamMissingError, BusUnavailableError) as error:
                if isinstance(error, StreamMissingError):
                    self._on_lost()
                if logged != str(error):
                    logged = str(error)
                    structlog.get_logger().info("facts can't be read, will retry", why=logged)
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
                self._apply(decode(delivered, subjects[delivered.subject]))
            except UndecodableMessageError as error:
                structlog.get_logger().error("skipped an undecodable fact", error=str(error))

    def _apply(self, fact: Fact) -> None:
        match fact:
            case ClusterObserved():
                self._on_server(fact)
            case InventoryObserved(node=self._node, deleted=True):
                self._tombstone = fact
            case InventoryObserved(node=self._node, revision=generation):
                self._on_generation(generation)
            case NodeObserved(node=node, deleted=True) if node.name == self._node:
                self._on_state(NodeState(self._node, node.uid))
            case NodeObserved(node=node) if node.name == self._node:
                if self._tombstone is not None:
                    self._on_generation(self._tombstone.revision)
                    self._tombstone = None
                self._on_state(NodeState.of(node, fact.device_order))


class InventoryRefusedError(TemporaryError):
    """The leader refused the report; it is repeated."""


class NodeReporter:
    """Reports the node's health (only the latest) and publishes ``claim.prepared`` (every one).

    ``on_generation`` gets the leader's generation if it is above the reported one.
    """

    def __init__(self, bus: Bus, node: str, source: str, clock: Clock | None = None) -> None:
        self._bus = bus
        self._clock = clock or SystemClock()
        self._registered_unix_s = 0.0
        self._node = node
        self._source = source
        self.on_generation: Callable[[int], None] = lambda _: None
        self._inventory: Inventory | None = None
        self._inventory_changed = asyncio.Event()
        self._prepared_s: dict[str, float] = {}
        """When claims were prepared (monotonic), by UID."""
        self._telling: asyncio.TimerHandle | None = None
        self._events: asyncio.Queue[ClaimPrepared] = asyncio.Queue(_MAX_QUEUED_EVENTS)
        self.dropped_events = 0

    def inventory(self, generation: int, devices: int, unhealthy: tuple[str, ...]) -> None:
        """Report the devices and their health soon, unless that was reported already."""
        self._report(
            Inventory(
                node=self._node,
                driver=DRIVER,
                generation=generation,
                devices=devices,
                unhealthy=unhealthy,
                registered_unix_s=self._registered_unix_s,
            )
        )

    def registered(self) -> None:
        """Report that the kubelet has registered the plugin: pods may wait for that, including pods
        that were prepared for a kubelet which has ended."""
        self._prepared_s.clear()
        self._registered_unix_s = self._clock.now_unix_s()
        if self._inventory is not None:
            registered = self._registered_unix_s
            self._report(msgspec.structs.replace(self._inventory, registered_unix_s=registered))

    def _report(self, inventory: Inventory) -> None:
        if inventory != self._inventory:
            self._inventory = inventory
            self._inventory_changed.set()

    def repeat(self) -> None:
        """Report health again: the stream was lost."""
        self._inventory_changed.set()

    def prepared(self, prepared: CompletedPreparation) -> None:
        """Report a prepared claim soon, and queue its event. Never blocks."""
        self._prepared_s[prepared.claim.uid] = self._clock.monotonic_s()
        if self._telling is None:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(_TELL_PREPARED_AFTER_S, self._tell_prepared)
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

    def _tell_prepared(self) -> None:
        self._telling = None
        self._inventory_changed.set()

    def _recently_prepared(self) -> tuple[str, ...]:
        since_s = self._clock.monotonic_s() - _TELL_PREPARED_FOR_S
        self._prepared_s = {uid: at for uid, at in self._prepared_s.items() if at >= since_s}
        return tuple(self._prepared_s)

    async def report_inventory(self) -> None:
        """Loop: report the latest inventory until the leader has published it, and again every
        ``_REPEAT_S``: an agent that sends no reports counts as silent."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPEAT_S):
                    await self._inventory_changed.wait()
            self._inventory_changed.clear()
            await self._until_done(self._send_inventory)

    async def report_events(self) -> None:
        """Loop: publish events in their order."""
        while True:
            event = await self._events.get()
            await self._until_done(partial(self._store_event, event))

    async def report_usage(self, usage: Callable[[], Sequence[GpuUsage]]) -> None:
        """Loop: publish the use of the GPUs. A use that can't be published now is dropped: it would
        be too old later. Only people read it, so a bus of an earlier release may refuse it."""
        known = ""
        while True:
            if gpus := tuple(_used(one) for one in usage()):
                now = GpusUsed(node=self._node, now_unix_s=self._clock.now_unix_s(), gpus=gpus)
                why = ""
                try:
                    await self._bus.publish(encode(now, source=self._source))
                except DrayError as error:
                    why = str(error)
                if why and why != known:
                    structlog.get_logger().info("the use of GPUs is not published", why=why)
                known = why
            await self._clock.sleep(USAGE_EVERY_S if gpus else 1.0)

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        backoff, known = Backoff(most_s=_MAX_RETRY_DELAY_S), ""
        while True:
            try:
                await work()
            except MessageTooLargeError as error:
                structlog.get_logger().error("message dropped", error=str(error))
                return
            except (BusUnavailableError, StreamMissingError, InventoryRefusedError) as error:
                log = structlog.get_logger()
                (log.debug if known == str(error) else log.info)(
                    "not reported, will retry", why=str(error)
                )
                known = str(error)
                await backoff.pause()
            else:
                return

    async def _store_event(self, event: ClaimPrepared) -> None:
        await self._bus.publish(encode(event, source=self._source, traceparent=event.traceparent))

    async def _send_inventory(self) -> None:
        """Send the latest report to the leader, the only writer of facts.

        Raises BusUnavailableError, InventoryRefusedError.
        """
        inventory = self._inventory
        if inventory is None:
            return
        inventory = msgspec.structs.replace(inventory, prepared=self._recently_prepared())
        subject = f"{INVENTORY_SUBJECT}.{token(self._node)}"
        answer = await self._bus.request(
            subject, msgspec.json.encode(inventory), timeout_s=_REPORT_TIMEOUT_S
        )
        try:
            reply = msgspec.json.decode(answer, type=InventoryReply)
        except msgspec.MsgspecError as error:
            raise InventoryRefusedError(f"the leader's answer can't be read: {error}") from error
        if reply.known_generation > inventory.generation:
            # The slices get a higher generation, and are then reported again.
            self.on_generation(reply.known_generation)
        elif not reply.accepted:
            raise InventoryRefusedError(f"the leader refused the report: {reply.error}")


def _used(usage: GpuUsage) -> UsedGpu:
    return UsedGpu(
        uuid=usage.uuid,
        memory_used_bytes=usage.memory_used_bytes,
        gpu_percent=usage.gpu_percent,
        memory_percent=usage.memory_percent,
        temperature_c=usage.temperature_c,
        power_w=usage.power_w,
        xid=usage.xid,
        ecc_corrected=usage.ecc_corrected,
        ecc_uncorrected=usage.ecc_uncorrected,
    )
