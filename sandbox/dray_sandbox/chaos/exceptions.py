"""Kinds of requests whose refusal dray does not stand yet. To be emptied, and then removed.

They are left out where refusals are drawn beside other faults; ``tests/chaos/test_refusals.py``
plays them and expects some answers to fail.
"""

from collections.abc import Mapping
from typing import Final

_CLAIM = "the executor holds its slot, a void that is refused ends the term, devices stay held"
_FACT = "a fact that can't be published ends the term, or keeps others from being published"
_SHAPE = "an object in an unknown form ends the watch, or its devices are lost"
EXCEPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "patch a claim",
            "patch a claim's status",
            "patch a claim or its status",
            "patch a pod",
            "bind a pod",
        ),
        _CLAIM,
    ),
    "get a claim": "the execution ends",
    "get a pod": "the execution ends",
    "create a template": "a refused template is forgotten, and a failing one holds up all others",
    "delete a template": "the collector ends the term",
    "create a BindRequest": "reports that hang hold up all others",
    "patch a BindRequest": "reports that hang hold up all others",
    "patch a BindRequest's status": "reports that hang hold up all others",
    "delete a BindRequest": "reports that hang hold up all others",
    "create an event": "reports that hang hold up all others",
    "get an event": "reports that hang hold up all others",
    "patch an event": "reports that hang hold up all others",
    "get a pool": "a refusal ends the term",
    "patch a pool's status": "a refusal ends the term",
    "patch a node": "one node's taints hold up those of all others",
    "probe": "no term begins",
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
