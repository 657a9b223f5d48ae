"""What a pod's spec asks of a node: the part dray's node fit reads, and names for the rest.

Requests are summed as ``PodRequests`` of k8s.io/component-helpers/resource does.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dray.domain.names import CLAIM_REFERENCE
from dray.domain.pods import NodeExpression, NodeTerm, PodNeeds
from dray.domain.quantities import Quantity, parse_quantity
from dray.kube.convert_metadata import tolerations_from

Spec = Mapping[str, Any]
Amounts = dict[str, Quantity]

_READ: Final = ("cpu", "memory")
_PLAIN_VOLUMES: Final = (
    "configMap",
    "secret",
    "emptyDir",
    "projected",
    "hostPath",
    "downwardAPI",
    "image",
)
"""Volume sources that no node lacks; any other may bind the pod to some nodes."""


def pod_requests(spec: Spec) -> tuple[int, int]:
    """CPU in thousandths of a core and memory in bytes that the pod takes of its node."""
    amounts = _pod_amounts(spec)
    zero = Quantity(0)
    return amounts.get("cpu", zero).milli, amounts.get("memory", zero).value


def pod_needs(spec: Spec) -> PodNeeds:
    """What the pod asks of a node; ``unread`` names what dray's node fit doesn't look at."""
    cpu_milli, memory_bytes = pod_requests(spec)
    affinity = spec.get("affinity") or {}
    return PodNeeds(
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        node_selector=dict(spec.get("nodeSelector") or {}),
        node_terms=_node_terms(affinity.get("nodeAffinity") or {}),
        tolerations=tolerations_from(spec.get("tolerations")),
        unread=tuple(dict.fromkeys(_unread(spec, affinity))),
    )


def _pod_amounts(spec: Spec) -> Amounts:
    total = _sum(_requests(container) for container in spec.get("containers") or ())
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            total = _plus(total, asked)
            sidecars = _plus(sidecars, asked)
            asked = sidecars
        else:
            asked = _plus(asked, sidecars)
        largest = _most(largest, asked)
    total = _most(total, largest)
    pod_level = _requests(spec)
    total.update(pod_level)
    return _plus(total, _quantities(spec.get("overhead")))


def _requests(holder: Spec) -> Amounts:
    resources = holder.get("resources") or {}
    # The server defaults a request that is absent to its limit.
    return {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}


def _quantities(amounts: Mapping[str, Any] | None) -> Amounts:
    return {name: parse_quantity(str(amount)) for name, amount in (amounts or {}).items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        total = _plus(total, part)
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


def _node_terms(affinity: Mapping[str, Any]) -> tuple[NodeTerm, ...]:
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return tuple(
        (
            *(_expression(entry, False) for entry in term.get("matchExpressions") or ()),
            *(_expression(entry, True) for entry in term.get("matchFields") or ()),
        )
        for term in required.get("nodeSelectorTerms") or ()
    )


def _expression(entry: Mapping[str, Any], is_field: bool) -> NodeExpression:
    values = tuple(entry.get("values") or ())
    return NodeExpression(entry["key"], entry["operator"], values, is_field)


def _unread(spec: Spec, affinity: Mapping[str, Any]) -> Iterator[str]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if (affinity.get("podAffinity") or {}).get(required):
        yield "pod affinity"
    if (affinity.get("podAntiAffinity") or {}).get(required):
        yield "pod anti-affinity"
    if any(
        entry.get("whenUnsatisfiable") != "ScheduleAnyway"
        for entry in spec.get("topologySpreadConstraints") or ()
    ):
        yield "topology spread"
    yield from _unread_volumes(spec)
    yield from _unread_ports(spec)
    for name in sorted(_pod_amounts(spec)):
        if name not in _READ:
            yield f"resource {name}"
    for entry in spec.get("resourceClaims") or ():
        if entry["name"] != CLAIM_REFERENCE:
            yield f"resource claim {entry['name']}"
    if spec.get("schedulingGroup") or spec.get("workloadRef"):
        yield "pod group"
    yield from _unread_features(spec)


def _unread_features(spec: Spec) -> Iterator[str]:
    """What a node must declare to know (plugin NodeDeclaredFeatures, 1.36 and later)."""
    if spec.get("hostUsers") is False and spec.get("hostNetwork"):
        yield "user namespace in the host's network"
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    rules = (rule for one in containers for rule in one.get("restartPolicyRules") or ())
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        yield "restart of all containers"


def _unread_volumes(spec: Spec) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        kinds = [kind for kind in volume if kind != "name" and volume[kind] is not None]
        if any(kind not in _PLAIN_VOLUMES for kind in kinds):
            yield f"volume {volume['name']}"


def _unread_ports(spec: Spec) -> Iterator[str]:
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (spec.get("hostNetwork") and port["containerPort"])
            if number:
                yield f"host port {number}"
