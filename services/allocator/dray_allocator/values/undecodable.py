"""Facts of a newer release that this one can't decode, and the pools that they stop. Pure.

The content of such a fact is unknown, so a decision that depends on it could allocate a device
twice. Each kind of fact stops the fewest pools:

- a claim: its pool, and the pools of the nodes on which it holds devices;
- a pod: its pool (dray never decides a pod without a pool);
- a tombstone of either: none (the last known state of the object still counts);
- a node: the pool that it was in, and those that it is in or leaves now;
- a slice of our drivers: the pool of its node;
- a GPUPool, a decision log's name: that pool; a policy: the pools that name it;
- classes, taint rules, the server, ``Synced`` and ticks: all pools;
- templates and terms, which allocators do not use: none.

If not even the object can be read, all pools are stopped. A replica that can decode the fact may
serve them, and a later decodable fact of the object starts them again.
"""

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from dray.api import json_codec
from dray.messages.base import subject_prefix
from dray.messages.facts import (
    ClaimObserved,
    DomainObserved,
    Fact,
    GroupObserved,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    PriorityClassObserved,
    QueueObserved,
    SliceObserved,
    TemplateObserved,
    TermBegun,
)

_OF_POOLS: Final = (ClaimObserved, PodObserved)
_UNUSED: Final = (
    GroupObserved,
    InventoryObserved,
    PriorityClassObserved,
    QueueObserved,
    TemplateObserved,
    TermBegun,
)
"""Facts that stop no pool. Allocators ignore them or keep the last known state: a node's health
only removes devices, and the pods of an unknown group wait."""


@dataclass(frozen=True, slots=True)
class UndecodableFact:
    """An undecodable fact, and what depends on it; with no pools, nodes or policy, nothing does."""

    subject: str
    why: str
    pool: str = ""
    """The pool that the subject names."""
    pools: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """Nodes, in any pool."""
    policy: str = ""
    everywhere: bool = False

    def subject_pool(self) -> str:
        """See ``Fact.subject_pool``."""
        return self.pool

    @property
    def stops(self) -> bool:
        """Whether it stops any pool."""
        return bool(self.pools or self.nodes or self.policy or self.everywhere)


class _Id(msgspec.Struct):
    pool: str


class _Held(msgspec.Struct):
    id: _Id


class _Allocation(msgspec.Struct):
    devices: tuple[_Held, ...] = ()
    node: str = ""


class _Claim(msgspec.Struct):
    allocation: _Allocation | None = None


class _Place(msgspec.Struct):
    """Fields of a claim's or pod's fact."""

    deleted: bool = False
    moved_to: str | None = None
    claim: _Claim = msgspec.field(default_factory=_Claim)


class _Node(msgspec.Struct):
    pool: str = ""
    leaving: str = ""


class _NodePlace(msgspec.Struct):
    node: _Node


class _Slice(msgspec.Struct):
    driver: str
    node: str = ""


class _SlicePlace(msgspec.Struct):
    slice: _Slice


_PLACE: Final = msgspec.json.Decoder(_Place)
_NODE_PLACE: Final = msgspec.json.Decoder(_NodePlace)
_SLICE_PLACE: Final = msgspec.json.Decoder(_SlicePlace)


def undecodable(
    kind: type[Fact], subject: str, payload: bytes, why: str, drivers: Container[str]
) -> UndecodableFact:
    """The pools, nodes or policy that depend on an undecodable fact.

    ``drivers``: those whose devices dray allocates.
    """
    fact = UndecodableFact(subject, why)
    if kind in _UNUSED:
        return fact
    names = tuple(map(_name, subject.removeprefix(f"{subject_prefix(kind)}.").split(".")))
    try:
        return _about(kind, names, payload, fact, drivers)
    except msgspec.MsgspecError:
        return replace(fact, pool=names[0] if kind in _OF_POOLS else "", everywhere=True)


def _about(
    kind: type[Fact],
    names: tuple[str, ...],
    payload: bytes,
    fact: UndecodableFact,
    drivers: Container[str],
) -> UndecodableFact:
    if kind in _OF_POOLS:
        return _of_pool(names[0], payload, fact)
    if kind is NodeObserved:
        node = json_codec.decode(payload, _NODE_PLACE).node
        return replace(fact, pools=_named(node.pool, node.leaving), nodes=names[:1])
    if kind is SliceObserved:
        found = json_codec.decode(payload, _SLICE_PLACE).slice
        if found.driver not in drivers:
            return fact
        return replace(fact, nodes=_named(found.node), everywhere=not found.node)
    if kind in (PoolObserved, DomainObserved):
        return replace(fact, pools=names[:1])
    if kind is PolicyObserved:
        return replace(fact, policy=names[0])
    return replace(fact, everywhere=True)


def _of_pool(pool: str, payload: bytes, fact: UndecodableFact) -> UndecodableFact:
    place = json_codec.decode(payload, _PLACE)
    if place.deleted and place.moved_to is None:
        return replace(fact, pool=pool)
    held = place.claim.allocation or _Allocation()
    nodes = dict.fromkeys(_named(*(one.id.pool for one in held.devices), held.node))
    return replace(fact, pool=pool, pools=_named(pool), nodes=tuple(nodes))


def _named(*names: str) -> tuple[str, ...]:
    return tuple(name for name in names if name)


def _name(token: str) -> str:
    """The name encoded in a token of a subject; DNS names have no underscores."""
    return "" if token == "-" else token.replace("_", ".")
