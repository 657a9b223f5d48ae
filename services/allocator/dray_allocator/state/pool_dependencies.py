"""Pool dependencies: the other pools that a replica must know to decide in a pool.

Usually none. A node may have devices that claims of another pool hold; a claim may belong to
another pool than the pods that refer to it. Facts of nodes, claims and pods name them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from dray.messages.facts import ClaimObserved, NodeObserved, PodObserved

Object = tuple[str, str]
"""Kind of dependency, and the name or uid of the object that causes it."""
Pair = tuple[str, str]
"""Deciding in the first pool depends on the second."""

_REFERENCE: Final = "reference"
_MOVED: Final = "moved from"


@dataclass(slots=True)
class PoolDependencies:
    """Pairs of pools per object, and their transitive closure."""

    _pairs: dict[Object, tuple[Pair, ...]] = field(default_factory=dict)
    _moved: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per claim or pod, the pools that it was in."""
    _closures: dict[str, tuple[str, ...]] = field(default_factory=dict)

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
        """Let the pools of an object depend on each other; pools it left, until it is deleted."""
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
