"""Publishes facts: only what changed, never backwards, with tombstones for objects that are
gone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
import structlog

from dray.api.claims import GivenUp
from dray.api.equality import strictly_equal
from dray.api.errors import DrayError, PermanentError
from dray.bus.ports import (
    Bus,
    BusUnavailableError,
    Fence,
    MessageTooLargeError,
    StaleSequenceError,
    StoreUse,
)
from dray.bus.topology import FACTS_STREAM
from dray.kube.convert import UNREADABLE
from dray.kube.ports import CLAIMS, NODES, PODS, Resource
from dray.messages.base import (
    Outgoing,
    UndecodableMessageError,
    decode,
    encode,
    subject_of,
    subject_prefix,
)
from dray.messages.facts import (
    FACTS,
    ClaimObserved,
    DomainObserved,
    Fact,
    GroupObserved,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    SliceObserved,
    Synced,
    TermBegun,
    Tick,
)
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import CachedPod, FactKey
from dray_claim_controller.cache.changes import enter, leave
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RuleRecorder
from dray_claim_controller.facts.build import key_of
from dray_claim_controller.facts.decisions import Publish
from dray_claim_controller.facts.fact_queue import FactEntry, FactQueue
from dray_claim_controller.facts.facts_time import FactsTime
from dray_claim_controller.facts.handover import QuarantineTerms
from dray_claim_controller.facts.outbox import Outbox, kind_behind, read_at
from dray_claim_controller.facts.size_limit import too_large
from dray_claim_controller.tracing import is_traced, publishing

Evaluate = Callable[[Publish], tuple[Fact, ...]]


@dataclass(frozen=True, slots=True)
class NodeMoves:
    """The inputs for nodes that change pools."""

    left: Callable[[str, str], int]
    """Highest node-left revision in a domain's log, by domain and node; 0: none."""
    closing: Callable[[], Iterable[str]]
    quarantine_s: float = 60.0
    """How long devices stay unallocatable after kube-scheduler owned them, in seconds."""
    keeps_taints: Callable[[], bool] = lambda: True
    """Whether the API server keeps device taints."""


_UNOBSERVED = ("synced", "tick", "cluster", "domain")
"""Facts without a Kubernetes object: no deletion ends them."""
_ANYBODYS = (PodObserved.NAME, GroupObserved.NAME)
"""Kinds of facts about objects of any tenant. An unexpected error while one is made does not
end the term: the last fact stays (docs/adr/0031-one-objects-content-is-its-own-matter.md)."""
_UNREMEMBERED = (Synced, TermBegun, Tick)
_AT_ONCE = 64
"""Keys whose facts are made in one step."""
_MOST_BATCHES = 32
"""Batches of keys before the outcomes of the first are noted."""
_MARKED_AT_ONCE = 2000


@dataclass(slots=True)
class _PlannedFacts:
    """The facts to publish about one key, in order."""

    key: FactKey
    revision: int
    """The revision that changed it."""
    facts: tuple[Fact, ...]
    error: DrayError | None = None
    """Why they were not published."""

    @property
    def is_single(self) -> bool:
        """Whether it is one fact, so that it builds on no fact that is on its way."""
        return len(self.facts) == 1


def _domains_of(fact: Fact | None) -> tuple[str, ...]:
    """The domain that a node's fact puts it in, and the one that the node is leaving."""
    if not isinstance(fact, NodeObserved):
        return ()
    return tuple(name for name in (fact.node.pool, fact.node.leaving) if name)


def _membership(fact: Fact | None) -> tuple[Any, ...] | None:
    """What a node's fact says about its pool and about who allocates its devices."""
    if not isinstance(fact, NodeObserved):
        return None
    node = fact.node
    return node.pool, node.leaving, node.owner, node.assigned_pool, fact.quarantined


class SupersededError(PermanentError):
    """Another claim-controller has begun its term: this one's facts are refused from now on."""


class Publisher:
    """Publishes the leader's facts. One instance per term; it starts from the facts on the bus.

    Every fact is fenced by the term's own: beginning a term ends all others, however late
    their messages arrive (docs/adr/0016-facts-are-fenced-by-the-term.md).
    """

    def __init__(
        self,
        bus: Bus,
        cache: ObjectCache,
        clock: Clock,
        *,
        instance: str,
        node_moves: NodeMoves,
        tick_s: float = 1.0,
        evaluate: Evaluate | None = None,
        cause_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        """``tick_s``: how often ``tick`` is called."""
        self.sequence = 0
        """Sequence of the newest fact known to be stored."""
        self.store_use = StoreUse(0, None)
        """How full the NATS store is, for the ticks; 0 bytes: not measured yet."""
        self._bus = bus
        self._cache = cache
        self._evaluate = evaluate or RuleRecorder(cache).evaluate
        self._cause_of = cause_of
        self._clock = clock
        self._instance = instance
        self._source = f"/claim-controller/{instance}"
        self._node_moves = node_moves
        self._outbox = Outbox()
        self._restored: dict[FactKey, None] = {}
        """Claims and pods whose facts of earlier terms are newer than the API server's store."""
        self._domains: dict[str, int] = {}
        """Epochs by domain, as published."""
        self._given_up: dict[str, GivenUp] = {}
        self._recalled: dict[str, float] = {}
        self._nodes_of: dict[str, dict[str, None]] = {}
        self._quarantined: dict[str, None] = {}
        """Nodes in quarantine: their next fact depends on the time."""
        self.too_large: dict[FactKey, str] = {}
        """Why facts are reduced or not published, by key."""
        self._fence: Fence | None = None
        """The right to publish; None before ``begin``."""
        self._lock = asyncio.Lock()
        self._time = FactsTime(clock, tick_s=tick_s)

    async def begin(self, facts: str) -> None:
        """Begin a term on the stream of facts that was created at ``facts``: from here on no
        earlier term publishes, and what they have published is known.

        Raises SupersededError: another began in the same moment.
        """
        term = TermBegun(revision=1, facts=facts, instance=self._instance)
        subject = subject_of(term)
        before = await self._bus.last(FACTS_STREAM, subject)
        if before is not None:
            count = decode(before, TermBegun).revision + 1
            term = TermBegun(revision=count, facts=facts, instance=self._instance)
        self._fence = Fence(subject, 0 if before is None else before.sequence)
        self._fence = Fence(subject, await self._store(self._sealed(term)))
        await self._load()
        if not self._time.has_begun:
            await self.tick()  # Before anything that carries its time.

    async def _load(self) -> None:
        known = {subject_prefix(fact): fact for fact in FACTS}
        async for delivered in self._bus.read(FACTS_STREAM):
            kind = known.get(".".join(delivered.subject.split(".")[:4]))
            if kind is not None:
                self._remember(delivered.sequence, delivered.payload, kind)
            if delivered.pending == 0:
                return

    async def kinds_behind(self) -> list[Resource]:
        """Kinds with facts of an earlier term that the watch has not shown yet. If the
        facts are lost, or it is the first term, nothing says which allocations there are."""
        found: dict[str, Resource] = {} if self._outbox.keys() else {CLAIMS.plural: CLAIMS}
        async for _, resource in self._behind():
            found[resource.plural] = resource
        return list(found.values())

    async def note_restored(self) -> None:
        """Note whose facts are newer than the lists that were read after the facts: the API
        server's store was restored from a backup, and what it has now counts."""
        async for key, resource in self._behind():
            if resource in (CLAIMS, PODS):
                self._restored[key] = None

    async def _behind(self) -> AsyncIterator[tuple[FactKey, Resource]]:
        for number, key in enumerate(self._outbox.keys(), start=1):
            if number % _MARKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            fact = self._outbox.newest(key)
            if fact is not None and (resource := kind_behind(self._cache, key, fact)) is not None:
                yield key, resource

    async def publish_everything(self) -> None:
        """Publish all facts, tombstones of deleted objects, then ``Synced``."""
        async with self._lock:
            await self._mark(self._cache.all_facts(), 0)
            living = (key for key in self._outbox.living() if key.kind not in _UNOBSERVED)
            await self._mark(living, self._cache.revision)
            await self._publish_dirty()
            revision = self._cache.revision
            synced = Synced(revision=revision, instance=self._instance)
            await self._store(self._sealed(synced))

    async def _mark(self, keys: Iterator[FactKey], revision: int) -> None:
        while some := list(islice(keys, _MARKED_AT_ONCE)):
            for key in some:
                self._cache.mark(key, revision)
            await asyncio.sleep(0)

    async def flush(self) -> None:
        """Publish what changed since the last time. Raises BusUnavailableError: try again."""
        async with self._lock:
            await self._publish_dirty()

    async def publish_fact(
        self, key: FactKey, fact: Fact | None, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Publish a fact that is not built from the cache; None: its tombstone. ``unless`` is asked
        when no other fact is being published."""
        revision = 0 if fact is None else fact.revision
        async with self._lock:
            if unless():
                return
            for newer in self._outbox.plan(key, fact, revision):
                await self.store(newer)

    async def store(self, fact: Fact) -> None:
        """Publish a fact as it is."""
        await self._store_or_doubt(fact, self._sealed(fact))
        self._published(fact)

    async def tick(self) -> None:
        """Publish the time for readers of the facts, and check nodes in quarantine."""
        async with self._lock:
            await self._store(self._sealed(self._time.tick(self.store_use)))
        for name in self._quarantined:
            self._cache.mark(FactKey(NodeObserved.NAME, name))

    def now_unix_s(self) -> float:
        """The time of the facts."""
        return self._time.now_unix_s()

    def domains(self) -> dict[str, int]:
        """Epoch by domain, as published."""
        return dict(self._domains)

    def domain(self, name: str) -> DomainObserved | None:
        """The last fact about a domain; a tombstone remembers the last epoch of a deleted pool."""
        fact = self._outbox.newest(FactKey(DomainObserved.NAME, name))
        return fact if isinstance(fact, DomainObserved) else None

    def given_up(self) -> dict[str, GivenUp]:
        """What was given up of claims, by UID, as published."""
        return dict(self._given_up)

    def recalled(self) -> Mapping[str, float]:
        """When the devices of nodes were reclaimed from kube-scheduler, as published."""
        return self._recalled

    def nodes_of(self, domain: str) -> tuple[str, ...]:
        """Nodes that are in a domain, or are leaving it, as published."""
        return tuple(self._nodes_of.get(domain, ()))

    def last(self, key: FactKey) -> Fact | None:
        """The last fact about ``key`` that is not a tombstone."""
        return self._outbox.last(key)

    def newest(self, key: FactKey) -> Fact | None:
        """The last fact about ``key``; it may be a tombstone."""
        return self._outbox.newest(key)

    def doubted(self, key: FactKey) -> tuple[Fact, ...]:
        """Facts about ``key`` after the last stored one that may be stored."""
        return self._outbox.doubted(key)

    def _remember(self, sequence: int, payload: bytes, kind: type[Fact]) -> None:
        try:
            fact = decode(payload, kind)
        except UndecodableMessageError:
            # Written by another version; facts of existing objects are published again.
            return
        self.sequence = sequence
        if isinstance(fact, Tick):
            self._time.continue_from(fact)
        elif not isinstance(fact, _UNREMEMBERED):
            self._published(self._with_cached(fact))

    def _with_cached(self, fact: Fact) -> Fact:
        """The fact, with the cached object in it if the two are equal, so that memory holds only
        one of them."""
        match fact:
            case ClaimObserved(claim=claim) if held := self._cache.claims.get(claim.uid):
                if strictly_equal(held.claim, claim):
                    return msgspec.structs.replace(fact, claim=held.claim)
            case PodObserved(pod=pod) if known := self._cache.pods.get(pod.uid):
                if known.pod is not None and strictly_equal(known.pod, pod):
                    return msgspec.structs.replace(fact, pod=known.pod)
            case SliceObserved(slice=observed):
                cached, _ = self._cache.devices.slices.get(observed.name, (None, 0))
                if cached is not None and strictly_equal(cached, observed):
                    return msgspec.structs.replace(fact, slice=cached)
        return fact

    async def _publish_dirty(self) -> None:
        queue = FactQueue(self._cache, self._outbox)
        try:
            for _ in queue.take_all():
                await asyncio.sleep(0)
            while planned := await self._publish_together(
                islice(queue.take(_AT_ONCE), _MOST_BATCHES)
            ):
                failed = [one for one in planned if one.error is not None]
                for one in failed:
                    self._cache.mark(one.key, one.revision)
                errors = [one.error for one in failed if one.error is not None]
                final = (one for one in errors if not isinstance(one, BusUnavailableError))
                if errors:
                    raise next(final, errors[0])
        finally:
            for key, revision in queue.rest():
                self._cache.mark(key, revision)

    async def _publish_together(self, batches: Iterator[list[FactEntry]]) -> list[_PlannedFacts]:
        """Publish the facts of batches of keys. The batches may be on their way together, but the
        facts of one key may not, because each builds on the one before."""
        planned: list[_PlannedFacts] = []
        with contextlib.ExitStack() as spans:

            def messages() -> Iterator[list[Outgoing]]:
                for batch in batches:
                    some = [_PlannedFacts(key, at, self._plan(key, at)) for key, at in batch]
                    planned.extend(some)
                    yield [self._sealed(one.facts[0], spans) for one in some if one.is_single]

            outcomes = iter(await self._bus.publish_all(messages(), fence=self._fence))
        for one in planned:
            try:
                if one.is_single:
                    self._settle(one.facts[0], next(outcomes))
                else:
                    await self._publish_in_order(one.facts)
                self.too_large.pop(one.key, None)
            except MessageTooLargeError as error:
                await self._publish_reduced(one, error)
            except DrayError as error:
                one.error = error
        return planned

    def _plan(self, key: FactKey, revision: int) -> tuple[Fact, ...]:
        """The facts to publish about a key, in order."""
        if key.kind != InventoryObserved.NAME:
            return self._evaluated(key, revision)
        if key.identity in self._cache.plain[NODES.plural]:
            return ()
        # The tombstone of a node-agent's report about a deleted node. Without the devices, it is
        # never too large for the bus.
        tombstones = self._outbox.plan(key, None, revision)
        return tuple(msgspec.structs.replace(one, unhealthy=()) for one in tombstones)

    def _evaluated(self, key: FactKey, revision: int) -> tuple[Fact, ...]:
        try:
            return self._evaluate(self._publish_rule(key, revision))
        except UNREADABLE:
            if key.kind not in _ANYBODYS:
                raise
            structlog.get_logger().exception(
                "no fact can be made; the last one stays", kind=key.kind, identity=key.identity
            )
            return ()

    async def _publish_reduced(self, of: _PlannedFacts, error: MessageTooLargeError) -> None:
        """Publish the part of a fact that fits the bus; other facts are not affected."""
        limit_bytes = error.limit_bytes
        if of.key not in self.too_large:
            structlog.get_logger().error("a fact is too large for the bus", error=str(error))
        self.too_large[of.key] = too_large(error.size_bytes, limit_bytes)
        rule = self._publish_rule(of.key, of.revision)
        reduced = self._evaluate(msgspec.structs.replace(rule, limit_bytes=limit_bytes))
        try:
            await self._publish_in_order(reduced)
        except MessageTooLargeError as too:
            structlog.get_logger().error(
                "even the reduced fact is too large for the bus", error=str(too)
            )
        except DrayError as failed:
            of.error = failed

    async def _publish_in_order(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            with contextlib.ExitStack() as spans:
                await self._store_or_doubt(fact, self._sealed(fact, spans))
            self._published(fact)

    def _settle(self, fact: Fact, outcome: int | DrayError) -> None:
        """Note what became of a fact. Raises the error, if it is one."""
        if isinstance(outcome, int):
            self.sequence = max(self.sequence, outcome)
            self._published(fact)
            return
        if isinstance(outcome, BusUnavailableError):
            self._outbox.doubt(fact)
        raise _superseded(outcome) if isinstance(outcome, StaleSequenceError) else outcome

    def _published(self, fact: Fact) -> None:
        match fact:
            case NodeObserved():
                self._published_node(fact)
            case DomainObserved():
                self._domains.pop(fact.domain, None)
                if not fact.deleted:
                    self._domains[fact.domain] = fact.epoch
            case ClaimObserved():
                self._given_up.pop(fact.claim.uid, None)
                if fact.given_up is not None and not fact.deleted:
                    self._given_up[fact.claim.uid] = fact.given_up
        self._outbox.published(fact)
        self._restored.pop(key_of(fact), None)

    def _published_node(self, fact: NodeObserved) -> None:
        name, before = fact.node.name, self._outbox.last(FactKey(NodeObserved.NAME, fact.node.name))
        known = _membership(before)
        for domain in _domains_of(before):
            leave(self._nodes_of, domain, name)
        self._quarantined.pop(name, None)
        self._recalled.pop(name, None)
        living = None if fact.deleted else fact
        for domain in _domains_of(living):
            enter(self._nodes_of, domain, name)
        if living is not None and living.quarantined:
            self._quarantined[name] = None
        if living is not None and living.recalled_unix_s is not None:
            self._recalled[name] = living.recalled_unix_s
        if known != _membership(living):
            self._cache.changed_nodes.put(name)

    def _publish_rule(self, key: FactKey, revision: int) -> Publish:
        before, doubted = self._outbox.newest(key), self._outbox.doubted(key)
        if key.kind != NodeObserved.NAME:
            restored = before is not None and (
                key in self._restored or self._cache.is_restored(key, read_at(before))
            )
            return Publish(
                key=key, revision=revision, before=before, doubted=doubted, restored=restored
            )
        left = [
            (domain, at)
            for domain in _domains_of(self._outbox.last(key))
            if (at := self._node_moves.left(domain, key.identity))
        ]
        closing = tuple(sorted(self._node_moves.closing()))
        recall = QuarantineTerms(
            self.now_unix_s(), self._node_moves.quarantine_s, self._node_moves.keeps_taints()
        )
        return Publish(
            key=key,
            revision=revision,
            before=before,
            doubted=doubted,
            left=tuple(left),
            closing=closing,
            recall=recall,
        )

    def _pod_of(self, fact: Fact) -> CachedPod | None:
        """The pod whose trace a fact belongs to."""
        match fact:
            case PodObserved(pod=pod):
                return self._cache.pods.get(pod.uid)
            case ClaimObserved(claim=claim):
                return self._cache.pods.get(claim.pod_uid)
        return None

    async def _store_or_doubt(self, fact: Fact, message: Outgoing) -> None:
        try:
            await self._store(message)
        except BusUnavailableError:
            self._outbox.doubt(fact)
            raise

    async def _store(self, message: Outgoing) -> int:
        assert self._fence is not None, "the term was not begun"
        try:
            sequence = await self._bus.publish(message, fence=self._fence)
        except StaleSequenceError as error:
            raise _superseded(error) from error
        self.sequence = max(self.sequence, sequence)
        return sequence

    def _sealed(self, fact: Fact, spans: contextlib.ExitStack | None = None) -> Outgoing:
        """The fact's message; ``spans`` gets the span of its publication."""
        traceparent = cause = ""
        if isinstance(fact, ClaimObserved):
            cause = self._cause_of(fact.claim.uid)
        if spans is not None and is_traced(pod := self._pod_of(fact)):
            is_first = self._outbox.last(key_of(fact)) is None
            traceparent = spans.enter_context(publishing(fact, pod, first=is_first))
        return encode(
            fact,
            source=self._source,
            causation_id=cause,
            traceparent=traceparent,
            now_unix_s=self._clock.now_unix_s(),
        )


def _superseded(error: StaleSequenceError) -> SupersededError:
    return SupersededError(f"another claim-controller leads now: {error}")
