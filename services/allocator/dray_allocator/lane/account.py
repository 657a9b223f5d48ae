"""The devices and pools that a node of a kind sees, for telling what fails on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dray.domain.dra.nodes import Node
from dray_allocator.lane.forms import Forms
from dray_allocator.lane.seen import Seen, Use
from dray_allocator.structured.candidates import Candidate, candidates_of
from dray_allocator.structured.errors import AllocationError
from dray_allocator.structured.pools import Pool, gather
from dray_allocator.structured.rules import Rules

GroupKey = tuple[int, Use]
"""The form of a device, and how it is used."""


@dataclass(slots=True)
class Group:
    """Devices that fare alike, and one of them."""

    one: Candidate
    use: Use
    count: int = 0


@dataclass(slots=True)
class Account:
    """What one node sees."""

    own: dict[GroupKey, Group] = field(default_factory=dict)
    shared: dict[str, dict[GroupKey, Group]] = field(default_factory=dict)
    """By slice, the devices that others may see, too."""
    own_pools: int = 0
    bad_pools: int = 0
    """Of them, those that can't be used."""
    shared_pools: dict[str, bool] = field(default_factory=dict)
    """Pools that others may see, too, and whether they can't be used."""


def account_of(node: Node, seen: Seen, rules: Rules, forms: Forms) -> Account:
    """Count what ``node`` sees."""
    pools = pools_of(node, seen, rules)
    account = Account()
    of_many = {(part.driver, part.pool) for part in seen.slices if not part.reach.node}
    for pool in pools:
        if (pool.driver, pool.name) in of_many:
            account.shared_pools[str(pool)] = is_bad(pool)
        else:
            account.own_pools += 1
            account.bad_pools += is_bad(pool)
    for key, one, use in _devices(pools, seen, forms):
        is_own = bool(one.part.reach.node)
        groups = account.own if is_own else account.shared.setdefault(one.part.name, {})
        groups.setdefault(key, Group(one, use)).count += 1
    return account


def pools_of(node: Node, seen: Seen, rules: Rules) -> list[Pool]:
    """All pools that a node sees; none where that can't be told: what came of the node tells it."""
    try:
        return list(gather(seen.slices, node, rules))
    except AllocationError:
        return []


def is_bad(pool: Pool) -> bool:
    """Whether a pool can't be used."""
    return bool(pool.invalid or pool.incomplete)


def _devices(
    pools: Sequence[Pool], seen: Seen, forms: Forms
) -> Iterator[tuple[GroupKey, Candidate, Use]]:
    uses = {
        part.name: dict(zip((device.name for device in part.devices), of, strict=True))
        for part, of in zip(seen.slices, seen.uses, strict=True)
    }
    for one in candidates_of(pool for pool in pools if not is_bad(pool)):
        use = uses[one.part.name][one.id.device]
        yield (forms.of(one.part, one.device), use), one, use
