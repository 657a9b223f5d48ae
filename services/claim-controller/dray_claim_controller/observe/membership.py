"""Which nodes a pool selects, and how a node moves from one pool to another. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from dray.domain.devices import Taint
from dray.domain.names import DEDICATED_TAINT, POOL_LABEL
from dray.domain.pods import Node, Pool


@dataclass(frozen=True, slots=True)
class Place:
    """Where the node is said to be: in a pool, or on its way out of one."""

    pool: str
    leaving: str = ""
    leaving_since: int = 0
    quarantined: bool = False
    """Its devices were kube-scheduler's, and are nobody's yet; see ``observe.owners``."""
    recalled_unix_s: float | None = None


def selects(pool: Pool, labels: Mapping[str, str]) -> bool:
    """Whether the pool has nodes with these labels (protocol: Pools and nodes)."""
    if pool.node_selector is None:
        return labels.get(POOL_LABEL) == pool.name
    return all(labels.get(name) == value for name, value in pool.node_selector.items())


def place(
    wanted: str,
    published: Node | None,
    published_revision: int,
    left: Mapping[tuple[str, str], int],
    domains: Collection[str],
    *,
    handed_over: bool = False,
) -> Place:
    """Where the next fact puts a node whose devices dray allocates, or nobody.

    A node goes from pool A to B through "no pool": B may only have it once A's decision log
    says that nothing of A is in flight there. ``left`` holds the highest ``node_revision``
    of A's node-left records by (domain, node); ``domains`` are those that may have decisions.
    ``handed_over``: kube-scheduler allocates for the wanted pool, also if that is A itself.
    """
    prior = "" if published is None else published.pool or published.leaving
    if published is None or not prior or (prior == wanted and not handed_over):
        return Place(wanted)
    if published.pool:
        return Place("", prior, published_revision + 1)
    has_left = left.get((prior, published.name), 0) >= published.leaving_since
    if has_left or prior not in domains:
        return Place(wanted)
    return Place("", prior, published.leaving_since)


def dedicated_taints(taints: Iterable[Taint], pool: Pool | None) -> tuple[Taint, ...] | None:
    """The node's taints with dray's own right for its pool, or None if they are already."""
    before = tuple(taints)
    others = tuple(taint for taint in before if taint.key != DEDICATED_TAINT)
    own = tuple(taint for taint in before if taint.key == DEDICATED_TAINT)
    wanted = (
        (Taint(DEDICATED_TAINT, pool.name, "NoSchedule"),)
        if pool is not None and pool.dedicated
        else ()
    )
    return None if own == wanted else (*others, *wanted)
