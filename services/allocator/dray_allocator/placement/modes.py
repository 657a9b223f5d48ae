"""Scores: whole numbers only, ties by a hash, so that a replay decides alike."""

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256

from dray.domain.names import LOW_LOAD_FIRST
from dray_allocator.fit.devices import Card, NodeDevices
from dray_allocator.fit.ledger import DeviceUse, Ledger

FULL = 1_000_000
"""Loads are in millionths."""

Order = Callable[[int], int]
"""From a load to a sort key: the lowest key is tried first."""


def order(mode: str) -> Order:
    """CompactFirst fills what is loaded, LowLoadFirst what is empty; others fill too."""
    return _as_is if mode == LOW_LOAD_FIRST else _reversed


def card_load(card: Card, use: DeviceUse) -> int:
    """The share in use of the capacity that is used most."""
    if use.whole:
        return FULL
    return max(
        (
            amount * FULL // card.totals[key]
            for key, amount in use.used.items()
            if card.totals.get(key)
        ),
        default=0,
    )


def node_load(devices: NodeDevices, ledger: Ledger) -> int:
    """The mean load of a node's devices; kept until their use changes."""
    if devices.load < 0:
        loads = [card_load(card, ledger.of(card.id)) for card in devices.cards]
        devices.load = sum(loads) // len(loads) if loads else 0
    return devices.load


def tie(claim_uid: str, name: str) -> int:
    """Breaks ties the same way every time, and differently for every claim."""
    return _hashed(claim_uid) ^ _hashed(name)


@lru_cache(maxsize=1 << 16)
def _hashed(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])


def _as_is(load: int) -> int:
    return load


def _reversed(load: int) -> int:
    return -load
