"""Device selectors: about what devices have, guarded or not, sometimes about what they lack."""

import random
from typing import Final

from allocation.devices import MODELS, ROOT, VERSIONS
from allocation.fleet import NIC

_ATTRIBUTES: Final = ("model", "index", "numa", "ecc", "driverVersion")
_AMOUNTS: Final = (("memory", "24Gi"), ("memory", "40Gi"), ("memory", "80Gi"), ("cores", "8"))


def make_selector(rng: random.Random, driver: str, themes: frozenset[str]) -> str:
    """One or two clauses about the devices of ``driver``."""
    clauses = [_clause(rng, driver, themes) for _ in range(rng.choice((1, 1, 1, 2)))]
    if len(clauses) == 1:
        return clauses[0]
    return f"({clauses[0]}) {rng.choice(('&&', '||'))} ({clauses[1]})"


def _clause(rng: random.Random, driver: str, themes: frozenset[str]) -> str:
    what = rng.random()
    if what < 0.62:
        return _about_attribute(rng, driver, themes)
    if what < 0.9:
        return _about_capacity(rng, driver)
    if what < 0.96:
        domain, name = ROOT.split("/")
        holder, root = f'device.attributes["{domain}"]', f"pci0000:0{rng.randint(0, 2)}"
        return f'"{name}" in {holder} && {holder}.{name} == "{root}"'
    return rng.choice(
        ("device.allowMultipleAllocations", "!device.allowMultipleAllocations")
        if "shared" in themes
        else (f'device.driver == "{driver}"', f'device.driver != "{NIC}"', "true", "false")
    )


def _about_attribute(rng: random.Random, driver: str, themes: frozenset[str]) -> str:
    name = rng.choice(_ATTRIBUTES)
    domain = f'device.attributes["{driver}"]'
    if rng.random() < 0.1:
        return f'device.attributes["{driver}"].?{name}.hasValue()'
    value = f"{domain}.{name}" if rng.random() < 0.6 else f'{domain}["{name}"]'
    condition = _condition(rng, name, value)
    if "unguarded" in themes and rng.random() < 0.75:
        return condition
    guard = rng.choice((f'"{name}" in {domain}', f"has({domain}.{name})"))
    return f"{guard} && {condition}"


def _condition(rng: random.Random, name: str, value: str) -> str:
    if name == "model":
        return rng.choice(
            (
                f'{value} == "{rng.choice(MODELS)}"',
                f'{value} != "{rng.choice(MODELS)}"',
                f'{value} in ["{rng.choice(MODELS[:2])}", "L40S"]',
                f'{value}.lowerAscii().startsWith("{rng.choice("ah")}")',
            )
        )
    if name == "index":
        return f"{value} {rng.choice(('<', '<=', '>', '!='))} {rng.randint(0, 4)}"
    if name == "numa":
        return f"{value} == {rng.randint(0, 1)}"
    if name == "ecc":
        return rng.choice((value, value, f"!{value}"))
    compared = rng.choice(("isGreaterThan", "isLessThan"))
    return f'{value}.{compared}(semver("{rng.choice(VERSIONS)}"))'


def _about_capacity(rng: random.Random, driver: str) -> str:
    domain = f'device.capacity["{driver}"]'
    name, amount = rng.choice(_AMOUNTS)
    condition = rng.choice(
        (
            f'{domain}.{name}.compareTo(quantity("{amount}")) >= 0',
            f'{domain}.{name}.isGreaterThan(quantity("{amount}"))',
            f'{domain}.{name}.isLessThan(quantity("{amount}"))',
        )
    )
    return condition if rng.random() < 0.12 else f'"{name}" in {domain} && {condition}'
