"""Which pools select a node, by the node's labels. Pure."""

from collections.abc import Iterable, Mapping

from dray.api.names import POOL_LABEL
from dray.api.pods import Pool
from dray_claim_controller.cache.changes import enter, leave

_Label = tuple[str, str]
"""Name and value."""


def selects(pool: Pool, labels: Mapping[str, str]) -> bool:
    """Whether the pool has nodes with these labels (protocol: Pools and nodes). The default pool
    does not have nodes that are labelled for another pool."""
    if pool.default and labels.get(POOL_LABEL, pool.name) != pool.name:
        return False
    return all(labels.get(name) == value for name, value in _labels_of(pool))


def _labels_of(pool: Pool) -> tuple[_Label, ...]:
    """The labels of a pool's nodes; none: it selects all nodes."""
    if pool.node_selector is None:
        return ((POOL_LABEL, pool.name),)
    return tuple(sorted(pool.node_selector.items()))


class PoolSelectors:
    """Pools and nodes by name, and which pool selects which node. A changed pool costs time only
    for the nodes that it selects, a changed node only for its labels."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self._unreadable: dict[str, None] = {}
        self._nodes: dict[str, Mapping[str, str]] = {}
        """Labels by node."""
        self._nodes_with: dict[_Label, dict[str, None]] = {}
        self._pools_with: dict[_Label | None, dict[str, None]] = {}
        """Pools by one of the labels that they select, or None: they select all nodes."""
        self._selecting: dict[str, tuple[str, ...]] = {}
        """By node, the sorted names of the pools that select it; nodes without such a pool are left
        out."""
        self._selected: dict[str, dict[str, None]] = {}
        """By pool, the nodes that it selects."""
        self._contested: dict[str, dict[str, None]] = {}
        """By pool, those of its nodes that other pools also select."""

    def pools(self) -> Mapping[str, Pool]:
        """All readable pools by name."""
        return self._pools

    def unreadable(self) -> Iterable[str]:
        """Names of the pools that can't be read, and have no earlier readable version."""
        return self._unreadable.keys()

    def of_node(self, node: str) -> tuple[str, ...]:
        """Names of the readable pools that select a node, sorted."""
        return self._selecting.get(node, ())

    def selected_by(self, pool: str) -> Iterable[str]:
        """The nodes that a readable pool selects."""
        return self._selected.get(pool, {}).keys()

    def contested_with(self, pool: str) -> Iterable[str]:
        """The nodes that a readable pool and others select."""
        return self._contested.get(pool, {}).keys()

    def selected(self, pool: Pool) -> list[str]:
        """The nodes that a pool would select if it were there."""
        having = [self._nodes_with.get(label, {}) for label in _labels_of(pool)]
        fewest = min(having, key=len) if having else self._nodes
        return [node for node in fewest if selects(pool, self._nodes[node])]

    def may_be_contested(self, node: str) -> bool:
        """Whether claims and slices may decide which pool has the node."""
        names = self.of_node(node)
        return len(names) > 1 or (bool(self._unreadable) and bool(names))

    def put_pool(self, name: str, pool: Pool | None) -> list[str]:
        """A pool is there, or changed; None: it can't be read, and could not be before. Returns the
        nodes whose membership may have changed."""
        concerned = self.drop_pool(name)
        if pool is None:
            self._unreadable[name] = None
            return list(self._nodes)
        self._pools[name] = pool
        labels = _labels_of(pool)
        enter(self._pools_with, labels[0] if labels else None, name)
        selected = self.selected(pool)
        for node in selected:
            self._set(node, (*self.of_node(node), name))
        return list(dict.fromkeys((*concerned, *selected)))

    def drop_pool(self, name: str) -> list[str]:
        """A pool is gone. Returns the nodes whose membership may have changed."""
        was_unreadable = name in self._unreadable
        self._unreadable.pop(name, None)
        pool = self._pools.pop(name, None)
        concerned = list(self._nodes) if was_unreadable else list(self.selected_by(name))
        if pool is not None:
            labels = _labels_of(pool)
            leave(self._pools_with, labels[0] if labels else None, name)
            for node in tuple(self.selected_by(name)):
                self._set(node, [one for one in self.of_node(node) if one != name])
        return concerned

    def put_node(self, node: str, labels: Mapping[str, str]) -> None:
        """A node is there, or changed."""
        known = self._nodes.get(node)
        if known == labels:
            return
        self.drop_node(node)
        self._nodes[node] = labels
        for label in labels.items():
            enter(self._nodes_with, label, node)
        names = {*self._pools_with.get(None, ())}
        for label in labels.items():
            names.update(self._pools_with.get(label, ()))
        self._set(node, [name for name in names if selects(self._pools[name], labels)])

    def drop_node(self, node: str) -> None:
        """A node is gone."""
        for label in self._nodes.pop(node, {}).items():
            leave(self._nodes_with, label, node)
        self._set(node, ())

    def _set(self, node: str, names: Iterable[str]) -> None:
        """Set which pools select a node."""
        for name in self.of_node(node):
            leave(self._selected, name, node)
            leave(self._contested, name, node)
        found = tuple(sorted(names))
        if not found:
            self._selecting.pop(node, None)
            return
        self._selecting[node] = found
        for name in found:
            enter(self._selected, name, node)
            if len(found) > 1:
                enter(self._contested, name, node)
