"""The kinds of objects that are watched, and which of them are facts as they are. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.json import Decoder

from dray.api.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from dray.api.groups import GroupQueue, PodGroup
from dray.api.json_codec import checked
from dray.api.pods import Node, Policy, Pool
from dray.kube.convert import (
    UNREADABLE,
    class_from,
    node_from,
    pod_group_from,
    policy_from,
    pool_from,
    queue_from,
    slice_from,
    taint_rule_from,
    why_unreadable,
)
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    CLASSES,
    NATIVE_POD_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    POLICIES,
    POOLS,
    PRIORITY_CLASSES,
    QUEUES,
    SLICES,
    TAINT_RULES,
    TAINT_RULES_BETA,
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
    PRIORITY_CLASSES,
    QUEUES,
    POD_GROUPS,
    NATIVE_POD_GROUPS,
    CLAIMS,
    PODS,
    BIND_REQUESTS,
)
OPTIONAL: Mapping[str, tuple[Resource, ...]] = {
    TAINT_RULES.plural: (TAINT_RULES, TAINT_RULES_BETA),
    QUEUES.plural: (QUEUES,),
    POD_GROUPS.plural: (POD_GROUPS,),
    NATIVE_POD_GROUPS.plural: (NATIVE_POD_GROUPS,),
}
"""By plural, kinds that some clusters do not serve, and the versions that dray reads, the preferred
one first."""
FACTS_OF = {
    CLASSES.plural: "deviceclass",
    TAINT_RULES.plural: "taintrule",
    POOLS.plural: "pool",
    POLICIES.plural: "policy",
    TEMPLATES.plural: "template",
    NODES.plural: "node",
    PRIORITY_CLASSES.plural: "priorityclass",
    QUEUES.plural: "queue",
}
"""By plural, the facts that are made from one object alone."""
_READ_AS: Mapping[str, tuple[Callable[[Object], Any], Decoder[Any]]] = {
    CLASSES.plural: (class_from, Decoder(DeviceClass)),
    POOLS.plural: (pool_from, Decoder(Pool)),
    POLICIES.plural: (policy_from, Decoder(Policy)),
    NODES.plural: (node_from, Decoder(Node)),
    SLICES.plural: (slice_from, Decoder(ResourceSlice)),
    TAINT_RULES.plural: (taint_rule_from, Decoder(DeviceTaintRule)),
    PRIORITY_CLASSES.plural: (lambda obj: int(obj["value"]), Decoder(int)),
    QUEUES.plural: (queue_from, Decoder(GroupQueue)),
    POD_GROUPS.plural: (pod_group_from, Decoder(PodGroup)),
    NATIVE_POD_GROUPS.plural: (pod_group_from, Decoder(PodGroup)),
    TEMPLATES.plural: (lambda obj: obj.get("spec") or {}, Decoder(dict[str, Any])),
}
"""By plural, how an object is read into the form that facts contain."""


def read(resource: Resource, obj: Object) -> tuple[Any, str]:
    """The object in the form that facts contain, and why it can't be read; empty if it can."""
    if (read_as := _READ_AS.get(resource.plural)) is None:
        return None, ""
    convert, decoder = read_as
    try:
        return checked(convert(obj), decoder), ""
    except UNREADABLE as error:
        return None, why_unreadable(error)


def read_fields(resource: Resource, fields: Object) -> Any:
    """The form that facts contain, from fields with the types of the API. Raises ``UNREADABLE``."""
    read_as = _READ_AS.get(resource.plural)
    return None if read_as is None else read_as[0](fields)


def name_of(obj: Object) -> str:
    """``namespace/name``, or the name of an object without a namespace."""
    namespace = obj["metadata"].get("namespace")
    name = str(obj["metadata"]["name"])
    return f"{namespace}/{name}" if namespace else name
