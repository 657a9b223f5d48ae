"""What a case is about: the gates that are on, and the themes that are drawn for it."""

import random
from typing import Final

ON: Final[dict[str, tuple[str, ...]]] = {
    "1.34": ("DRAAdminAccess", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus"),
    "1.35": ("DRAAdminAccess", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus"),
    "1.36": (
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
        "DRADeviceTaints",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
    ),
    "1.37": (
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
        "DRADeviceTaints",
        "DRAFractionalCapacityRange",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
    ),
}
"""The gates that matter to the allocator and are on by default."""

LISTS: Final = "DRAListTypeAttributes"
WITH_LISTS: Final = ("1.36", "1.37")
"""Minors that know the gate of list attributes; it is off by default, and on where lists are."""

NEEDS: Final = {
    "shared": "DRAConsumableCapacity",
    "capacity": "DRAConsumableCapacity",
    "share held": "DRAConsumableCapacity",
    "wrong capacity key": "DRAConsumableCapacity",
    "distinctAttribute": "DRAConsumableCapacity",
    "counters": "DRAPartitionableDevices",
    "counters on shared": "DRAPartitionableDevices",
    "broken counters": "DRAPartitionableDevices",
    "perDevice": "DRAPartitionableDevices",
    "taints": "DRADeviceTaints",
    "binding": "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
    "firstAvailable": "DRAPrioritizedList",
    "admin": "DRAAdminAccess",
    "lists": LISTS,
}
"""The gate without which the API server drops the fields of a theme."""

CHANCE: Final = {
    "class selector": 0.16,
    "request selector": 0.33,
    "unguarded": 0.3,
    "typed otherwise": 0.08,
    "All": 0.15,
    "count": 0.29,
    "firstAvailable": 0.2,
    "matchAttribute": 0.18,
    "distinctAttribute": 0.18,
    "shared": 0.45,
    "capacity": 0.5,
    "wrong capacity key": 0.17,
    "counters": 0.25,
    "counters on shared": 0.5,
    "taints": 0.22,
    "binding": 0.16,
    "admin": 0.2,
    "other slices": 0.5,
    "perDevice": 0.22,
    "elsewhere": 0.1,
    "incomplete": 0.07,
    "older": 0.13,
    "newer elsewhere": 0.06,
    "duplicate": 0.13,
    "broken counters": 0.28,
    "odd count": 0.03,
    "several drivers": 0.3,
    "same pool name": 0.35,
    "several claims": 0.32,
    "several requests": 0.32,
    "held": 0.37,
    "share held": 0.6,
    "class config": 0.2,
    "claim config": 0.25,
    "domain": 0.35,
    "missing": 0.28,
    "many": 0.08,
    "missing class": 0.075,
    "gate off": 0.08,
    "odd amounts": 0.08,
    "tight": 0.07,
    "lists": 0.08,
}
"""How probable each theme is."""

POLICIES: Final = ("default", "valid values", "range", "range", "range max", "step", "step max")
"""The policy that most shared capacities of a case have."""


def draw_themes(rng: random.Random, minor: str) -> frozenset[str]:
    """The themes of one case, of those whose fields a server of ``minor`` keeps."""
    kept = ON[minor]
    drawn = [theme for theme, chance in CHANCE.items() if rng.random() < chance]
    drawn.append(rng.choice(POLICIES))
    if minor in WITH_LISTS:
        kept = (*kept, LISTS)
    return frozenset(theme for theme in drawn if NEEDS.get(theme, kept[0]) in kept)


def draw_gates(rng: random.Random, minor: str, themes: frozenset[str]) -> list[str]:
    """The gates of the scheduler: the server's, less one that a theme of the case needs."""
    gates = sorted((*ON[minor], LISTS)) if "lists" in themes else list(ON[minor])
    needed = sorted({NEEDS[theme] for theme in themes if theme in NEEDS})
    if "gate off" in themes and needed:
        gates.remove(rng.choice(needed))
    return gates
