"""A pod's requirements on its node: those that dray's node fit reads, and names of the others."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from dray.api import json_codec
from dray.api.devices import IMPLICIT_RESOURCE, DeviceClass
from dray.api.names import CLAIM_REFERENCE
from dray.api.pods import ANY_ADDRESS, HostPort, NodeExpression, NodeTerm, PodNeeds
from dray.kube.convert_metadata import tolerations_from
from dray.kube.convert_requests import Spec, requests_of

_PLAIN_VOLUMES: Final = (
    "configMap",
    "secret",
    "emptyDir",
    "projected",
    "hostPath",
    "downwardAPI",
    "image",
)
"""Volume sources that every node has. Other sources may restrict the pod to some nodes."""


_SHARED: Final = 4096
"""Maximum number of different requirements that are kept for later pods."""
_SHARED_BYTES: Final = 4096
"""Maximum length of the text of requirements that are kept."""
_READ: Final = (
    "affinity",
    "hostNetwork",
    "hostUsers",
    "nodeSelector",
    "overhead",
    "resources",
    "tolerations",
    "topologySpreadConstraints",
    "workloadRef",
)
_READ_OF_CONTAINERS: Final = ("ports", "resources", "restartPolicy", "restartPolicyRules")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def pod_needs(spec: Spec) -> PodNeeds:
    """The pod's requirements on a node. ``unread`` names those that dray's node fit ignores. Pods
    with equal requirements, such as pods of one template, share one object."""
    text = msgspec.json.encode(_read_of(spec))
    return _shared_needs(text) if len(text) <= _SHARED_BYTES else _needs(text)


def _read_of(spec: Spec) -> dict[str, Any]:
    """The part of a pod's spec that its requirements depend on."""
    found = {name: value for name in _READ if (value := spec.get(name)) is not None}
    for kind in ("containers", "initContainers"):
        if containers := spec.get(kind):
            found[kind] = [_read_of_container(one) for one in containers]
    if volumes := [one for one in spec.get("volumes") or () if _is_unread(one)]:
        found["volumes"] = volumes
    if claims := spec.get("resourceClaims"):
        found["resourceClaims"] = [{"name": one["name"]} for one in claims]
    return found


def _read_of_container(container: Spec) -> dict[str, Any]:
    get = container.get
    return {name: value for name in _READ_OF_CONTAINERS if (value := get(name)) is not None}


def _needs(text: bytes) -> PodNeeds:
    spec = json_codec.decode(text, _OBJECT)
    asked = requests_of(spec)
    affinity = spec.get("affinity") or {}
    return PodNeeds(
        cpu_milli=asked.cpu_milli,
        memory_bytes=asked.memory_bytes,
        node_selector=dict(spec.get("nodeSelector") or {}),
        node_terms=_node_terms(affinity.get("nodeAffinity") or {}),
        tolerations=tolerations_from(spec.get("tolerations")),
        unread=tuple(dict.fromkeys(_unread(spec, affinity))),
        resources=asked.resources,
        ports=host_ports(spec),
    )


_shared_needs = lru_cache(_SHARED)(_needs)


def host_ports(spec: Spec) -> tuple[HostPort, ...]:
    """The host ports that a pod uses while it runs, without duplicates: those of its containers and
    sidecars, but not of init containers that end (``GetHostPorts`` of kube-scheduler)."""
    sidecars = (
        one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"
    )
    taken = (
        HostPort(number, port.get("protocol") or "TCP", port.get("hostIP") or ANY_ADDRESS)
        for container in (*sidecars, *(spec.get("containers") or ()))
        for port in container.get("ports") or ()
        if (number := _host_port(spec, port)) > 0
    )
    return tuple(sorted(dict.fromkeys(taken)))


def _host_port(spec: Spec, port: Mapping[str, Any]) -> int:
    # With the host's network, the server sets it to the container's port by default.
    return int(port.get("hostPort") or (spec.get("hostNetwork") and port["containerPort"]) or 0)


def given_by_classes(needs: PodNeeds, classes: Iterable[DeviceClass]) -> tuple[str, ...]:
    """Requested resources for which only kube-scheduler may allocate devices, because dray's node
    fit does not support them."""
    known = {name for one in classes for name in one.stands_for}
    return tuple(
        f"resource {name}"
        for name in needs.resources
        if name in known or name.startswith(IMPLICIT_RESOURCE)
    )


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
    yield from (f"volume {one['name']}" for one in spec.get("volumes") or ())
    for entry in spec.get("resourceClaims") or ():
        if entry["name"] != CLAIM_REFERENCE:
            yield f"resource claim {entry['name']}"
    if spec.get("workloadRef"):
        yield "pod group of Kubernetes 1.35"
    yield from _unread_features(spec)


def _unread_features(spec: Spec) -> Iterator[str]:
    """Features that a node must declare (plugin NodeDeclaredFeatures, 1.36 and later)."""
    if spec.get("hostUsers") is False and spec.get("hostNetwork"):
        yield "user namespace in the host's network"
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    rules = (rule for one in containers for rule in one.get("restartPolicyRules") or ())
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        yield "restart of all containers"


def _is_unread(volume: Mapping[str, Any]) -> bool:
    return any(
        kind != "name" and kind not in _PLAIN_VOLUMES and volume[kind] is not None
        for kind in volume
    )
