"""Pool dependencies: the other pools that a replica must know to decide in a pool.

Mostly none. A node may carry what another pool's claims hold, or hold again; a claim may be of
another pool than the pods that refer to it. The facts of nodes, claims and pods tell.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from dray.messages.facts import ClaimObserved, NodeObserved, PodObserved

Object = tuple[str, str]
"""What ties, and the name or uid of the object that does."""
Pair = tuple[str, str]
"""To decide in the first pool, the second must be known."""

_BESIDE: Final = "beside"
_MOVED: Final = "moved from"


@dataclass(slots=True)
class PoolDependencies:
    """Pairs of pools, by the object that ties them, and what follows."""

    _pairs: dict[Object, tuple[Pair, ...]] = field(default_factory=dict)
    _moved: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per claim or pod, the pools that it was in."""
    _closures: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, pool: str) -> tuple[str, ...]:
        """The pool, and all that have a say in it."""
        if not self._pairs:
            return (pool,)
        closure = self._closures.get(pool)
        if closure is None:
            closure = self._closures[pool] = self._closure(pool)
        return closure

    def node(self, fact: NodeObserved) -> None:
        """What a node carries of other pools."""
        pool = "" if fact.deleted else fact.node.pool
        if fact.former or self._pairs:
            self._set(("node", fact.node.name), ((pool, former) for former in fact.former))

    def claim(self, fact: ClaimObserved) -> None:
        """A claim, or its tombstone."""
        self._member(fact.claim.uid, fact.claim.pool, fact)

    def pod(self, fact: PodObserved) -> None:
        """A pod, or its tombstone."""
        self._member(fact.pod.uid, fact.pod.pool, fact)

    def forget(self, uid: str) -> None:
        """The claim or pod is not looked at any more."""
        if not self._pairs:
            return
        self._set((_BESIDE, uid), ())
        for pool in self._moved.pop(uid, ()):
            self._set((f"{_MOVED} {pool}", uid), ())

    def _member(self, uid: str, pool: str, fact: ClaimObserved | PodObserved) -> None:
        """Replicas that know one of the pools must know all; where it was moved, until it ends."""
        if fact.moved_to is not None:
            self._moved.setdefault(uid, {})[pool] = None
            self._set((f"{_MOVED} {pool}", uid), ((pool, fact.moved_to),))
        elif fact.deleted:
            self.forget(uid)
        elif fact.beside or self._pairs:
            pools = (pool, *fact.beside)
            self._set((_BESIDE, uid), ((one, other) for one in pools for other in pools))

    def _set(self, what: Object, pairs: Iterable[Pair]) -> None:
        told = tuple((one, other) for one, other in pairs if one and other and one != other)
        if told == self._pairs.get(what, ()):
            return
        if told:
            self._pairs[what] = told
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
