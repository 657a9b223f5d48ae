"""Which facts are published about an object that changed. Pure."""

from typing import Any

from dray.messages.facts import FACTS, Fact, NodeObserved, SliceObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.facts.build import NodeHistory, fact_of
from dray_claim_controller.facts.handover import QuarantineTerms
from dray_claim_controller.facts.outbox import plan
from dray_claim_controller.facts.size_limit import fit_to_limit

_NO_HISTORY = NodeHistory()
FACT_OF: dict[str, type[Fact]] = {fact.NAME: fact for fact in FACTS}


class Publish(RecordedRule[tuple[Fact, ...]], frozen=True, kw_only=True, tag="publish"):
    """Which facts to publish about an object that changed; none if all are published."""

    key: FactKey
    revision: int
    """The revision of the change."""
    before: Any = None
    """The last fact about it (a ``Fact``), tombstones included."""
    doubted: tuple[Any, ...] = ()
    """Later facts, if it is unknown whether they are stored."""
    restored: bool = False
    """Whether the object is in an older version than ``before``, because the API server's store was
    restored from a backup."""
    left: tuple[tuple[str, int], ...] = ()
    """For nodes: the highest node-left revision by domain."""
    closing: tuple[str, ...] = ()
    recall: QuarantineTerms = QuarantineTerms()
    """For nodes."""
    limit_bytes: int = 0
    """The limit of the bus, if the answer without a limit was too large for it; 0: no limit."""

    def answer(self, cache: ObjectCache) -> tuple[Fact, ...]:
        before = self.before
        is_node = self.key.kind == NodeObserved.NAME
        fact = fact_of(cache, self.key, self._history() if is_node else _NO_HISTORY)
        if fact is None and self.key.kind != SliceObserved.NAME and cache.is_unreadable(self.key):
            return ()  # The object exists: its last fact stays.
        if not self.limit_bytes:
            return tuple(plan(self.key, before, fact, self.revision, self.doubted, self.restored))
        reduced = None if fact is None else fit_to_limit(fact, self.limit_bytes)
        if fact is not None and reduced is None:
            return ()
        planned = plan(self.key, before, reduced, self.revision, self.doubted, self.restored)
        fitted = (fit_to_limit(one, self.limit_bytes) for one in planned)
        return tuple(one for one in fitted if one is not None)

    def _history(self) -> NodeHistory:
        node = self.before if isinstance(self.before, NodeObserved) else None
        published, tombstone = (None, node) if node and node.deleted else (node, None)
        left = {(domain, self.key.identity): revision for domain, revision in self.left}
        return NodeHistory(published, left, self.closing, self.recall, tombstone)
