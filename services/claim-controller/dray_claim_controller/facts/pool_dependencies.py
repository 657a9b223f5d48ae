"""Which other pools a node, a claim or a pod depends on. Pure.

Allocators read the claims and logs of the pools that they serve, and of those that these facts name
(docs/adr/0026-replicas-read-what-they-decide-upon.md): so a pool may be named for too long, but
never for too short a time.
"""

from collections.abc import Iterable, Iterator

from dray.api.claims import Claim
from dray.api.pods import Node, Pod
from dray.messages.facts import NodeObserved
from dray_claim_controller.cache.object_cache import ObjectCache


def former_pools(cache: ObjectCache, node: Node, before: NodeObserved | None) -> tuple[str, ...]:
    """Other pools whose claims hold devices of the node, or may still get them.

    A pool that the node has left is named until none of its claims is on the node or unallocated:
    an allocation that was decided for the node, and cleared since, may be written again.
    ``before``: the last fact of the node, or of a deleted node of its name.
    """
    held = {uid: cache.claims[uid].claim for uid in cache.devices.holders_on(node.name)}
    found = {pool: None for claim in held.values() for pool in _pools_of(cache, claim)}
    left = () if before is None else (before.node.pool, before.node.leaving, *before.former)
    for pool in left:
        if pool not in ("", node.pool, *found) and _may_return(cache, pool, held.values()):
            found[pool] = None
    return tuple(sorted(pool for pool in found if pool not in ("", node.pool)))


def dependent_pools(cache: ObjectCache, about: Claim | Pod) -> tuple[str, ...]:
    """For a claim, the other pools of the pods that refer to it; for a pod, the other pools of its
    claims. A claim without a pool is decided in its pods' pools, which are named only if there are
    several."""
    if isinstance(about, Pod):
        found = {cached.claim.pool: None for cached in cache.claims_of(about)}
    else:
        found = {pod.pool: None for pod in cache.users.of(about)}
        found.pop("", None)
        if not about.pool and len(found) == 1:
            return ()
    return tuple(sorted(pool for pool in found if pool not in ("", about.pool)))


def _pools_of(cache: ObjectCache, claim: Claim) -> Iterator[str]:
    yield claim.pool
    yield from (pod.pool for pod in cache.users.of(claim))


def _may_return(cache: ObjectCache, pool: str, held: Iterable[Claim]) -> bool:
    """Whether the pool may still have a decision for a node that has left it. A claim that names no
    pool may belong to any pool."""
    if cache.open_claims.get(pool) or cache.open_claims.get(""):
        return True
    return any(not claim.pool or pool in _pools_of(cache, claim) for claim in held)
