"""The second line of defence, for devices that share counters: partitions of one card. Pure.

Each alone may be free and yet not be had beside the others: what all of them take of a counter is
held against what the pool's slices say there is.
"""

from collections.abc import Iterable, Mapping

from dray.domain.devices import DeviceId
from dray.domain.quantities import Quantity
from dray_claim_controller.execute.defence import Holding, amount
from dray_claim_controller.observe.counters import Counted

PoolKey = tuple[str, str]
"""Driver and pool."""
Counter = tuple[str, str]
"""Counter set and counter."""


def overdrawn(
    wanted: Holding, others: Iterable[Holding], pools: Mapping[PoolKey, Counted]
) -> str | None:
    """Why ``wanted`` must not be written, or None.

    ``others`` are as in ``double_sale``. Only counters that ``wanted`` takes of are looked at, and
    of these what is published: a pool that is just being updated has no say. A device counts once,
    however many shares of it are held; administrative access takes nothing.
    """
    mine = _devices(wanted)
    holdings = {other.claim_uid: other for other in others}
    holdings[wanted.claim_uid] = wanted
    held = {device: None for holding in holdings.values() for device in _devices(holding)}
    touched = dict.fromkeys((device.driver, device.pool) for device in mine)
    problems = (_problem(key, pools[key], mine, held) for key in touched if key in pools)
    return next(filter(None, problems), None)


def _devices(holding: Holding) -> dict[DeviceId, None]:
    shares = holding.allocation.devices
    return dict.fromkeys(share.id for share in shares if not share.admin_access)


def _problem(
    key: PoolKey, pool: Counted, mine: Iterable[DeviceId], held: Iterable[DeviceId]
) -> str | None:
    touched = _taken(key, pool, mine)
    for counter, taken in _taken(key, pool, held).items():
        published = pool.sets.get(counter)
        if counter in touched and published is not None and taken.nano > amount(published).nano:
            return (
                f"counter {counter[1]} of {counter[0]} of pool {'/'.join(key)} is {published}, "
                f"and {taken} of it would be taken"
            )
    return None


def _taken(key: PoolKey, pool: Counted, devices: Iterable[DeviceId]) -> dict[Counter, Quantity]:
    sums: dict[Counter, Quantity] = {}
    for device in devices:
        for use in pool.uses.get(device.device, ()) if (device.driver, device.pool) == key else ():
            for counter, text in use.counters.items():
                name = (use.counter_set, counter)
                sums[name] = sums.get(name, Quantity(0)) + amount(text)
    return sums
