"""Nodes in the order of a pod's preference, so that few must be searched.

The equivalence class of a card determines its preference key. A node can't be better than its best
cards that fit, so nodes are tried in the order of that bound until none can be better.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.ordered_search import PreferenceKey
from dray_allocator.devices.published_devices import Card
from dray_allocator.nodes.columns import Flags, Places, Whole, expand_ranges
from dray_allocator.nodes.index import NONE, NodeIndex
from dray_allocator.scoring.preference import card_key, model_of

_MODEL: Final = "preferred model"
QUESTIONS: Final[Mapping[Hashable, Callable[[Card], Hashable]]] = {
    _MODEL: lambda card: model_of(card.device)
}
"""The properties that classes of cards must distinguish, besides capacities."""


class PreferredNode(NamedTuple):
    """A node that may fit. The lowest is tried first."""

    bound: tuple[PreferenceKey, ...]
    """The best preference keys that are possible, as ``worst_first``."""
    key: int
    """The index's key: of equally preferred nodes, the one with the better score is first."""
    uid: str
    row: int

    def at_best(self, level: int) -> tuple[int, tuple[PreferenceKey, ...], int, tuple[int, str]]:
        """The best ``Choice.rank`` that is possible with this link level."""
        return 0, self.bound, level, (self.key, self.uid)


def in_order(
    index: NodeIndex, asks: Sequence[DeviceRequirements]
) -> Iterator[PreferredNode] | None:
    """The nodes of an index, the most preferred first; None if classes of cards don't determine
    preferences."""
    return (
        _NodeOrder(index, asks).groups() if index.table.card_kinds.distinguishes(_MODEL) else None
    )


class _NodeOrder:
    """Iterates over the nodes by the worst card that the pod must take."""

    def __init__(self, index: NodeIndex, asks: Sequence[DeviceRequirements]) -> None:
        self.index = index
        table = index.table
        kinds = table.card_kinds
        examples = [kinds.example(kind).device for kind in range(kinds.count)]
        keys = [[card_key(ask.preference, device) for device in examples] for ask in asks]
        self.values = sorted({key for some in keys for key in some})
        ranks = {key: rank for rank, key in enumerate(self.values)}
        self.ranks = [np.array([ranks[key] for key in some], np.int64) for some in keys]
        """Per request and class of card, the number of better preference keys."""
        self.keys = index.keys()

    def groups(self) -> Iterator[PreferredNode]:
        """The nodes whose worst card has rank 0, then 1 and so on."""
        table = self.index.table
        if not self.values:
            return
        places = slice(0, table.places)
        rows, kinds = table.row[places], table.kind[places]
        found = [(need, need.fitting(table, places)) for need in self.index.plan.cards]
        ranks = [rank[kinds] for rank in self.ranks]
        left = self.keys != NONE
        for level in range(len(self.values)):
            enough = left.copy()
            for (need, fitting), rank in zip(found, ranks, strict=True):
                count = np.bincount(rows[fitting & (rank <= level)], minlength=table.height)
                enough &= count >= need.count
            left &= ~enough
            yield from self._sorted(enough, level)

    def _sorted(self, which: Flags, level: int) -> Iterator[PreferredNode]:
        table = self.index.table
        rows = which.nonzero()[0]
        if sum(need.count for need in self.index.plan.cards) == 1:
            bounds = np.full((len(rows), 1), level, np.int64)
        else:
            bounds = self._bounds(rows)
        order = np.lexsort((self.keys[rows], *bounds.T[::-1]))
        liked = (
            PreferredNode(
                tuple(self.values[rank] for rank in bounds[at].tolist()),
                self.keys.item(rows.item(at)),
                table.uid(rows.item(at)),
                rows.item(at),
            )
            for at in order.tolist()
        )
        # Nodes with equal hashes go by their UIDs; they are rare.
        return iter(sorted(liked)) if table.ties.duplicates else liked

    def _bounds(self, rows: Places) -> Whole:
        """Per row, the ranks of the best cards that fit, the worst of them first."""
        table = self.index.table
        places, owner = expand_ranges(table.first[rows], table.count[rows])
        found: list[Whole] = []
        for need, rank in zip(self.index.plan.cards, self.ranks, strict=True):
            fitting = need.fitting(table, places)
            whose, ranks = owner[fitting], rank[table.kind[places[fitting]]]
            order = np.lexsort((ranks, whose))
            first = np.searchsorted(whose[order], np.arange(len(rows)))
            found.append(ranks[order][first[:, None] + np.arange(need.count)])
        return -np.sort(-np.hstack(found), axis=1)
