"""Where a pod may go: labels, node selectors, node affinity, taints and tolerations at random."""

import random
from typing import Any, Final

Json = dict[str, Any]

LABELS: Final = {
    "disk": "ssd",
    "zone": "a",
    "arch": "amd64",
    "rack": "r1",
    "cores": "16",
    "empty": "",
}
"""What a node has that the pod was written for."""
SELECTED: Final = ("disk", "zone")
WANTED: Final = ("arch", "rack", "cores")
NUMBERS: Final = ("0", "007", "15", "16", "17", "1_6", "9223372036854775807", "9223372036854775808")
CORDONED: Final = "node.kubernetes.io/unschedulable"
_EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def place(rng: random.Random, spec: Json, nodes: tuple[str, ...]) -> None:
    """Write into a pod's spec where it wants to go; most nodes have what it wants."""
    if rng.random() < 0.5:
        keys = rng.sample(SELECTED, rng.choice((1, 2)))
        spec["nodeSelector"] = {key: LABELS[key] for key in keys}
    if rng.random() < 0.5:
        terms = [_term(rng, nodes, good=n == 0) for n in range(rng.choice((1, 1, 2, 3)))]
        required = {"nodeSelectorTerms": rng.sample(terms, len(terms))}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    if rng.random() < 0.6:
        spec["tolerations"] = [_toleration(rng) for _ in range(rng.choice((1, 2, 3)))]


def make_taint(rng: random.Random) -> Json:
    """A taint, tolerated or not."""
    taint: Json = {"key": rng.choice(("team", "spot", CORDONED)), "effect": rng.choice(_EFFECTS)}
    if taint["key"] != CORDONED and rng.random() < 0.7:
        taint["value"] = rng.choice(("a", "b"))
    return taint


def relabel(rng: random.Random, labels: Json, keys: tuple[str, ...]) -> None:
    """Take labels away from a node, or change them."""
    for key in rng.sample(keys, rng.randint(1, len(keys))):
        if rng.random() < 0.4:
            labels.pop(key, None)
        else:
            labels[key] = rng.choice(NUMBERS) if key == "cores" else rng.choice(("", "other"))


def _term(rng: random.Random, nodes: tuple[str, ...], *, good: bool) -> Json:
    """An alternative: one that a node with LABELS meets, or one at random."""
    make = _met if good else _any
    expressions = [make(rng) for _ in range(rng.choice((1, 1, 2)))]
    term: Json = {"matchExpressions": expressions}
    if rng.random() < 0.25:
        operator = rng.choice(("In", "NotIn"))
        term["matchFields"] = [
            {"key": "metadata.name", "operator": operator, "values": [rng.choice(nodes)]}
        ]
        if rng.random() < 0.5:
            del term["matchExpressions"]
    elif not good and rng.random() < 0.1:
        return {}
    return term


def _met(rng: random.Random) -> Json:
    key = rng.choice(WANTED)
    if key == "cores" and rng.random() < 0.7:
        operator, value = rng.choice((("Gt", "15"), ("Lt", "17"), ("Gt", "0"), ("Gt", "007")))
        return {"key": key, "operator": operator, "values": [value]}
    return rng.choice(
        (
            {"key": key, "operator": "In", "values": [LABELS[key], "else"]},
            {"key": key, "operator": "NotIn", "values": ["other", ""]},
            {"key": key, "operator": "Exists"},
            {"key": "absent", "operator": "DoesNotExist"},
            {"key": "absent", "operator": "NotIn", "values": ["other"]},
        )
    )


def _any(rng: random.Random) -> Json:
    key = rng.choice((*WANTED, "empty", "absent"))
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    expression: Json = {"key": key, "operator": operator}
    if operator in ("Gt", "Lt"):
        expression["values"] = [rng.choice((*NUMBERS, "many"))]
    elif operator in ("In", "NotIn"):
        values = ("", "other", *NUMBERS, *LABELS.values())
        expression["values"] = rng.sample(values, rng.choice((1, 2)))
    return expression


def _toleration(rng: random.Random) -> Json:
    """As validated: only ``Exists`` goes without a key, and with ``Exists`` goes no value."""
    toleration: Json = {}
    if rng.random() < 0.1:
        toleration["operator"] = "Exists"
    else:
        toleration["key"] = rng.choice(("team", "spot", CORDONED))
        if rng.random() < 0.4:
            toleration["operator"] = "Exists"
        elif toleration["key"] != CORDONED:
            toleration["value"] = rng.choice(("a", "b"))
    if rng.random() < 0.5:
        toleration["effect"] = rng.choice(_EFFECTS)
    return toleration
