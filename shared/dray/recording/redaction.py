"""Redacts Kubernetes objects to the fields that decisions read. Pure.

There is an allow-list for each kind. Environments, commands, images, contents of volumes, managed
fields and other projects' annotations are in none of them, so their secrets are not recorded.
Fields of later Kubernetes releases are not recorded, either. A field that a decision reads must be
listed here; otherwise its replay differs.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from dray.api.groups import (
    GROUP_NAME_KEYS,
    TASK_AFFINITY,
    TASK_ANTI_AFFINITY,
    TASK_KEY,
    TASK_ORDER,
)
from dray.api.names import POD_CLAIM_NAME, PREFIX

Rule = Callable[[Any], Any]
"""Maps a value to its recorded form."""


def redacted(plural: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded form of an object. ``plural``: the plural of its kind, such as ``pods``.

    Raises:
        KeyError: objects of this kind are not recorded.
    """
    kept: dict[str, Any] = _KINDS[plural](obj)
    return kept


def _whole(value: Any) -> Any:
    return value


def _present(value: Any) -> Any:
    """Keeps the presence of a value, not the value."""
    return None if value is None else {}


def _shape(value: Any) -> Any:
    """Placeholder for a value of unexpected shape. Services can't read such values, either."""
    match value:
        case str():
            return value and "…"
        case Mapping():
            return {"…": None} if value else {}
        case list() | tuple():
            return [None] if value else []
    return value


def _own(annotations: Any) -> Any:
    if not isinstance(annotations, Mapping):
        return _shape(annotations)
    return {
        name: value
        for name, value in annotations.items()
        if name.startswith(PREFIX) or name in _READ_OF_OTHERS
    }


def _fields(*names: str, others: Rule | None = None, **parts: Rule) -> Rule:
    """Keep the named fields whole, and ``parts`` by their rules. ``others``: the rule for all other
    fields."""
    rules = MappingProxyType({**dict.fromkeys(names, _whole), **parts})

    def keep(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _shape(value)
        kept = {name: rules.get(name, others) for name in value}
        return {name: rule(value[name]) for name, rule in kept.items() if rule is not None}

    return keep


def _each(rule: Rule) -> Rule:
    def keep(value: Any) -> Any:
        return [rule(one) for one in value] if isinstance(value, list | tuple) else _shape(value)

    return keep


def _kind(**parts: Rule) -> Rule:
    return _fields("apiVersion", "kind", metadata=_METADATA, **parts)


_READ_OF_OTHERS: Final = frozenset(
    (POD_CLAIM_NAME, *GROUP_NAME_KEYS, TASK_KEY, TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER)
)
"""Annotations of other projects that decisions read."""
_METADATA: Final = _fields(
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
    "finalizers",
    annotations=_own,
)
_CONDITIONS: Final = _each(_fields("type", "status", "reason"))
_CONTAINERS: Final = _each(
    _fields("name", "resources", "ports", "restartPolicy", "restartPolicyRules")
)
_CONTAINER_STATUSES: Final = _each(_fields("name", "resources", "allocatedResources"))
_POD: Final = _kind(
    spec=_fields(
        "affinity",
        "hostNetwork",
        "hostUsers",
        "nodeName",
        "nodeSelector",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "resourceClaims",
        "resources",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "tolerations",
        "topologySpreadConstraints",
        "workloadRef",
        containers=_CONTAINERS,
        initContainers=_CONTAINERS,
        volumes=_each(_fields("name", others=_present)),
    ),
    status=_fields(
        "phase",
        "nominatedNodeName",
        "resourceClaimStatuses",
        "extendedResourceClaimStatus",
        "resources",
        "allocatedResources",
        conditions=_CONDITIONS,
        containerStatuses=_CONTAINER_STATUSES,
        initContainerStatuses=_CONTAINER_STATUSES,
    ),
)
_DEVICE_STATUS: Final = _fields("driver", "pool", "device", "shareID", "conditions")
_CLAIM: Final = _kind(
    spec=_whole, status=_fields("allocation", "reservedFor", devices=_each(_DEVICE_STATUS))
)
_NODE: Final = _kind(
    spec=_fields("taints", "unschedulable"),
    status=_fields("allocatable", "capacity", conditions=_CONDITIONS),
)
_WHOLE: Final = _kind(spec=_whole, status=_whole)
"""Kinds whose whole spec and status are inputs of decisions."""
_KINDS: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "pods": _POD,
        "nodes": _NODE,
        "resourceclaims": _CLAIM,
        "resourceclaimtemplates": _kind(
            spec=_fields("spec", metadata=_fields("labels", annotations=_own))
        ),
        "resourceslices": _kind(spec=_whole),
        "deviceclasses": _kind(spec=_whole),
        "devicetaintrules": _kind(spec=_whole),
        "gpupools": _WHOLE,
        "schedulingconfigtemplates": _WHOLE,
        "bindrequests": _WHOLE,
        "podgroups": _WHOLE,
        "podgroups.scheduling.k8s.io": _WHOLE,
        "queues": _WHOLE,
        "priorityclasses": _fields(
            "apiVersion", "kind", "value", "preemptionPolicy", metadata=_METADATA
        ),
    }
)
