"""Capacities with request policies, as the API server admits them, and what is asked of them."""

import random
from collections.abc import Callable
from typing import Any, Final

Json = dict[str, Any]

VALUES: Final = {"memory": ("80Gi", "40Gi", "24Gi", "40G"), "cores": ("8", "64", "4500m")}
UNITS: Final = {"memory": "Gi", "cores": ""}
ASKED: Final = {
    "memory": ("1Gi", "3Gi", "3G", "5Gi", "6Gi", "10Gi", "12Gi", "1536Mi", "0", "40Gi"),
    "cores": ("1", "2", "600m", "1500m", "3", "0", "4", "8"),
}
ODD: Final = (
    "0", "-1", "-3Gi", "9223372036854775807", "12E", "1500m", "100n", "1e18", "0.5", "2.5Gi",
)  # fmt: skip
"""Amounts that hardly anybody means, and that the API server takes all the same."""


def capacity_of(rng: random.Random, key: str, themes: frozenset[str], *, shared: bool) -> Json:
    """One capacity; only shared devices may have a policy for requests."""
    value = rng.choice(VALUES[key])
    if "odd amounts" in themes and rng.random() < 0.35:
        return {"value": rng.choice(ODD)}
    if not shared or rng.random() < 0.2:
        return {"value": value}
    names = [name for name in _POLICIES if name in themes]
    name = names[0] if names and rng.random() < 0.85 else rng.choice(list(_POLICIES))
    return {"value": value, "requestPolicy": _POLICIES[name](rng, key)}


def asked_of(rng: random.Random, key: str, themes: frozenset[str]) -> str:
    """How much a request may want."""
    if "odd amounts" in themes and rng.random() < 0.4:
        return rng.choice(ODD)
    return rng.choice(ASKED[key])


def consumed_of(rng: random.Random, key: str) -> str:
    """How much a share that is held may consume of the capacity published as ``key``."""
    return rng.choice(ASKED[key.rpartition("/")[2]][2:])


def _default_only(rng: random.Random, key: str) -> Json:
    return {"default": rng.choice(("0", f"2{UNITS[key]}", f"4{UNITS[key]}"))}


def _valid_values(rng: random.Random, key: str) -> Json:
    steps = sorted(rng.sample((1, 2, 4), rng.randint(1, 3)))
    if key == "memory":
        steps = [step * 5 for step in steps]
    values = [f"{step}{UNITS[key]}" for step in steps]
    return {"default": rng.choice(values), "validValues": values}


def _range(rng: random.Random, key: str) -> Json:
    unit = UNITS[key]
    least = rng.choice(("0", f"2{unit}", f"4{unit}"))
    return {"default": f"4{unit}", "validRange": {"min": least}}


def _range_with_max(rng: random.Random, key: str) -> Json:
    policy = _range(rng, key)
    policy["validRange"]["max"] = f"{rng.choice((4, 8))}Gi" if key == "memory" else "4"
    return policy


def _stepped(rng: random.Random, key: str) -> Json:
    """With a step that default and maximum are on, as the server counts: in whole units."""
    if key == "cores" and rng.random() < 0.4:
        return {"default": "1", "validRange": {"min": "500m", "step": "250m"}}
    unit, step = UNITS[key], rng.choice((1, 2, 4) if key == "memory" else (1, 2))
    bounds = {"min": f"1{unit}", "step": f"{step}{unit}"}
    return {"default": f"{1 + step}{unit}", "validRange": bounds}


def _stepped_with_max(rng: random.Random, key: str) -> Json:
    policy = _stepped(rng, key)
    policy["validRange"]["max"] = "9Gi" if key == "memory" else "3"
    return policy


_POLICIES: Final[dict[str, Callable[[random.Random, str], Json]]] = {
    "default": _default_only,
    "valid values": _valid_values,
    "range": _range,
    "range max": _range_with_max,
    "step": _stepped,
    "step max": _stepped_with_max,
}
