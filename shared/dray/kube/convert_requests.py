"""Resource requests of pods, and allocatable resources of nodes.

Requests are summed as in ``PodRequests`` of k8s.io/component-helpers/resource, including in-place
resizing and pod-level resources, which Kubernetes 1.36 enables by default.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dray.api.quantities import Quantity, parse_quantity

Spec = Mapping[str, Any]
Amounts = dict[str, Quantity]

_HUGE_PAGES: Final = "hugepages-"
_OF_PODS: Final = ("cpu", "memory")
"""Resources that a pod as a whole may request, other than huge pages."""
_CONTAINER_STATUSES: Final = ("containerStatuses", "initContainerStatuses")
_ZERO: Final = Quantity(0)


@dataclass(frozen=True, slots=True)
class Requests:
    """Amounts as kube-scheduler compares them: whole numbers, rounded up."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    resources: dict[str, int] = field(default_factory=dict)
    """By name, without zeros: ``ephemeral-storage`` and huge pages in bytes, others in units."""


def requests_of(spec: Spec, status: Spec | None = None) -> Requests:
    """The requests of a pod.

    Without ``status``: the requests of a pod without a node. With ``status``: the resources that
    the pod's node reserves for it, also during a resize.
    """
    return _requests(_pod_amounts(spec, status))


def is_resized(status: Spec) -> bool:
    """Whether a pod's status states resources. They may differ from those in its spec."""
    return status.get("resources") is not None or any(
        one.get("resources") is not None
        for kind in _CONTAINER_STATUSES
        for one in status.get(kind) or ()
    )


def allocatable_of(amounts: Mapping[str, Any]) -> Requests:
    """A node's ``status.allocatable`` for pods, without the number of pods."""
    return _requests(_quantities(amounts))


def _requests(amounts: Amounts) -> Requests:
    return Requests(
        amounts.get("cpu", _ZERO).milli,
        amounts.get("memory", _ZERO).value,
        {
            name: amount.value
            for name, amount in sorted(amounts.items())
            if amount.nano and _is_counted(name)
        },
    )


def _is_counted(name: str) -> bool:
    """Whether kube-scheduler compares a resource other than cpu and memory."""
    return name == "ephemeral-storage" or "/" in name or name.startswith(_HUGE_PAGES)


def _pod_amounts(spec: Spec, status: Spec | None) -> Amounts:
    resized = _Resized(status) if status and is_resized(status) else None
    total = _sum(_container(one, resized) for one in spec.get("containers") or ())
    if spec.get("initContainers"):
        total = _with_init_containers(total, spec["initContainers"], resized)
    if spec.get("resources"):
        total = {**total, **_of_the_pod(spec["resources"], total, resized)}
    return _plus(total, _quantities(spec["overhead"])) if spec.get("overhead") else total


def _with_init_containers(
    total: Amounts, containers: Iterable[Spec], resized: "_Resized | None"
) -> Amounts:
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in containers:
        if container.get("restartPolicy") == "Always":
            asked = _container(container, resized)
            total = _plus(total, asked)
            asked = sidecars = _plus(sidecars, asked)
        else:
            asked = _plus(_container(container, None), sidecars)
        largest = _most(largest, asked)
    return _most(total, largest)


class _Resized:
    """Resources of containers by the kubelet's status. They may differ from the spec during a
    resize."""

    def __init__(self, status: Spec) -> None:
        self._pod = status
        self._containers = {
            one["name"]: one for kind in _CONTAINER_STATUSES for one in status.get(kind) or ()
        }
        pending = [
            one for one in status.get("conditions") or () if one["type"] == "PodResizePending"
        ]
        self._infeasible = bool(pending) and pending[0].get("reason") == "Infeasible"

    def container(self, name: str, asked: Amounts) -> Amounts:
        """Resources charged for a container that requests ``asked``."""
        return self._effective(asked, self._containers.get(name) or {})

    def pod(self, asked: Amounts) -> Amounts:
        """Resources charged for a pod that requests ``asked`` as a whole."""
        taken = self._effective(asked, self._pod)
        return {name: taken.get(name, _ZERO) for name in asked}

    def _effective(self, asked: Amounts, status: Spec) -> Amounts:
        resources = status.get("resources")
        if resources is None:
            return asked
        has = _most(
            _quantities(resources.get("requests")), _quantities(status.get("allocatedResources"))
        )
        return has if self._infeasible else _most(asked, has)


def _container(container: Spec, resized: _Resized | None) -> Amounts:
    asked = _asked(container)
    return asked if resized is None else resized.container(container.get("name", ""), asked)


def _of_the_pod(resources: Spec, of_containers: Amounts, resized: _Resized | None) -> Amounts:
    """Requests of the pod as a whole. They replace the sum of its containers' requests."""
    # The server sets an absent request to the containers' sum by default, or else to its limit.
    limits = {
        name: amount
        for name, amount in _quantities(resources.get("limits")).items()
        if name not in of_containers or name.startswith(_HUGE_PAGES)
    }
    asked = {
        name: amount
        for name, amount in {**limits, **_quantities(resources.get("requests"))}.items()
        if name in _OF_PODS or name.startswith(_HUGE_PAGES)
    }
    return asked if resized is None else resized.pod(asked)


def _asked(container: Spec) -> Amounts:
    resources = container.get("resources") or {}
    # By default, the server sets an absent request to its limit.
    return {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}


def _quantities(amounts: Mapping[str, Any] | None) -> Amounts:
    return {name: parse_quantity(str(amount)) for name, amount in (amounts or {}).items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        total = _plus(total, part) if total else part
    return total


def _plus(left: Amounts, right: Amounts) -> Amounts:
    result = dict(left)
    for name, amount in right.items():
        result[name] = result[name] + amount if name in result else amount
    return result


def _most(left: Amounts, right: Amounts) -> Amounts:
    result = dict(left)
    for name, amount in right.items():
        result[name] = max(result[name], amount) if name in result else amount
    return result
