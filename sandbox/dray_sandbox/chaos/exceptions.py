"""Kinds of requests whose refusal dray does not stand yet. To be emptied, and then removed.

They are left out where refusals are drawn beside other faults; ``tests/chaos/test_refusals.py``
plays them and expects some answers to fail.
"""

from collections.abc import Mapping
from typing import Final

_FACT = "a fact that can't be published ends the term, or keeps others from being published"
_SHAPE = "an object in an unknown form ends the watch, or its devices are lost"
EXCEPTIONS: Final[Mapping[str, str]] = {
    "read a claim": _SHAPE,
    "read a pod": _SHAPE,
    "read a node": _SHAPE,
    "read a slice": _SHAPE,
    "read a pool": _SHAPE,
    "publish a large slice": _FACT,
    "publish a large node": _FACT,
    "publish a large pool": _FACT,
    "publish a large inventory": "the node-agent ends",
    "append a large decision": "a record that is too large is appended again for ever",
}
