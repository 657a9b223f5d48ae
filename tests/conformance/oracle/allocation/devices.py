"""A pool, its devices, and the counter sets that they draw on."""

import random
from dataclasses import dataclass, field
from typing import Any, Final

from allocation.capacities import ODD, capacity_of
from allocation.reach import reached

Json = dict[str, Any]

ROOT: Final = "resource.kubernetes.io/pcieRoot"
MODELS: Final = ("A100", "H100", "L40S")
VERSIONS: Final = ("12.4.0", "12.10.1", "12.4.0-rc.1", "9.1.0")
LISTED: Final[dict[str, tuple[str | int, ...]]] = {
    "string": (*MODELS, "pci0000:00", "pci0000:01"),
    "int": (0, 1, 2, 3),
    "version": VERSIONS,
}
"""Of each kind of attribute that may be a list here, further values."""
TAINT_KEYS: Final = ("example.com/health", "example.com/maintenance")
COUNTERS: Final = {
    "memory": (("40Gi", "80Gi"), ("10Gi", "20Gi", "40Gi")),
    "parts": (("4", "7"), ("1", "2", "3")),
}
"""Of each counter what a set may have, and what a device may consume."""


@dataclass(slots=True)
class Pool:
    """A pool that is being made, its slices in the order of the list."""

    driver: str
    name: str
    generation: int
    reach: str
    """Which nodes see it: nodeName, allNodes, nodeSelector or perDevice."""
    devices: list[Json] = field(default_factory=list)
    slices: list[Json] = field(default_factory=list)


def make_device(
    rng: random.Random,
    themes: frozenset[str],
    pool: Pool,
    name: str,
    index: int,
    counters: list[Json],
) -> Json:
    """The device of this name and number, and maybe what it draws on these counter sets."""
    device: Json = {"name": name, "attributes": _attributes(rng, themes, pool.driver, index)}
    shared = "shared" in themes and rng.random() < 0.75
    device["capacity"] = {
        _written(rng, themes, pool.driver, key): capacity_of(rng, key, themes, shared=shared)
        for key in ("memory", "cores")
        if rng.random() < (0.9 if key == "memory" else 0.35)
    }
    if shared:
        device["allowMultipleAllocations"] = True
    if counters and rng.random() < (0.8 if not shared or "counters on shared" in themes else 0.1):
        device["consumesCounters"] = _consumed(rng, counters)
    if "taints" in themes and rng.random() < 0.3:
        device["taints"] = [_taint(rng) for _ in range(rng.choice((1, 1, 2)))]
    if "binding" in themes and rng.random() < 0.6:
        if rng.random() < 0.8:
            device["bindingConditions"] = ["example.com/attached"]
            device["bindingFailureConditions"] = ["example.com/attach-failed"]
        if rng.random() < 0.5:
            device["bindsToNode"] = True
    if pool.reach == "perDevice":
        device |= reached(rng, rng.choice(("nodeName", "nodeName", "allNodes", "nodeSelector")))
    return device


def _attributes(rng: random.Random, themes: frozenset[str], driver: str, index: int) -> Json:
    numa = rng.randint(0, 1)
    otherwise = "typed otherwise" in themes and rng.random() < 0.3
    values: Json = {
        "model": {"string": rng.choice(MODELS[: rng.choice((1, 2, 3))])},
        "index": {"int": index},
        "numa": {"string": str(numa)} if otherwise else {"int": numa},
        "ecc": {"bool": rng.random() < 0.7},
        "driverVersion": {"version": rng.choice(VERSIONS)},
        ROOT: {"string": f"pci0000:0{rng.randint(0, 2)}"},
    }
    lost = 0.15 if "missing" in themes else 0.0
    kept = {key: value for key, value in values.items() if rng.random() >= lost}
    if "lists" in themes:
        kept = {key: _listed(rng, value) for key, value in kept.items()}
    return {_written(rng, themes, driver, key): value for key, value in kept.items()}


def _written(rng: random.Random, themes: frozenset[str], driver: str, key: str) -> str:
    """The key, with the driver's domain now and then."""
    chosen = "domain" in themes and "/" not in key and rng.random() < 0.5
    return f"{driver}/{key}" if chosen else key


def _listed(rng: random.Random, value: Json) -> Json:
    """The attribute as a list of a few values, its own among them, or as it is."""
    kind, own = next(iter(value.items()))
    if kind not in LISTED or rng.random() < 0.4:
        return value
    others = [one for one in LISTED[kind] if one != own]
    return {f"{kind}s": [own, *rng.sample(others, rng.randint(0, 2))]}


def _taint(rng: random.Random) -> Json:
    effect = rng.choice(("NoSchedule", "NoSchedule", "NoExecute", "NoExecute", "None"))
    taint = {"key": rng.choice(TAINT_KEYS), "effect": effect}
    if rng.random() < 0.6:
        taint["value"] = rng.choice(("bad", "soon"))
    if effect == "NoExecute":
        taint["timeAdded"] = "2026-01-01T00:00:00Z"
    return taint


def make_counter_sets(rng: random.Random, *, odd: bool) -> list[Json]:
    """Counter sets of one card each; ``odd``: with amounts that are hard to read."""
    return [
        {
            "name": f"set-{n}",
            "counters": {
                key: {"value": rng.choice(ODD if odd and rng.random() < 0.3 else sizes)}
                for key, (sizes, _) in COUNTERS.items()
                if key == "memory" or rng.random() < 0.6
            },
        }
        for n in range(rng.choice((1, 1, 2)))
    ]


def _consumed(rng: random.Random, counters: list[Json]) -> list[Json]:
    consumed = []
    for one in rng.sample(counters, rng.choice((1, len(counters)))):
        keys = [key for key in one["counters"] if rng.random() < 0.8] or ["memory"]
        consumed.append(
            {
                "counterSet": one["name"],
                "counters": {key: {"value": rng.choice(COUNTERS[key][1])} for key in keys},
            }
        )
    return consumed
