"""The kubelet's admission of pods that were bound to its node. Pure.

Reasons and messages are those of kubelet 1.36 (lifecycle/predicate.go). A rejected pod stays
Failed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dray.api.quantities import NANO
from dray.kube.convert import requests_of
from dray.kube.ports import Object
from dray_sandbox.kubelet.plan import NodePlan


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod may not run here."""

    reason: str
    message: str


def admit(pod: Object, active: Iterable[Object], plan: NodePlan) -> Rejection | None:
    """Why ``pod`` can't run with the node's active pods, or None."""
    others = [one["spec"] for one in active]
    spec = pod["spec"]
    return _resources(spec, others, plan) or _selector(spec, plan) or _ports(spec, others)


def _resources(spec: Object, others: list[Object], plan: NodePlan) -> Rejection | None:
    if len(others) + 1 > plan.allocatable("pods").value:
        return _out_of("pods", 1, len(others), plan.allocatable("pods").value)
    asked, sums = requests_of(spec), [requests_of(one) for one in others]
    used_milli = sum(one.cpu_milli for one in sums)
    used_bytes = sum(one.memory_bytes for one in sums)
    cpu_capacity = plan.allocatable("cpu").nano * 1000 // NANO
    if asked.cpu_milli and used_milli + asked.cpu_milli > cpu_capacity:
        return _out_of("cpu", asked.cpu_milli, used_milli, cpu_capacity)
    memory_capacity = plan.allocatable("memory").value
    if asked.memory_bytes and used_bytes + asked.memory_bytes > memory_capacity:
        return _out_of("memory", asked.memory_bytes, used_bytes, memory_capacity)
    for name, amount in asked.resources.items():
        # A kubelet ignores unknown extended resources.
        known = name in plan.capacity or "/" not in name
        used, capacity = sum(one.resources.get(name, 0) for one in sums), plan.allocatable(name)
        if known and used + amount > capacity.value:
            return _out_of(name, amount, used, capacity.value)
    return None


def _selector(spec: Object, plan: NodePlan) -> Rejection | None:
    wanted: Mapping[str, str] = spec.get("nodeSelector") or {}
    labels = {"kubernetes.io/hostname": plan.name} | plan.labels
    standard = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if any((standard | labels).get(key) != value for key, value in wanted.items()):
        return Rejection("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match")
    return None


def _ports(spec: Object, others: list[Object]) -> Rejection | None:
    taken = [port for one in others for port in _host_ports(one)]
    if any(_clash(port, other) for port in _host_ports(spec) for other in taken):
        return Rejection("NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports")
    return None


def _host_ports(spec: Object) -> list[tuple[str, str, int]]:
    containers: list[dict[str, Any]] = [
        *(spec.get("containers") or ()),
        *(one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"),
    ]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(port["hostPort"]))
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def _clash(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    same_address = one[0] == other[0] or "0.0.0.0" in (one[0], other[0])
    return same_address and one[1:] == other[1:]


def _out_of(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, requested: {requested}, "
        f"used: {used}, capacity: {capacity}",
    )
