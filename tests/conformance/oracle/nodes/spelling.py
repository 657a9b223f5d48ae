"""Quantities as people spell them: the same amount in one of several ways."""

import random
from typing import Final

_BINARY: Final = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_DECIMAL: Final = (("G", 10**9), ("M", 10**6), ("k", 10**3))


def milli(rng: random.Random, amount: int) -> str:
    """Thousandths of a core."""
    spellings = [f"{amount}m", f"{amount / 1000:g}"]
    if amount % 1000 == 0:
        spellings.append(str(amount // 1000))
    if amount % 100 == 0:
        spellings.append(f"{amount // 100}e-1")
    return rng.choice(spellings)


def units(rng: random.Random, amount: int) -> str:
    """Bytes, or pieces; now and then a little less, which counts as the next whole one."""
    spellings = [str(amount), f"{amount}000m"]
    for suffixes in (_BINARY, _DECIMAL):
        spellings += [
            f"{amount // factor}{suffix}"
            for suffix, factor in suffixes
            if amount and amount % factor == 0
        ]
    if amount > 0:
        spellings.append(f"{amount - 1}.5")
    return rng.choice(spellings)
