"""The kinds of objects that are watched, and which of them are facts as they are. Pure."""

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


def name_of(obj: Object) -> str:
    """``namespace/name``, or the name of what has no namespace."""
    namespace = obj["metadata"].get("namespace")
    name = str(obj["metadata"]["name"])
    return f"{namespace}/{name}" if namespace else name
