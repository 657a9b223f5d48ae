"""The node tables of all pools and their indexes, limited in number: a cache.

The use of cards and the assumed resources of nodes are updated at once. A changed node is only
marked, and read again on the next access: applying many facts in a row reads each node once.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from dray_allocator.devices.published_devices import Card
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.ratings import NodeScore, Scoring
from dray_allocator.nodes.table import NodeTable, Source

MOST_INDEXES: Final = 1024
"""The maximum number of indexes; the least recently used one is dropped first."""
_MOST_BYTES: Final = 2**26
"""The limit for the keys of all indexes; at least ``_FEWEST`` indexes are kept."""
_FEWEST: Final = 16
_MOST_SCORES: Final = 64
"""The maximum number of scores for nodes that are scored one by one."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Which nodes belong to which pool now."""

    nodes: Callable[[str], list[str]]
    """By pool, the nodes on which dray allocates."""
    of: Callable[[str], str]
    """By node, the pool for which dray allocates on it; empty for none."""


class NodeTables:
    """One node table per pool, made on first use."""

    def __init__(self, source: Source, pools: Pools) -> None:
        self._source = source
        self._pools = pools
        self.by_pool: dict[str, NodeTable] = {}
        self._pool_of: dict[str, str] = {}
        """By node, the pool whose table contains it."""
        self._nodes: dict[str, bool] = {}
        """Nodes to read again, and whether to read their cards, too."""
        self._indexes: dict[tuple[str, Hashable, bytes], NodeIndex] = {}
        self._scored: dict[tuple[str, Hashable, bytes], tuple[FilterPlan, NodeScore]] = {}

    def node_changed(self, name: str, *, cards: bool = False) -> None:
        """A node, its pool, or (``cards``) its cards changed."""
        if self.by_pool:  # The first table reads everything.
            self._nodes[name] = cards or self._nodes.get(name, False)

    def use_changed(self, node: str, cards: Sequence[Card] = ()) -> None:
        """Assumed resources of a node, or the use of its cards changed."""
        pool = self._pool_of.get(node)
        if pool is not None and not self._nodes.get(node):
            self.by_pool[pool].use_changed(node, cards)  # Otherwise it is read again.

    def forget_indexes(self) -> None:
        """Drop the indexes: a DeviceClass or the CEL environment changed."""
        self._indexes.clear()
        self._scored.clear()

    def forget(self) -> None:
        """Drop everything: the facts were lost."""
        self.by_pool.clear()
        self._pool_of.clear()
        self._nodes.clear()
        self._indexes.clear()
        self._scored.clear()

    def of(self, pool: str) -> NodeTable:
        """The up-to-date table of a pool."""
        if self._nodes:
            self._read_again()
        table = self.by_pool.get(pool)
        if table is None:
            table = self.by_pool[pool] = NodeTable(self._source)
            for name in self._pools.nodes(pool):
                table.put(name)
                self._pool_of[name] = pool
        return table

    def index(
        self,
        pool: str,
        signature: bytes,
        *,
        scoring: Scoring,
        plan: Callable[[NodeTable], FilterPlan],
        selectors: SelectorCache,
    ) -> NodeIndex:
        """The up-to-date index of a pool for a signature.

        ``plan`` is called if there is no such index; plans of equal signatures must be equal.
        """
        if self._nodes:
            self._read_again()
        key = (pool, scoring.key, signature)
        index = self._indexes.pop(key, None)
        if index is None:
            table = self.of(pool)
            self._make_room(table)
            planned = plan(table)
            index = NodeIndex(table, planned, scoring.make(table, planned))
        self._indexes[key] = index
        index.catch_up(selectors)
        return index

    def score(
        self,
        pool: str,
        signature: bytes,
        *,
        scoring: Scoring,
        plan: Callable[[NodeTable], FilterPlan],
        selectors: SelectorCache,
    ) -> tuple[FilterPlan, NodeScore]:
        """The scores of single nodes for a signature, without an index.

        ``plan``: as for ``index``; its needs of nodes are ignored.
        """
        table = self.of(pool)
        key = (pool, scoring.key, signature)
        known = self._scored.pop(key, None)
        if known is None:
            while len(self._scored) >= _MOST_SCORES:
                del self._scored[next(iter(self._scored))]
            planned = plan(table)
            known = (planned, scoring.make(table, planned))
        self._scored[key] = known
        known[0].update(table, selectors)
        return known

    def _make_room(self, table: NodeTable) -> None:
        most = max(_FEWEST, min(MOST_INDEXES, _MOST_BYTES // (8 * max(table.height, 1))))
        while len(self._indexes) >= most:
            del self._indexes[next(iter(self._indexes))]

    def _read_again(self) -> None:
        changed: dict[str, None] = {}
        for name, cards in self._nodes.items():
            changed |= dict.fromkeys(self._put(name, cards))
        self._nodes.clear()
        for pool in changed:
            self.by_pool[pool].renumber_if_needed()

    def _put(self, name: str, cards: bool) -> list[str]:
        """Read a node again; return the pools whose tables have or had it."""
        before, now = self._pool_of.pop(name, ""), self._pools.of(name)
        if before and before != now:
            self.by_pool[before].drop(name)
        table = self.by_pool.get(now)
        if table is not None:
            table.put(name, cards=cards)
            self._pool_of[name] = now
        return [pool for pool in (before, now) if pool in self.by_pool]
