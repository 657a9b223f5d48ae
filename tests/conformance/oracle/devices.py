"""Devices as ResourceSlices have them: ordinary, sparse, now and then broken."""

import random
from typing import Any, Final

DRIVERS: Final = [
    "dra.example.com",
    "dra.example.com",
    "dra.example.com",
    "gpu.vendor.example",
    "d.x",
]
DOMAINS: Final = ["other.example.org", "resource.kubernetes.io"]

VALUES: Final[dict[str, list[Any]]] = {
    "string": [
        "H100", "A100", "L40S", "nvidia", "", "a,b,c", "1Gi", "1.2.3", "10.0.0.7", "true", "7",
        "é日本😀", "Hello World", "  pad ", "k", "https://a.b:8080/c?x=1", "my-name",
        "10.0.0.0/8", "90s", "2024-02-29T12:30:45Z", "aaa", "one.two.three", "v1.2.3",
    ],
    "int": [
        0, 1, 2, 7, 8, -1, -3, 80, 1000000, 9223372036854775807, -9223372036854775808, 4294967296,
    ],
    "bool": [True, False],
    "version": [
        "1.2.3", "0.0.1", "10.2.0", "1.0.0-rc.1", "1.2.3+build.5", "2.0.0", "1.0.0-alpha.beta.1",
        "18446744073709551615.0.0",
    ],
}  # fmt: skip
USUAL: Final = {
    "model": "string", "vendor": "string", "k": "string", "uuid": "string", "text": "string",
    "count": "int", "numa": "int", "n": "int", "ecc": "bool", "mig": "bool",
    "ver": "version", "cuda": "version",
}  # fmt: skip
LISTS: Final = {"words": "string", "ports": "int", "flags": "bool", "stack": "version"}
"""Attributes of several values, and of which kind."""
AMOUNTS: Final = [
    "80Gi", "40Gi", "1Gi", "0", "1", "100", "1500m", "1e3", "10G", "-3", "100n", "1024Mi", "1.5Gi",
    "9223372036854775807", "9223372036854775808", "312", "7", "1u", "12E", "1.5",
]  # fmt: skip
CAPACITIES: Final = ["memory", "cores", "tflops", "k"]
BROKEN: Final[list[dict[str, Any]]] = [
    {}, {"version": "v1.2"}, {"version": "1.2"}, {"strings": ["a"]}, {"version": ""}, {"ints": [1]},
]  # fmt: skip


def make_driver(rng: random.Random) -> str:
    """The name of a driver; hardly ever empty."""
    return "" if rng.random() < 0.004 else rng.choice(DRIVERS)


def make_device(rng: random.Random, driver: str, *, lists: bool = False) -> dict[str, Any]:
    """A device as in a ResourceSlice, without its name; with ``lists``, attributes of several
    values, too."""
    device: dict[str, Any] = {}
    if names := [name for name in USUAL if rng.random() < 0.6]:
        device["attributes"] = {
            _qualified(rng, name, driver): _value(rng, USUAL[name]) for name in names
        }
    if names := [name for name in CAPACITIES if rng.random() < 0.6]:
        device["capacity"] = {
            _qualified(rng, name, driver): {"value": rng.choice(AMOUNTS)} for name in names
        }
    if rng.random() < 0.3:
        device["allowMultipleAllocations"] = rng.random() < 0.6
    if lists:
        device.setdefault("attributes", {}).update(
            (_qualified(rng, name, driver), _values(rng, kind))
            for name, kind in LISTS.items()
            if rng.random() < 0.75
        )
    if rng.random() < 0.008:
        device.setdefault("attributes", {})["broken"] = rng.choice(BROKEN)
    return device


def _qualified(rng: random.Random, name: str, driver: str) -> str:
    roll = rng.random()
    if roll < 0.12:
        return f"{rng.choice(DOMAINS)}/{name}"
    return f"{driver}/{name}" if roll < 0.25 and driver else name


def _value(rng: random.Random, kind: str) -> dict[str, Any]:
    if rng.random() < 0.1:
        kind = rng.choice(list(VALUES))
    return {kind: rng.choice(VALUES[kind])}


def _values(rng: random.Random, kind: str) -> dict[str, Any]:
    count = rng.choice([0, 1, 1, 2, 2, 3, 8]) if rng.random() < 0.95 else 70
    return {f"{kind}s": [rng.choice(VALUES[kind]) for _ in range(count)]}


def attributes_of(device: dict[str, Any], driver: str, kind: str) -> list[tuple[str, str]]:
    """Domain and name of the attributes that hold a ``kind``."""
    return [
        _split(name, driver)
        for name, value in device.get("attributes", {}).items()
        if kind in value or kind == "any"
    ]


def capacities_of(device: dict[str, Any], driver: str) -> list[tuple[str, str]]:
    """Domain and name of each capacity."""
    return [_split(name, driver) for name in device.get("capacity", {})]


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, rest = name.partition("/")
    return (domain, rest) if slash else (driver, name)
