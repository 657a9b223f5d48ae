"""A node and the pools that it sees."""

import random
from dataclasses import dataclass, field
from typing import Any, Final

from allocation.capacities import ODD, capacity_of

Json = dict[str, Any]

NODE: Final = "node-1"
OTHER_NODE: Final = "node-2"
GPU: Final = "gpu.example.com"
NIC: Final = "nic.example.com"
ROOT: Final = "resource.kubernetes.io/pcieRoot"
POOLS: Final = ("node-1", "pool-a", "pool-b", "pool-c")
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


def make_node(rng: random.Random) -> Json:
    """The one node that is tried."""
    labels = {
        "kubernetes.io/hostname": NODE,
        "zone": rng.choice("ab"),
        "generation": rng.choice("37"),
        "gpu": rng.choice(("true", "false")),
    }
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": NODE, "labels": labels},
        "spec": {},
        "status": {},
    }


def make_slices(rng: random.Random, themes: frozenset[str]) -> list[Json]:
    """All slices of the cluster."""
    found: list[Json] = []
    drivers = [GPU, NIC] if "several drivers" in themes else [rng.choice((GPU, GPU, NIC))]
    wanted = rng.choice((1, 1, 1, 2, 2, 3))
    names = rng.sample(POOLS, 4)
    for n in range(max(wanted, len(drivers))):
        driver = drivers[n] if n < len(drivers) else rng.choice(drivers)
        same = "same pool name" in themes and n == 1 and len(drivers) == 2
        pool = Pool(driver, names[0 if same else n], rng.randint(1, 4), _reach(rng, themes))
        _fill(rng, themes, pool, big="many" in themes and n == 0 and rng.random() < 0.4)
        found += _finished(rng, themes, pool)
    if rng.random() < 0.5:
        rng.shuffle(found)
    return found


def _reach(rng: random.Random, themes: frozenset[str]) -> str:
    if "perDevice" in themes and rng.random() < 0.6:
        return "perDevice"
    if "other slices" in themes and rng.random() < 0.7:
        return rng.choice(("allNodes", "nodeSelector"))
    return "nodeName"


def _fill(rng: random.Random, themes: frozenset[str], pool: Pool, *, big: bool) -> None:
    """Give the pool devices in one to three slices, and counters in slices of their own."""
    sizes = [rng.randint(33, 38)] if big else [
        rng.choice((1, 2, 2, 3, 4, 6)) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))
    ]  # fmt: skip
    owns = "counters" in themes and rng.random() < 0.8
    counters = _counter_sets(rng, odd="odd amounts" in themes) if owns else []
    prefix = rng.choice(("gpu", "dev")) if pool.driver == GPU else "nic"
    for size in sizes:
        first = len(pool.devices)
        devices = [
            _device(rng, themes, pool, f"{prefix}-{first + n}", first + n, counters)
            for n in range(size)
        ]
        pool.devices += devices
        if rng.random() < 0.3:
            rng.shuffle(devices)
        pool.slices.append(_slice(rng, themes, pool, {"devices": devices}))
    if counters:
        cut = rng.randint(1, len(counters))
        for part in (counters[:cut], counters[cut:]):
            if part:
                pool.slices.append(_slice(rng, themes, pool, {"sharedCounters": part}))
    if "broken counters" in themes and counters:
        _break_counters(rng, pool)
    if "duplicate" in themes and len(pool.slices) > 1 and rng.random() < 0.7:
        _duplicate_a_name(rng, pool)


def _device(
    rng: random.Random,
    themes: frozenset[str],
    pool: Pool,
    name: str,
    index: int,
    counters: list[Json],
) -> Json:
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
        device |= _reached(rng, rng.choice(("nodeName", "nodeName", "allNodes", "nodeSelector")))
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


def _counter_sets(rng: random.Random, *, odd: bool) -> list[Json]:
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


def _break_counters(rng: random.Random, pool: Pool) -> None:
    """Make the pool invalid: a counter set twice, or a device that consumes what is not there."""
    consuming = [device for device in pool.devices if "consumesCounters" in device]
    owning = [one for one in pool.slices if "sharedCounters" in one["spec"]]
    if rng.random() < 0.4 and len(owning) > 1:
        owning[1]["spec"]["sharedCounters"][0]["name"] = "set-0"
    elif consuming:
        entry = rng.choice(consuming)["consumesCounters"][0]
        if rng.random() < 0.5:
            entry["counterSet"] = "set-9"
        else:
            entry["counters"]["absent"] = {"value": "1"}


def _duplicate_a_name(rng: random.Random, pool: Pool) -> None:
    holding = [one["spec"]["devices"] for one in pool.slices if "devices" in one["spec"]]
    if len(holding) > 1:
        rng.choice(holding[1])["name"] = rng.choice(holding[0])["name"]


def _slice(rng: random.Random, themes: frozenset[str], pool: Pool, content: Json) -> Json:
    spec: Json = {"driver": pool.driver, "pool": {"name": pool.name, "generation": pool.generation}}
    elsewhere = "elsewhere" in themes and rng.random() < 0.3
    if pool.reach == "perDevice" and "devices" in content:
        spec["perDeviceNodeSelection"] = True
    elif elsewhere and pool.reach != "allNodes":
        spec["nodeName"] = OTHER_NODE
    else:
        spec |= _reached(rng, "allNodes" if pool.reach == "perDevice" else pool.reach)
    return {
        "kind": "ResourceSlice",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": f"s{rng.randint(10, 99)}-{len(pool.slices)}"},
        "spec": spec | content,
    }


def _reached(rng: random.Random, reach: str) -> Json:
    if reach == "nodeName":
        return {"nodeName": NODE if rng.random() < 0.93 else OTHER_NODE}
    if reach == "allNodes":
        return {"allNodes": True}
    term: Json = {}
    if rng.random() < 0.9:
        term["matchExpressions"] = [_requirement(rng) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.2 or not term:
        field_of = {"key": "metadata.name", "operator": "In", "values": [NODE]}
        term["matchFields"] = [field_of]
    return {"nodeSelector": {"nodeSelectorTerms": [term]}}


def _requirement(rng: random.Random) -> Json:
    return rng.choice(
        [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "zone", "operator": "In", "values": ["b", "a"]},
            {"key": "zone", "operator": "In", "values": [rng.choice("ab")]},
            {"key": "zone", "operator": "NotIn", "values": [rng.choice("abc")]},
            {"key": "gpu", "operator": "Exists"},
            {"key": "cpu-only", "operator": "DoesNotExist"},
            {"key": "generation", "operator": "Gt", "values": [rng.choice("26")]},
            {"key": "generation", "operator": "Lt", "values": [rng.choice("48")]},
        ]
    )


def _finished(rng: random.Random, themes: frozenset[str], pool: Pool) -> list[Json]:
    """The pool's slices, each with their count, and what is left of other generations."""
    slices = pool.slices
    count = len(slices)
    if "incomplete" in themes and rng.random() < 0.6:
        if count > 1 and rng.random() < 0.5:
            slices = slices[:-1]
        else:
            count += 1
    for one in slices:
        odd = "odd count" in themes and rng.random() < 0.3
        one["spec"]["pool"]["resourceSliceCount"] = count + (1 if odd else 0)
    if "older" in themes and rng.random() < 0.7:
        slices = [*slices, _of_generation(rng, themes, pool, pool.generation - 1)]
    if "newer elsewhere" in themes:
        newer = _of_generation(rng, themes, pool, pool.generation + 1)
        for key in ("nodeSelector", "allNodes", "perDeviceNodeSelection"):
            newer["spec"].pop(key, None)
        newer["spec"]["nodeName"] = OTHER_NODE if rng.random() < 0.8 else NODE
        slices = [*slices, newer]
    return slices


def _of_generation(rng: random.Random, themes: frozenset[str], pool: Pool, generation: int) -> Json:
    reach = rng.choice(("nodeName", "allNodes")) if pool.reach == "perDevice" else pool.reach
    other = Pool(pool.driver, pool.name, generation, reach)
    device = _device(rng, themes, other, "left-0", 0, [])
    one = _slice(rng, themes, other, {"devices": [device]})
    one["metadata"]["name"] += f"-g{generation}"
    one["spec"]["pool"]["resourceSliceCount"] = rng.choice((1, 1, 2))
    return one
