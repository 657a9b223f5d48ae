"""The nodes, and which of them a slice or a device is for."""

import random
from typing import Any, Final

Json = dict[str, Any]

NODE: Final = "node-1"
OTHER_NODE: Final = "node-2"


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


def reached(rng: random.Random, reach: str) -> Json:
    """What says it in a spec. ``reach``: nodeName, allNodes or nodeSelector."""
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
