"""Which of the pools that select a node has it. Pure.

A pool never takes a node from another pool by also selecting it. Only Kubernetes objects decide
which pool had it first, so that the answer is the same after every restart and after the loss of
the bus. In this order: claims that dray allocated on it, the pool that its slices name, claims that
kube-scheduler allocated on it, the older pool, the lower UID
(docs/adr/0028-pools-keep-their-namespaces-and-nodes.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType

from dray.api.devices import ResourceSlice
from dray.api.names import DRIVER, POOL_LABEL
from dray.api.pods import Pool
from dray.kube.convert import pool_from, time_from
from dray.kube.ports import POOLS, SLICES, Object
from dray_claim_controller.cache.object_cache import ObjectCache

_POOL_NAME = "pool_name"


def contested_nodes(objects: ObjectCache, pool: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Nodes that a pool and others select, or that it alone selects though another has them, and
    the pools that select each."""
    selectors = objects.pool_selectors
    some_unreadable = any(selectors.unreadable())
    for node in selectors.selected_by(pool) if some_unreadable else selectors.contested_with(pool):
        names = selectors.of_node(node)
        if len(names) > 1 or _unreadable_owner(objects, node, names):
            yield node, names


def assigned_pool(objects: ObjectCache, node: str) -> Pool | None:
    """The pool that has a node, of those that select it."""
    return objects.pool_selectors.pools().get(assigned_name(objects, node))


def assigned_name(objects: ObjectCache, node: str) -> str:
    """The name of the pool that has a node: one that selects it, or one that can't be read and
    had it before; empty if no pool has it."""
    names = objects.pool_selectors.of_node(node)
    if not names:
        return ""
    return _unreadable_owner(objects, node, names) or _first(objects, node, names)


def nodes_of_others(objects: ObjectCache, pool: Object) -> Iterator[tuple[str, str]]:
    """Nodes that ``pool`` would select if it existed as given, but that other pools would have;
    each with that other pool."""
    wanted = pool_from(pool)
    for node in objects.pool_selectors.selected(wanted):
        others = [name for name in objects.pool_selectors.of_node(node) if name != wanted.name]
        if others:
            first = _first(objects, node, (wanted.name, *others), {wanted.name: pool})
            if first != wanted.name:
                yield node, first


def _unreadable_owner(objects: ObjectCache, node: str, names: Sequence[str]) -> str:
    """The pool that can't be read and has the node by stronger evidence than ``names``, or empty.
    Nobody allocates there until it can be read: what it asks for is not known."""
    candidates = {*objects.pool_selectors.unreadable()}
    if not candidates:
        return ""
    for found in _evidence(objects, node):
        if unreadable := min(candidates.intersection(found), default=""):
            return unreadable
        if not set(names).isdisjoint(found):
            break
    return ""


def _first(
    objects: ObjectCache,
    node: str,
    names: Sequence[str],
    given: Mapping[str, Object] = MappingProxyType({}),
) -> str:
    """``given``: pools that replace the stored pools of the same names."""
    if len(names) == 1:
        return names[0]
    for found in _evidence(objects, node):
        names = [name for name in names if name in found] or names
        if len(names) == 1:
            break
    known = objects.plain[POOLS.plural]
    return min(names, key=lambda name: _age(given.get(name) or known[name]))


def _evidence(objects: ObjectCache, node: str) -> Iterator[Sequence[str]]:
    """Names of pools, the strongest evidence first."""
    claims = [objects.claims[uid].claim for uid in objects.devices.holders_on(node)]
    # Nobody but dray marks an attempt, and the pool of a claim never changes: what a tenant writes
    # by hand, or has kube-scheduler allocate, is no such evidence.
    yield [claim.pool for claim in claims if claim.decision > claim.void]
    yield [_published(objects, node)]
    yield [
        claim.pool
        for claim in claims
        if claim.allocation is not None
        and any((one.id.driver, one.id.pool) == (DRIVER, node) for one in claim.allocation.devices)
    ]


def _published(objects: ObjectCache, node: str) -> str:
    """The pool that the node's slices name. Their label names it even while nobody may allocate
    there and the devices name none; slices of earlier releases lack the label."""
    parts = [one for one in objects.devices.slices_of(DRIVER, node) if one.node == node]
    newest = max((part.generation for part in parts), default=0)
    for part in parts:
        if part.generation == newest:
            labels = objects.plain[SLICES.plural][part.name]["metadata"].get("labels") or {}
            return str(labels.get(POOL_LABEL, _of_devices(part)))
    return ""


def _of_devices(part: ResourceSlice) -> str:
    return next((str(one.attributes.get(_POOL_NAME, "")) for one in part.devices), "")


def _age(pool: Object) -> tuple[float, str]:
    """A key to sort pools by, oldest first. A pool that is not stored yet is the youngest."""
    metadata = pool["metadata"]
    created = metadata.get("creationTimestamp")
    return time_from(created) if created else inf, str(metadata.get("uid", ""))
