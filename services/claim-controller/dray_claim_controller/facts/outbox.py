"""What was published of each object, and what has to be published next. Pure.

The revision of a fact never decreases, and a changed fact never repeats one: its message id is made
of subject and revision, and the bus drops messages with an id that it has seen.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from dray.api.equality import strictly_equal
from dray.kube.ports import Resource
from dray.messages.base import subject_of
from dray.messages.facts import (
    ClaimObserved,
    Fact,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    SliceObserved,
)
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import key_of, uid_of

_DERIVED = ("node", "slice", "cluster", "domain", "group")
_OF_NODES = (
    "uid",
    "cpu_milli",
    "memory_bytes",
    "pods",
    "resources",
    "labels",
    "taints",
    "unschedulable",
    "ready",
)
"""The fields of a node's fact that come from the Node itself."""
"""Facts made of several objects: their revision is raised if the content changed."""


_BY_UID = ("claim", "pod")
"""Facts by UIDs, which no other object will ever have."""
_REMEMBERED_ENDED = 4_096


class Outbox:
    """The last published fact of every key, tombstones included; for kinds in ``_BY_UID``, only the
    newest tombstones."""

    def __init__(self) -> None:
        self._last: dict[FactKey, Fact] = {}
        self._doubted: dict[FactKey, dict[str, Fact]] = {}
        """By subject."""
        self._ended: OrderedDict[FactKey, None] = OrderedDict()
        """Keys in ``_BY_UID`` whose last fact is a tombstone, oldest first."""

    def published(self, fact: Fact) -> None:
        """The bus has stored ``fact``."""
        key = key_of(fact)
        self._last[key] = fact
        if (doubted := self._doubted.get(key)) is not None:
            doubted.pop(subject_of(fact), None)
            if not doubted:
                del self._doubted[key]
        self._ended.pop(key, None)
        if fact.deleted and key.kind in _BY_UID:
            self._ended[key] = None
            if len(self._ended) > _REMEMBERED_ENDED:
                del self._last[self._ended.popitem(last=False)[0]]

    def doubt(self, fact: Fact) -> None:
        """Whether the bus has stored ``fact`` is unknown."""
        doubted, subject = self._doubted.setdefault(key_of(fact), {}), subject_of(fact)
        if fact.deleted and subject in doubted:
            # The fact that the tombstone was to end may still be there.
            fact = msgspec.structs.replace(doubted[subject], revision=fact.revision)
        doubted[subject] = fact

    def doubted(self, key: FactKey) -> tuple[Fact, ...]:
        """Facts about ``key`` after the last stored one that may be stored."""
        return tuple(self._doubted.get(key, {}).values())

    def last(self, key: FactKey) -> Fact | None:
        """The last fact about ``key``, or None; tombstones count as none."""
        fact = self._last.get(key)
        return None if fact is None or fact.deleted else fact

    def newest(self, key: FactKey) -> Fact | None:
        """The last fact about ``key``, or None; it may be a tombstone."""
        return self._last.get(key)

    def keys(self) -> tuple[FactKey, ...]:
        """All keys, those of tombstones included."""
        return tuple(self._last)

    def living(self) -> Iterator[FactKey]:
        """Keys whose last fact is not a tombstone. Facts may be added while it is iterated."""
        return (key for key in self.keys() if self.last(key) is not None)

    def plan(self, key: FactKey, fact: Fact | None, revision: int) -> list[Fact]:
        """What to publish so that readers know ``fact`` (None: gone at ``revision``)."""
        return plan(key, self._last.get(key), fact, revision, self.doubted(key))


def plan(
    key: FactKey,
    before: Fact | None,
    fact: Fact | None,
    revision: int,
    doubted: Sequence[Fact] = (),
    restored: bool = False,
) -> list[Fact]:
    """What to publish after ``before`` so that readers know ``fact``. ``doubted``: later facts that
    may be stored; then ``fact`` is published even if it equals ``before``. ``restored``: the object
    went back to a version that is older than ``before``."""
    if doubted:
        return _plan_in_doubt(before, fact, revision, doubted)
    if fact is None:
        gone = before is None or before.deleted
        return [] if gone or before is None else [_tombstone(before, revision)]
    if before is None:
        return [fact]
    if not before.deleted and _same(before, fact):
        return []
    replaced = before.deleted or uid_of(before) != uid_of(fact)
    is_behind = read_at(fact) < read_at(before) and not restored
    if is_behind and not replaced and key.kind not in _DERIVED:
        return []
    newer = msgspec.structs.replace(fact, revision=max(fact.revision, before.revision + 1))
    moved = subject_of(before) != subject_of(fact) and not before.deleted
    if fact.revision > before.revision:
        newer = fact
    return [_moved(before, newer), newer] if moved else [newer]


def read_at(fact: Fact) -> int:
    """The resourceVersion of the object that the fact is about. A fact about a claim or pod
    contains more than its object, so its own revision may be higher."""
    match fact:
        case ClaimObserved(claim=claim):
            return claim.resource_version
        case PodObserved(pod=pod):
            return pod.resource_version
        case _:
            return fact.revision


def kind_behind(cache: ObjectCache, key: FactKey, fact: Fact) -> Resource | None:
    """The kind of a fact's object, if its watch has not shown yet what the fact was made of. Facts
    built from the cache now would take back what an earlier term has published."""
    is_of_agent = key.kind == InventoryObserved.NAME  # About a node, with its own revisions.
    about = FactKey(NodeObserved.NAME, key.identity) if is_of_agent else key
    if (found := cache.object_of(about)) is None or (is_of_agent and fact.deleted):
        return None
    (resource, cached), revision = found, fact.revision if fact.deleted else read_at(fact)
    if cache.listed.get(resource.plural, 0) >= revision and not is_of_agent:
        return None
    if cached is None:
        return None if fact.deleted else resource
    return None if cached >= revision or _is_as_cached(cache, fact) else resource


def _is_as_cached(cache: ObjectCache, fact: Fact) -> bool:
    """Whether a fact that is made of several objects agrees with the cache about its own object.
    Its revision may be that of another object."""
    match fact:
        case _ if fact.deleted:
            return False
        case InventoryObserved():
            return True  # It only says that the node exists.
        case SliceObserved(slice=observed):
            cached, _ = cache.devices.slices.get(observed.name, (None, 0))
            return strictly_equal(cached, observed)
        case NodeObserved(node=node):
            bare = cache.nodes.get(node.name)
            return bare is not None and all(
                getattr(bare, name) == getattr(node, name) for name in _OF_NODES
            )
        case _:
            return False


def _plan_in_doubt(
    before: Fact | None, fact: Fact | None, revision: int, doubted: Sequence[Fact]
) -> list[Fact]:
    """Facts with revisions above all that may be stored, on every subject that may have one."""
    stored = [one for one in (before, *doubted) if one is not None]
    revision = max(revision, *(one.revision + 1 for one in stored))
    subjects = {subject_of(one): one for one in stored if not one.deleted}
    if fact is None:
        return [_tombstone(one, revision) for one in subjects.values()]
    newer = msgspec.structs.replace(fact, revision=max(fact.revision, revision))
    subjects.pop(subject_of(newer), None)
    return [*(_moved(one, newer) for one in subjects.values()), newer]


def _same(before: Fact, fact: Fact) -> bool:
    """Whether two facts are the same, apart from their revision. Most fields of unchanged facts are
    the same objects, which need no comparison."""
    return type(before) is type(fact) and all(
        (one := getattr(before, name)) is (other := getattr(fact, name))
        or strictly_equal(one, other)
        for name in fact.__struct_fields__
        if name != "revision"
    )


def _moved(before: Fact, newer: Fact) -> Fact:
    """The tombstone on a subject that an object has left. If a claim or pod moved, it names the new
    pool, so that readers of the old subject alone know that the object still exists."""
    tombstone = _tombstone(before, newer.revision)
    match newer:
        case ClaimObserved(claim=claim):
            return msgspec.structs.replace(tombstone, moved_to=claim.pool)
        case PodObserved(pod=pod):
            return msgspec.structs.replace(tombstone, moved_to=pod.pool)
        case _:
            return tombstone


def _tombstone(fact: Fact, revision: int) -> Fact:
    return msgspec.structs.replace(fact, deleted=True, revision=max(revision, fact.revision + 1))
