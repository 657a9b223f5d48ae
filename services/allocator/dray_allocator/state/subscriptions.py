"""The pools that a replica reads: those that it subscribes to, those that they depend on, and those
that undecodable facts stop.

Every replica folds all facts without a pool. Earlier facts of a newly subscribed pool are read from
the first one, while new facts are read in order: the pool is caught up when the new facts reach the
position at which the earlier ones ended.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from dray.messages.facts import ClaimObserved, NodeObserved, PodObserved
from dray_allocator.values.undecodable import UndecodableFact

Object = tuple[str, str]
"""Kind of dependency, and the name or uid of the object that causes it."""
Pair = tuple[str, str]
"""Deciding in the first pool depends on the second."""

Stopped = dict[str, dict[str, None]]
"""Subjects of undecodable facts, by the name of the pool, node or policy."""

_REFERENCE: Final = "reference"
_MOVED: Final = "moved from"


@dataclass(slots=True)
class Subscriptions:
    """What is subscribed to: by default, everything from the first fact on."""

    everything: bool = True
    whole_from: int | None = 0
    """If everything is subscribed to: the position from which on all facts are known; None: earlier
    facts are still being read."""
    pools: dict[str, int | None] = field(default_factory=dict)
    """The same for single pools."""

    def has_read_all(self, position: int) -> bool:
        """Whether all facts of all pools up to ``position`` are known."""
        return self.everything and self.whole_from is not None and position >= self.whole_from

    def takes(self, pool: str) -> bool:
        """Whether facts and records of a pool are folded; facts without a pool always are."""
        return self.everything or not pool or pool in self.pools

    def is_caught_up(self, pool: str, position: int) -> bool:
        """Whether all facts of the pool up to ``position`` are known."""
        whole_from = self.pools.get(pool)
        known = whole_from is not None and position >= whole_from
        return known or not pool or self.has_read_all(position)

    def awaits(self, pool: str) -> bool:
        """Whether earlier facts of the pool are to be folded.

        Earlier facts of a known pool are ignored. If facts were folded before the facts without a
        pool that precede them, the state would be one that no reader of all facts in order has.
        """
        if not pool or self.pools.get(pool) is not None:
            return False
        return self.whole_from is None if self.everything else pool in self.pools

    def unread(self) -> tuple[str, ...]:
        """Pools whose earlier facts are still to be read."""
        return tuple(pool for pool, whole_from in self.pools.items() if whole_from is None)

    def subscribe(self, pools: Iterable[str] | None, position: int) -> None:
        """Subscribe to these pools (None: all); ``position`` is that of the last fact read."""
        if pools is None:
            if not self.everything:
                self.everything, self.whole_from = True, 0 if position == 0 else None
            return
        begun = 0 if position == 0 else None
        known = self.whole_from if self.everything else begun
        self.pools = {pool: self._whole_from(pool, known) for pool in pools}
        self.everything = False

    def read(self, pools: Iterable[str] | None, sequence: int) -> None:
        """Note that all earlier facts of these pools (None: all) were read up to ``sequence``."""
        if pools is None:
            self.whole_from = sequence if self.whole_from is None else self.whole_from
            return
        for pool in pools:
            if pool in self.pools and self.pools[pool] is None:
                self.pools[pool] = sequence

    def restart(self) -> None:
        """Note that all facts are read from the first one on."""
        self.whole_from = 0
        self.pools = dict.fromkeys(self.pools, 0)

    def _whole_from(self, pool: str, otherwise: int | None) -> int | None:
        known = self.pools.get(pool)
        return otherwise if known is None else known


@dataclass(slots=True)
class PoolDependencies:
    """The other pools that a replica must know to decide in a pool: usually none.

    A node may have devices that claims of another pool hold; a claim may belong to another pool
    than the pods that refer to it. Facts of nodes, claims and pods name these other pools.
    """

    _pairs: dict[Object, tuple[Pair, ...]] = field(default_factory=dict)
    _moved: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per claim or pod, the pools that it was in."""
    _closures: dict[str, tuple[str, ...]] = field(default_factory=dict)
    version: int = 0
    """Increases with every change."""

    def of(self, pool: str) -> tuple[str, ...]:
        """The pool, and the pools that it depends on."""
        if not self._pairs:
            return (pool,)
        closure = self._closures.get(pool)
        if closure is None:
            closure = self._closures[pool] = self._closure(pool)
        return closure

    def node(self, fact: NodeObserved) -> None:
        """Add a node: it depends on the pools whose claims hold its devices."""
        pool = "" if fact.deleted else fact.node.pool
        if fact.former or self._pairs:
            self._set(("node", fact.node.name), ((pool, former) for former in fact.former))

    def claim(self, fact: ClaimObserved) -> None:
        """Add a claim, or remove it by its tombstone."""
        self._member(fact.claim.uid, fact.claim.pool, fact)

    def pod(self, fact: PodObserved) -> None:
        """Add a pod, or remove it by its tombstone."""
        self._member(fact.pod.uid, fact.pod.pool, fact)

    def forget(self, uid: str) -> None:
        """Remove a claim or pod that is no longer read."""
        if not self._pairs:
            return
        self._set((_REFERENCE, uid), ())
        for pool in self._moved.pop(uid, ()):
            self._set((f"{_MOVED} {pool}", uid), ())

    def _member(self, uid: str, pool: str, fact: ClaimObserved | PodObserved) -> None:
        """Let the pools of an object depend on each other; pools it left, until its deletion."""
        if fact.moved_to is not None:
            self._moved.setdefault(uid, {})[pool] = None
            self._set((f"{_MOVED} {pool}", uid), ((pool, fact.moved_to),))
        elif fact.deleted:
            self.forget(uid)
        elif fact.beside or self._pairs:
            pools = (pool, *fact.beside)
            self._set((_REFERENCE, uid), ((one, other) for one in pools for other in pools))

    def _set(self, what: Object, pairs: Iterable[Pair]) -> None:
        pairs_now = tuple((one, other) for one, other in pairs if one and other and one != other)
        if pairs_now == self._pairs.get(what, ()):
            return
        if pairs_now:
            self._pairs[what] = pairs_now
        else:
            del self._pairs[what]
        self._closures.clear()
        self.version += 1

    def _closure(self, pool: str) -> tuple[str, ...]:
        found = {pool: None}
        ahead = [pool]
        while ahead:
            here = ahead.pop()
            for pairs in self._pairs.values():
                for one, other in pairs:
                    if one == here and other not in found:
                        found[other] = None
                        ahead.append(other)
        return tuple(found)


@dataclass(slots=True)
class UndecodableFacts:
    """The undecodable facts, and what they stop."""

    facts: dict[str, UndecodableFact] = field(default_factory=dict)
    """By subject."""
    _pools: Stopped = field(default_factory=dict)
    _nodes: Stopped = field(default_factory=dict)
    _policies: Stopped = field(default_factory=dict)
    _everywhere: dict[str, None] = field(default_factory=dict)

    def put(self, fact: UndecodableFact) -> None:
        """Add: the newest fact of an object can't be decoded."""
        self.drop(fact.subject)
        if not fact.stops:
            return
        self.facts[fact.subject] = fact
        for stopped, name in self._entries(fact):
            stopped.setdefault(name, {})[fact.subject] = None
        if fact.everywhere:
            self._everywhere[fact.subject] = None

    def drop(self, subject: str) -> None:
        """Remove: the newest fact of an object can be decoded."""
        fact = self.facts.pop(subject, None)
        if fact is None:
            return
        self._everywhere.pop(subject, None)
        for stopped, name in self._entries(fact):
            del stopped[name][subject]
            if not stopped[name]:
                del stopped[name]

    def forget_pools(self, keep: Callable[[str], bool]) -> None:
        """Remove the facts of pools that are no longer read."""
        for fact in tuple(self.facts.values()):
            if not keep(fact.pool):
                self.drop(fact.subject)

    def stop(self, pool: str, members: Container[str], policy: str) -> str:
        """Why the pool is stopped; empty: it is not. ``members``: the pool's nodes."""
        if not self.facts:
            return ""
        subjects = (
            self._everywhere
            or self._pools.get(pool)
            or self._policies.get(policy)
            or next((found for name, found in self._nodes.items() if name in members), None)
        )
        return self.facts[next(iter(subjects))].why if subjects else ""

    def any(self) -> str:
        """Why a pool with devices that span nodes is stopped; empty: it is not."""
        return next((fact.why for fact in self.facts.values()), "")

    def _entries(self, fact: UndecodableFact) -> Iterable[tuple[Stopped, str]]:
        yield from ((self._pools, pool) for pool in fact.pools)
        yield from ((self._nodes, node) for node in fact.nodes)
        if fact.policy:
            yield self._policies, fact.policy
