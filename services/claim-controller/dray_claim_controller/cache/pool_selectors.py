"""Which pools select a node, by the node's labels. Pure."""

from collections.abc import Mapping

from dray.api.names import POOL_LABEL
from dray.api.pods import Pool
from dray.kube.ports import NODES, POOLS, Object
from dray_claim_controller.cache.resources import read


def selects(pool: Pool, labels: Mapping[str, str]) -> bool:
    """Whether the pool has nodes with these labels (protocol: Pools and nodes)."""
    if pool.node_selector is None:
        return labels.get(POOL_LABEL) == pool.name
    return all(labels.get(name) == value for name, value in pool.node_selector.items())


class PoolSelectors:
    """The pools of ``objects`` (by plural and name), read, and the nodes that they select."""

    def __init__(self, objects: Mapping[str, Mapping[str, Object]]) -> None:
        self._objects = objects
        self._read: tuple[Mapping[str, Object], Mapping[str, Pool]] = ({}, {})
        """The objects that pools were read from last, and these pools."""
        self._selecting: tuple[
            Mapping[str, Pool], dict[str, tuple[dict[str, str], tuple[str, ...]]]
        ] = ({}, {})
        """Pools, and by node: its labels, and the names of those pools that select them."""

    def pools(self) -> Mapping[str, Pool]:
        """All readable pools by name. Pools are read again only after one of their objects changed;
        an equal result is the same mapping, so that its identity tells whether it changed."""
        objects, (known_objects, known) = self._objects[POOLS.plural], self._read
        # A changed object is another one, so comparing the mappings mostly compares identities.
        if known_objects != objects:
            pools: Mapping[str, Pool] = {
                name: pool
                for name, obj in objects.items()
                if (pool := read(POOLS, obj)[0]) is not None
            }
            self._read = (dict(objects), known if known == pools else pools)
        return self._read[1]

    def of_node(self, node: str) -> tuple[str, ...]:
        """Names of the readable pools that select a node, sorted."""
        obj = self._objects[NODES.plural].get(node)
        if obj is None:
            return ()
        pools, labels = self.pools(), obj["metadata"].get("labels") or {}
        if self._selecting[0] is not pools:
            self._selecting = (pools, {})
        known = self._selecting[1].get(node)
        if known is None or known[0] != labels:
            names = sorted(pool.name for pool in pools.values() if selects(pool, labels))
            known = self._selecting[1][node] = (labels, tuple(names))
        return known[1]

    def may_be_contested(self, node: str) -> bool:
        """Whether claims and slices may decide which pool has the node."""
        names = self.of_node(node)
        some_unreadable = len(self._objects[POOLS.plural]) > len(self.pools())
        return len(names) > 1 or (some_unreadable and bool(names))
