"""The kubelet's admission of pods that were bound to its node. Pure.

Reasons, messages and their order are those of kubelet 1.36 (lifecycle/predicate.go). A rejected pod
stays Failed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dray.api.pods import Node
from dray.api.quantities import NANO, Quantity, parse_quantity
from dray.kube.convert import requests_of
from dray.kube.convert_metadata import taints_from
from dray.kube.convert_needs import pod_needs
from dray.kube.ports import Object
from dray_sandbox.scheduler.rules import matches


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod may not run here."""

    reason: str
    message: str


def admit(pod: Object, active: Iterable[Object], node: Object) -> Rejection | None:
    """Why ``pod`` can't run with the active pods of ``node`` (the Node object), or None."""
    others = [one["spec"] for one in active]
    spec = pod["spec"]
    return (
        _resources(spec, others, node)
        or _affinity(spec, node)
        or _ports(spec, others)
        or _taints(spec, node)
    )


def _resources(spec: Object, others: list[Object], node: Object) -> Rejection | None:
    allocatable: Mapping[str, str] = (node.get("status") or {}).get("allocatable") or {}

    def capacity_of(resource: str) -> Quantity:
        return parse_quantity(allocatable.get(resource, "0"))

    if len(others) + 1 > capacity_of("pods").value:
        return _out_of("pods", 1, len(others), capacity_of("pods").value)
    asked, sums = requests_of(spec), [requests_of(one) for one in others]
    used_milli = sum(one.cpu_milli for one in sums)
    used_bytes = sum(one.memory_bytes for one in sums)
    cpu_capacity = capacity_of("cpu").nano * 1000 // NANO
    if asked.cpu_milli and used_milli + asked.cpu_milli > cpu_capacity:
        return _out_of("cpu", asked.cpu_milli, used_milli, cpu_capacity)
    memory_capacity = capacity_of("memory").value
    if asked.memory_bytes and used_bytes + asked.memory_bytes > memory_capacity:
        return _out_of("memory", asked.memory_bytes, used_bytes, memory_capacity)
    for name, amount in asked.resources.items():
        # A kubelet ignores unknown extended resources.
        known = name in allocatable or "/" not in name
        used, capacity = sum(one.resources.get(name, 0) for one in sums), capacity_of(name)
        if known and used + amount > capacity.value:
            return _out_of(name, amount, used, capacity.value)
    return None


def _affinity(spec: Object, obj: Object) -> Rejection | None:
    needs = pod_needs(spec)
    metadata = obj["metadata"]
    node = Node(metadata["name"], metadata.get("uid", ""), labels=metadata.get("labels") or {})
    selected = all(node.labels.get(key) == value for key, value in needs.node_selector.items())
    if selected and (not needs.node_terms or matches(needs.node_terms, node)):
        return None
    return _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")


def _taints(spec: Object, node: Object) -> Rejection | None:
    tolerations = pod_needs(spec).tolerations
    for taint in taints_from((node.get("spec") or {}).get("taints")):
        # A kubelet ignores all other effects.
        if taint.effect == "NoExecute" and not any(one.tolerates(taint) for one in tolerations):
            return _failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _ports(spec: Object, others: list[Object]) -> Rejection | None:
    taken = [port for one in others for port in _host_ports(one)]
    if any(_clash(port, other) for port in _host_ports(spec) for other in taken):
        return _failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
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


def _failed(predicate: str, why: str) -> Rejection:
    return Rejection(predicate, f"Predicate {predicate} failed: {why}")


def _out_of(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, requested: {requested}, "
        f"used: {used}, capacity: {capacity}",
    )
