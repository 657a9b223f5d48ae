"""What was published of each object, and what has to be published next. Pure.

A fact never goes back in revision, and a changed fact never repeats one: its message id is made
of subject and revision, and the bus drops what it has seen.
"""

import msgspec

from dray.domain.equality import same
from dray.messages.base import subject_of
from dray.messages.facts import ClaimObserved, Fact, PodObserved
from dray_claim_controller.observe.facts import key_of, uid_of
from dray_claim_controller.observe.seen import Key

_DERIVED = ("node", "slice", "cluster", "domain")
"""Facts made of several objects: their revision is raised where the content changed."""


class Outbox:
    """The last published fact of every key, tombstones included."""

    def __init__(self) -> None:
        self._last: dict[Key, Fact] = {}

    def published(self, fact: Fact) -> None:
        """The bus has stored ``fact``."""
        self._last[key_of(fact)] = fact

    def last(self, key: Key) -> Fact | None:
        """The last fact about ``key``, or None; tombstones count as none."""
        fact = self._last.get(key)
        return None if fact is None or fact.deleted else fact

    def newest(self, key: Key) -> Fact | None:
        """The last fact about ``key``, or None; it may be a tombstone."""
        return self._last.get(key)

    def living(self) -> list[Key]:
        """Keys whose last fact is no tombstone."""
        return [key for key, fact in self._last.items() if not fact.deleted]

    def plan(self, key: Key, fact: Fact | None, revision: int) -> list[Fact]:
        """What to publish so that readers know ``fact`` (None: gone at ``revision``)."""
        return plan(key, self._last.get(key), fact, revision)


def plan(key: Key, before: Fact | None, fact: Fact | None, revision: int) -> list[Fact]:
    """What to publish after ``before`` so that readers know ``fact``."""
    if fact is None:
        gone = before is None or before.deleted
        return [] if gone or before is None else [_tombstone(before, revision)]
    if before is None:
        return [fact]
    if not before.deleted and _same(before, fact):
        return []
    replaced = before.deleted or uid_of(before) != uid_of(fact)
    if _read_at(fact) < _read_at(before) and not replaced and key.kind not in _DERIVED:
        return []
    newer = msgspec.structs.replace(fact, revision=max(fact.revision, before.revision + 1))
    moved = subject_of(before) != subject_of(fact) and not before.deleted
    if fact.revision > before.revision:
        newer = fact
    return [_moved(before, newer), newer] if moved else [newer]


def _read_at(fact: Fact) -> int:
    """The resourceVersion of the object that the fact is of. A fact of a claim or pod says more
    than its object, so that its own revision may be above that."""
    match fact:
        case ClaimObserved(claim=claim):
            return claim.resource_version
        case PodObserved(pod=pod):
            return pod.resource_version
        case _:
            return fact.revision


def _same(before: Fact, fact: Fact) -> bool:
    return same(msgspec.structs.replace(before, revision=fact.revision), fact)


def _moved(before: Fact, newer: Fact) -> Fact:
    """The tombstone of a subject that an object has left: who reads no other must not think that
    it is gone."""
    grave = _tombstone(before, newer.revision)
    match newer:
        case ClaimObserved(claim=claim):
            return msgspec.structs.replace(grave, moved_to=claim.pool)
        case PodObserved(pod=pod):
            return msgspec.structs.replace(grave, moved_to=pod.pool)
        case _:
            return grave


def _tombstone(fact: Fact, revision: int) -> Fact:
    return msgspec.structs.replace(fact, deleted=True, revision=max(revision, fact.revision + 1))
