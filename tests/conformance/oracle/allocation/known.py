"""How many differences the standard run of each minor may have: a number that only goes down."""

import json
from pathlib import Path
from typing import Final

KNOWN: Final = Path(__file__).with_name("known.json")
"""By minor: seed, cases and differences of the run that was counted."""


def known_differences(minor: str, seed: int, cases: int) -> int:
    """The differences that a run may have; none where it is not the run that was counted."""
    counted = json.loads(KNOWN.read_text("utf-8")).get(minor, {})
    if (counted.get("seed"), counted.get("cases")) != (seed, cases):
        return 0
    return int(counted["differences"])
