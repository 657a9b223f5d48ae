"""Loads as whole numbers, and tie breaks by a hash: both are deterministic, for replay."""

from collections.abc import Mapping
from hashlib import sha256

from dray_allocator.devices.device_usage import DeviceUse

FULL = 1_000_000
"""Loads are in millionths."""

MOST_LOAD = 2**22 - 1
"""The upper limit of a load; a device that is allocated twice as a whole has 2 000 000."""
TIE_BITS = 40


def load_of(totals: Mapping[str, int], use: DeviceUse) -> int:
    """The load of a device, in millionths: the used share of its most used capacity.

    ``totals``: its capacities, in billionths.
    """
    if use.whole:
        return FULL
    load = 0
    for key, amount in use.used.items():
        if amount:
            total = totals.get(key)
            if total:
                share = amount * FULL // total
                if share > load:
                    load = share
    return load


def tie(identity: str) -> int:
    """The tie break of a node (by uid) or card (by ID): the same for every claim and replica."""
    return int.from_bytes(sha256(identity.encode()).digest()[: TIE_BITS // 8])
