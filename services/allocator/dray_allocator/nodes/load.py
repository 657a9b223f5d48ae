"""Scores: whole numbers only, ties by a hash, so that a replay decides alike."""

from collections.abc import Mapping
from hashlib import sha256

from dray_allocator.devices.device_usage import DeviceUse

FULL = 1_000_000
"""Loads are in millionths."""

MOST_LOAD = 2**22 - 1
"""Loads above it count as this much; a device that is allocated twice in full has 2 000 000."""
TIE_BITS = 40


def load_of(totals: Mapping[str, int], use: DeviceUse) -> int:
    """The share in use of the capacity that is used most, of a device with these capacities in
    billionths."""
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
    """The place of a node (by uid) or card (by identity) in an order that depends on nothing
    else: the same for every claim and every replica, and unlike that of the names."""
    return int.from_bytes(sha256(identity.encode()).digest()[: TIE_BITS // 8])
