"""The questions: a pod, and nodes that would mostly do but for one thing; the same for one seed.

What a node has is made to the pod's measure, by dray's own sums: exactly enough, one more, or one
too few. A different sum then gives a different answer.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from nodes.placing import CORDONED, LABELS, SELECTED, WANTED, make_taint, place, relabel
from nodes.pods import EXTENDED, make_spec, make_status
from nodes.spelling import milli, units

from dray.kube.convert import host_ports, requests_of

Json = dict[str, Any]

NODES: Final = tuple(f"node-{number}" for number in range(8))
PREDICATES: Final = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "extended resources",
    "huge pages",
    "host ports",
    "node selector",
    "node affinity",
    "taints",
    "unschedulable",
)
LIKE_136: Final = ("1.36",)
"""Minors that sum up pods under a resize as dray does; 1.37 does otherwise, and 1.34 and 1.35 don't
look at the pod as a whole."""
WITH_CLASSES: Final = ("1.36", "1.37")
"""Minors whose classes stand for extended resources by default."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question to both."""

    id: str
    question: Json


def cases(seed: int, count: int, minor: str) -> Iterator[Case]:
    """``count`` cases as a cluster of ``minor`` can have them; each depends on its number alone."""
    for number in range(count):
        name = f"{seed}-{number}"
        yield Case(name, _question(random.Random(f"{seed}/{minor}/{number}"), name, minor))


def kind_of(name: str) -> str:
    """The predicate of a resource."""
    if "/" in name:
        return "extended resources"
    return "huge pages" if name.startswith("hugepages-") else name


def _question(rng: random.Random, name: str, minor: str) -> Json:
    spec = make_spec(rng)
    place(rng, spec, NODES)
    question: Json = {"id": name, "pod": _pod("pod", spec), "nodes": [], "pods": [], "classes": []}
    if minor in WITH_CLASSES and rng.random() < 0.25:
        question["classes"] = [_class(rng)]
    for node in NODES:
        _add_node(rng, question, node, minor)
    return question


def _pod(name: str, spec: Json, status: Json | None = None) -> Json:
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": spec, "status": status or {"phase": "Pending"}}


def _class(rng: random.Random) -> Json:
    name, _, resource = rng.choice(
        (("tpu", "", ""), ("fpga", "", EXTENDED[0]), ("tpu", "", EXTENDED[1]))
    )
    spec = {"extendedResourceName": resource} if resource else {}
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec}


def _add_node(rng: random.Random, question: Json, name: str, minor: str) -> None:
    pod = question["pod"]["spec"]
    obstacles = _obstacles(rng, pod)
    bound = [_bound(rng, name, number, minor) for number in range(rng.choice((0, 1, 2, 3)))]
    bound = [one for one in bound if not _clash(one["spec"], pod)]
    if "host ports" in obstacles:
        bound.append(_pod(f"{name}-port", _with_conflict(rng, pod, name), {"phase": "Running"}))
    labels = dict(LABELS)
    if "node selector" in obstacles:
        relabel(rng, labels, SELECTED)
    if "node affinity" in obstacles:
        relabel(rng, labels, WANTED)
    taints = [make_taint(rng)] if "taints" in obstacles or rng.random() < 0.1 else []
    node: Json = {"taints": taints}
    if "unschedulable" in obstacles:
        node["unschedulable"] = True
        if rng.random() < 0.3:
            taints.append({"key": CORDONED, "effect": "NoSchedule"})
    allocatable = _allocatable(rng, pod, bound, obstacles)
    metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
    status = {"allocatable": allocatable, "capacity": allocatable}
    question["nodes"].append({"metadata": metadata, "spec": node, "status": status})
    question["pods"] += bound


def _obstacles(rng: random.Random, pod: Json) -> list[str]:
    """What keeps the pod off a node: mostly one thing, of those that it cares for."""
    asked = requests_of(pod)
    cares = {
        "cpu": asked.cpu_milli,
        "memory": asked.memory_bytes,
        "node selector": "nodeSelector" in pod,
        "node affinity": "affinity" in pod,
        "host ports": host_ports(pod),
        "pods": True,
        "taints": True,
        "unschedulable": True,
    } | {kind_of(name): True for name in asked.resources}
    choices = [name for name in PREDICATES if cares.get(name)]
    return rng.sample(choices, min(len(choices), rng.choice((0, 1, 1, 1, 1, 2))))


def _bound(rng: random.Random, node: str, number: int, minor: str) -> Json:
    spec = {**make_spec(rng), "nodeName": node}
    status: Json = {"phase": rng.choice(("Pending", "Running", "Running", "Succeeded", "Failed"))}
    if minor in LIKE_136 and rng.random() < 0.3:
        status = make_status(rng, spec)
    return _pod(f"{node}-{number}", spec, status)


def _clash(one: Json, other: Json) -> bool:
    return any(port.conflicts(taken) for port in host_ports(one) for taken in host_ports(other))


def _with_conflict(rng: random.Random, pod: Json, node: str) -> Json:
    """Somebody who takes the same port, or nearly the same one."""
    wanted = rng.choice(host_ports(pod))
    address = rng.choice((wanted.address, wanted.address, "0.0.0.0", "10.0.0.1", "10.0.0.3"))
    port = {
        "containerPort": 1,
        "hostPort": wanted.number,
        "hostIP": address,
        "protocol": rng.choice((wanted.protocol, wanted.protocol, wanted.protocol, "UDP")),
    }
    container = {"name": "main", "image": "image", "ports": [port]}
    kind = rng.choice(("containers", "containers", "sidecar"))
    if kind == "containers":
        return {"nodeName": node, "containers": [container]}
    sidecar = {**container, "name": "init", "restartPolicy": "Always"}
    plain = {"name": "main", "image": "image"}
    return {"nodeName": node, "containers": [plain], "initContainers": [sidecar]}


def _allocatable(rng: random.Random, pod: Json, bound: list[Json], obstacles: list[str]) -> Json:
    """What the bound pods and this one need, and a little more or less."""
    there = [one for one in bound if one["status"]["phase"] not in ("Succeeded", "Failed")]
    sums = [requests_of(pod), *(requests_of(one["spec"], one["status"]) for one in there)]

    def of(kind: str, total: int) -> int:
        if kind in obstacles:
            return max(0, total - rng.choice((1, 1, 1000, 2**40)))
        return total + rng.choice((0, 0, 1, 2**40))

    pods = len(there) + 1
    allocatable = {
        "cpu": milli(rng, of("cpu", sum(one.cpu_milli for one in sums))),
        "memory": units(rng, of("memory", sum(one.memory_bytes for one in sums))),
        "pods": str(of("pods", pods) if "pods" not in obstacles else rng.randrange(pods)),
    }
    names = sorted({name for one in sums for name in one.resources})
    for name in names:
        amount = of(kind_of(name), sum(one.resources.get(name, 0) for one in sums))
        if amount or rng.random() < 0.5:
            allocatable[name] = units(rng, amount)
    return allocatable
