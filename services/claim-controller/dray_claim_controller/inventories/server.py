"""Takes node-agents' reports while leading, and publishes those that are their nodes' own."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec
import structlog

from dray.api.names import DRIVER, GPU_LABEL
from dray.bus.ports import Bus, MessageTooLargeError, Request
from dray.kube.ports import NODES, KubeError
from dray.messages.facts import InventoryObserved
from dray.messages.rpc import INVENTORY_SUBJECT, Inventory, InventoryReply
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.inventories.decisions import doubt, forgery, lacks_label, next_fact
from dray_claim_controller.publication.publisher import Publisher

_SUBJECT: Final = f"{INVENTORY_SUBJECT}.*"

_MOST_GONE: Final = 64
"""Deleted nodes whose last report is remembered, in addition to as many as there are nodes."""


class InventoryServer:
    """The server of one term."""

    def __init__(
        self,
        bus: Bus,
        cache: ObjectCache,
        publisher: Publisher,
        clock: Clock,
        *,
        instance: str,
        label: Callable[[str], Awaitable[None]],
        on_registered: Callable[[str], None] = lambda _: None,
        on_prepared: Callable[[str, Collection[str]], None] = lambda _, __: None,
    ) -> None:
        """``label`` writes onto a node that it has GPUs; it may raise KubeError.

        ``on_registered`` is called with a node whose agent was registered by its kubelet since
        it reported before, or since the term began; ``on_prepared`` with a node and the UIDs of
        claims that its agent has prepared."""
        self._bus = bus
        self._label = label
        self._on_registered = on_registered
        self._on_prepared = on_prepared
        self._registered: dict[str, float] = {}
        """When each node's agent was registered, by its last report."""
        self._cache = cache
        self._publisher = publisher
        self._instance = instance
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._heard_s: dict[str, float] = {}
        """When each node's agent reported last (monotonic)."""
        self._one_by_one = asyncio.Lock()

    async def run(self) -> None:
        """Answer until cancelled. Each instance has a queue group of its own, so that all of them
        get every report: a leader that slept publishes nothing any more, and its successor needs
        the report."""
        await self._bus.serve(_SUBJECT, self.answer, queue=self._instance)

    def is_silent(self, node: str, *, after_s: float) -> bool:
        """Whether the node's agent has not reported for ``after_s`` seconds, as far as this term
        knows."""
        heard_s = self._heard_s.get(node, self._began_s)
        return self._clock.monotonic_s() - heard_s > after_s

    async def answer(self, request: Request) -> bytes:
        """The encoded InventoryReply to an encoded Inventory.

        Raises BusUnavailableError, SupersededError: there is no answer, and the agent asks again.
        """
        try:
            asked = msgspec.json.decode(request.payload, type=Inventory)
        except msgspec.MsgspecError as error:
            return _encoded(InventoryReply(error=f"the report can't be read: {error}"))
        subject_node = request.subject.removeprefix(f"{INVENTORY_SUBJECT}.")
        if why := forgery(asked, subject_node=subject_node, user=request.user):
            structlog.get_logger().error("an inventory was refused", why=why)
            return _encoded(InventoryReply(error=why))
        self._note_heard(asked.node)
        self._note_registered(asked)
        self._on_prepared(asked.node, asked.prepared)
        async with self._one_by_one:
            return _encoded(await self._take(asked))

    def _note_heard(self, node: str) -> None:
        nodes = self._cache.plain[NODES.plural]
        if len(self._heard_s) > 2 * len(nodes) + _MOST_GONE:
            self._heard_s = {name: at_s for name, at_s in self._heard_s.items() if name in nodes}
            self._registered = {n: at for n, at in self._registered.items() if n in nodes}
        self._heard_s[node] = self._clock.monotonic_s()

    def _note_registered(self, asked: Inventory) -> None:
        if self._registered.get(asked.node) != asked.registered_unix_s:
            self._registered[asked.node] = asked.registered_unix_s
            self._on_registered(asked.node)

    async def _take(self, asked: Inventory) -> InventoryReply:
        slices = self._cache.devices.slices_of(DRIVER, asked.node)
        exists = asked.node in self._cache.plain[NODES.plural]
        key = FactKey(InventoryObserved.NAME, asked.node)
        before = self._publisher.newest(key)
        known = before if isinstance(before, InventoryObserved) else None
        revision = 0 if known is None else known.revision
        if why := doubt(asked, slices, node_exists=exists, known=revision):
            return InventoryReply(error=why, known_generation=revision)
        fact = next_fact(asked, known, self._publisher.doubted(key))
        if fact is not None:
            try:
                await self._publisher.store(fact)
            except MessageTooLargeError as error:
                return InventoryReply(error=str(error), known_generation=revision)
            revision = fact.revision
            if asked.node not in self._cache.plain[NODES.plural]:
                # It went meanwhile: the next publication makes the tombstone.
                self._cache.mark(key)
        accepted = revision == asked.generation
        node = self._cache.plain[NODES.plural].get(asked.node, {"metadata": {}})
        if accepted and lacks_label(asked, node["metadata"].get("labels") or {}):
            try:
                await self._label(asked.node)
            except KubeError as error:
                # The agent repeats its report.
                why = f"the label {GPU_LABEL} of node {asked.node} can't be written: {error}"
                return InventoryReply(error=why, known_generation=revision)
        return InventoryReply(accepted=accepted, known_generation=revision)


def _encoded(reply: InventoryReply) -> bytes:
    return msgspec.json.encode(reply)
