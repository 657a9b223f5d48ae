"""The pools that a node sees, in slices."""

import random
from typing import Any, Final

from allocation.devices import Pool, make_counter_sets, make_device
from allocation.reach import NODE, OTHER_NODE, reached

Json = dict[str, Any]

GPU: Final = "gpu.example.com"
NIC: Final = "nic.example.com"
POOLS: Final = ("node-1", "pool-a", "pool-b", "pool-c")


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
    counters = make_counter_sets(rng, odd="odd amounts" in themes) if owns else []
    prefix = rng.choice(("gpu", "dev")) if pool.driver == GPU else "nic"
    for size in sizes:
        first = len(pool.devices)
        devices = [
            make_device(rng, themes, pool, f"{prefix}-{first + n}", first + n, counters)
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
        spec |= reached(rng, "allNodes" if pool.reach == "perDevice" else pool.reach)
    return {
        "kind": "ResourceSlice",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": f"s{rng.randint(10, 99)}-{len(pool.slices)}"},
        "spec": spec | content,
    }


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
    device = make_device(rng, themes, other, "left-0", 0, [])
    one = _slice(rng, themes, other, {"devices": [device]})
    one["metadata"]["name"] += f"-g{generation}"
    one["spec"]["pool"]["resourceSliceCount"] = rng.choice((1, 1, 2))
    return one
