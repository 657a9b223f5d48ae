"""The node tables of all pools, kept true, and the indexes over them, within bounds.

What is used of a card or held on a node counts at once, while all about it is at hand. A node that
changed is only noted and read again when somebody asks, so that folding many facts in a row costs
each node once. All of it is a cache: it changes no answer.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from dray_allocator.devices.node_devices import Card
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.ratings import NodeScore, Scoring
from dray_allocator.nodes.source import Source
from dray_allocator.nodes.table import NodeTable

MOST_INDEXES: Final = 1024
"""Signatures whose order of nodes is kept; the one used longest ago goes first."""
_MOST_BYTES: Final = 2**26
"""For the keys of all of them; at least ``_FEWEST`` are kept."""
_FEWEST: Final = 16
_MOST_SCORES: Final = 64
"""Signatures whose scores are kept for nodes that are rated one by one."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Which nodes are whose, as the facts say now."""

    nodes: Callable[[str], list[str]]
    """The nodes of a pool on which dray allocates."""
    of: Callable[[str], str]
    """The pool for which dray allocates on a node; empty for none."""


class NodeTables:
    """A node table per pool, made when it is first asked for."""

    def __init__(self, source: Source, pools: Pools) -> None:
        self._source = source
        self._pools = pools
        self._boards: dict[str, NodeTable] = {}
        self._pool_of: dict[str, str] = {}
        """The pool on whose node table a node stands."""
        self._nodes: dict[str, bool] = {}
        """Nodes to be looked at, and whether at their cards too."""
        self._indexes: dict[tuple[str, Hashable, bytes], NodeIndex] = {}
        self._scored: dict[tuple[str, Hashable, bytes], tuple[FilterPlan, NodeScore]] = {}

    def node_changed(self, name: str, *, cards: bool = False) -> None:
        """A node or its pool, and maybe its cards are not as they were."""
        if self._boards:  # Who makes the first one reads everything.
            self._nodes[name] = cards or self._nodes.get(name, False)

    def use_changed(self, node: str, cards: Sequence[Card] = ()) -> None:
        """More or less is held on a node, or is used of cards of it."""
        pool = self._pool_of.get(node)
        if pool is not None and not self._nodes.get(node):
            self._boards[pool].use_changed(node, cards)  # Else it is yet to be read, cards and all.

    def forget_indexes(self) -> None:
        """What requests mean changed: a DeviceClass, or the language of selectors."""
        self._indexes.clear()
        self._scored.clear()

    def forget(self) -> None:
        """Start from nothing: the facts were lost."""
        self._boards.clear()
        self._pool_of.clear()
        self._nodes.clear()
        self._indexes.clear()
        self._scored.clear()

    def of(self, pool: str) -> NodeTable:
        """A pool's node table, as things are now."""
        if self._nodes:
            self._read_again()
        table = self._boards.get(pool)
        if table is None:
            table = self._boards[pool] = NodeTable(self._source)
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
        """The nodes of a pool in the order of a signature, as things are now.

        ``plan`` is asked where there is no such index. It must be the same for equal signatures.
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
        """How pods of a signature rate nodes of a pool one by one, without an index.

        ``plan`` as for ``index``; what it needs of nodes is not looked at.
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
        known[0].learn(table, selectors)
        return known

    def _make_room(self, table: NodeTable) -> None:
        most = max(_FEWEST, min(MOST_INDEXES, _MOST_BYTES // (8 * max(table.height, 1))))
        while len(self._indexes) >= most:
            del self._indexes[next(iter(self._indexes))]

    def _read_again(self) -> None:
        for name, cards in self._nodes.items():
            self._put(name, cards)
        self._nodes.clear()
        for table in self._boards.values():
            table.renumber_if_outgrown()

    def _put(self, name: str, cards: bool) -> None:
        before, now = self._pool_of.pop(name, ""), self._pools.of(name)
        if before and before != now:
            self._boards[before].drop(name)
        table = self._boards.get(now)
        if table is not None:
            table.put(name, cards=cards)
            self._pool_of[name] = now
