"""The kinds of objects that are watched, and which of them are facts as they are. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from dray.kube.convert import (
    UNREADABLE,
    class_from,
    node_from,
    policy_from,
    pool_from,
    slice_from,
    why_unreadable,
)
from dray.kube.convert_dra_slices import taint_rule_from
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    POLICIES,
    POOLS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    Object,
    Resource,
)

WATCHED: tuple[Resource, ...] = (
    CLASSES,
    POOLS,
    POLICIES,
    NODES,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    CLAIMS,
    PODS,
    BIND_REQUESTS,
)

FACTS_OF = {
    CLASSES.plural: "deviceclass",
    TAINT_RULES.plural: "taintrule",
    POOLS.plural: "pool",
    POLICIES.plural: "policy",
    TEMPLATES.plural: "template",
    NODES.plural: "node",
}
"""By plural, the facts that are made of one object alone."""


_READ_AS: Mapping[str, Callable[[Object], object]] = {
    CLASSES.plural: class_from,
    POOLS.plural: pool_from,
    POLICIES.plural: policy_from,
    NODES.plural: node_from,
    SLICES.plural: slice_from,
    TAINT_RULES.plural: taint_rule_from,
}
"""By plural, what facts are made of."""


def read(resource: Resource, obj: Object) -> tuple[Any, str]:
    """What facts are made of, and why the object can't be read; empty if it can."""
    try:
        read_as = _READ_AS.get(resource.plural)
        return None if read_as is None else read_as(obj), ""
    except UNREADABLE as error:
        return None, why_unreadable(error)


def name_of(obj: Object) -> str:
    """``namespace/name``, or the name of what has no namespace."""
    namespace = obj["metadata"].get("namespace")
    name = str(obj["metadata"]["name"])
    return f"{namespace}/{name}" if namespace else name
