"""PodGroups of Volcano and Kubernetes, and Volcano Queues, as domain values."""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from dray.api.groups import (
    DEFAULT_QUEUE,
    GROUP_NAME_KEYS,
    KUBERNETES,
    MAX_ENTRIES,
    MAX_TIMEOUT_S,
    MIN_TIMEOUT_S,
    TASK_AFFINITY,
    TASK_ANTI_AFFINITY,
    TASK_KEY,
    TASK_ORDER,
    VOLCANO,
    GroupQueue,
    PodGroup,
    SubGroupPolicy,
)
from dray.api.names import GANG_LOSS_POLICY, GANG_TIMEOUT
from dray.api.pods import GroupKey, GroupMember, NodeExpression, PodClaim
from dray.api.quantities import parse_quantity
from dray.kube.convert_metadata import annotation, is_deleting, label, time_from
from dray.kube.ports import Object
from dray.reasons import name_list
from dray.runtime.units import parse_duration

T = TypeVar("T")
LOSS_ENDS, LOSS_KEEPS = "end", "keep"
"""Values of the annotation ``tensor-fusion.ai/gang-loss-policy``."""


_OWNED_PREFIX: Final = "podgroup-"
_LONGEST_NAME: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_group_name(name: str) -> bool:
    """Whether a PodGroup may have this name: a DNS-1123 subdomain."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def owned_name(uid: str) -> str:
    """The name of the group for the pods of an owner, as Volcano names it."""
    return f"{_OWNED_PREFIX}{uid}"


def is_owned(key: GroupKey) -> bool:
    """Whether a group has its name from the owner of its pods."""
    return key.api == VOLCANO and key.name.startswith(_OWNED_PREFIX)


def group_key(obj: Object) -> GroupKey | None:
    """The PodGroup to which a pod belongs. Kubernetes' own field comes before annotations. A pod
    with an invalid PodGroup name is in no group."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace") or ""
    native = str((obj["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")
    if native:
        return GroupKey(KUBERNETES, namespace, native) if is_group_name(native) else None
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    name = ""
    for key in GROUP_NAME_KEYS:
        if name := str(annotations.get(key, "")) or str(labels.get(key, "")):
            break
    return GroupKey(VOLCANO, namespace, name) if is_group_name(name) else None


def group_member(obj: Object) -> GroupMember | None:
    """The place of a pod in its PodGroup; None if the pod names no group."""
    key = group_key(obj)
    if key is None:
        return None
    labels = {name: str(value) for name, value in (obj["metadata"].get("labels") or {}).items()}
    return GroupMember(key, annotation(obj, TASK_KEY) or label(obj, TASK_KEY), labels)


def pod_group_from(obj: Object) -> PodGroup:
    """A PodGroup of either API. Amounts that can't be read are kept unchanged."""
    is_native = str(obj.get("apiVersion") or "").startswith(KUBERNETES)
    return _native(obj) if is_native else _volcano(obj)


def _volcano(obj: Object) -> PodGroup:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    key, cut = GroupKey(VOLCANO, metadata["namespace"], metadata["name"]), _Cut()
    tasks = ((task, int(least)) for task, least in (spec.get("minTaskMember") or {}).items())
    group = PodGroup(
        key=key,
        uid=metadata["uid"],
        minimum=int(spec.get("minMember") or 0),
        task_minimums=dict(cut("minTaskMember", (one for one in tasks if one[1]))),
        sub_groups=tuple(
            _sub_group(one, cut) for one in cut("subGroupPolicy", spec.get("subGroupPolicy") or ())
        ),
        min_resources=_amounts(spec.get("minResources")),
        queue=spec.get("queue") or DEFAULT_QUEUE,
        priority_class=spec.get("priorityClassName") or "",
        timeout_s=_timeout_s(obj),
        affinity=_sets(obj, TASK_AFFINITY, cut),
        anti_affinity=_sets(obj, TASK_ANTI_AFFINITY, cut),
        task_order=cut(TASK_ORDER, _names(annotation(obj, TASK_ORDER))),
        ends_below_minimum=annotation(obj, GANG_LOSS_POLICY) != LOSS_KEEPS,
        deleting=is_deleting(obj),
        created_unix_s=time_from(metadata.get("creationTimestamp")),
    )
    return replace(group, blocked=cut.in_words(key))


class _Cut:
    """Cuts each list of a PodGroup to the entries that are read."""

    def __init__(self) -> None:
        self._fields: dict[str, None] = {}
        """Fields whose lists have more entries."""

    def __call__(self, field: str, entries: Iterable[T]) -> tuple[T, ...]:
        found = tuple(islice(entries, MAX_ENTRIES + 1))
        if len(found) > MAX_ENTRIES:
            self._fields[field] = None
        return found[:MAX_ENTRIES]

    def in_words(self, key: GroupKey) -> str:
        """Why the group must not be decided; empty if nothing was cut."""
        if not self._fields:
            return ""
        return (
            f"PodGroup {key} has more than {MAX_ENTRIES} entries in {name_list(list(self._fields))}"
            f": dray reads {MAX_ENTRIES} at most; write fewer"
        )


def _native(obj: Object) -> PodGroup:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    priority = spec.get("priority")
    disrupts_all = (spec.get("disruptionMode") or {}).get("all") is not None
    policy = annotation(obj, GANG_LOSS_POLICY)
    return PodGroup(
        key=GroupKey(KUBERNETES, metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        minimum=int(gang.get("minCount") or 0),
        priority_class=spec.get("priorityClassName") or "",
        priority=None if priority is None else int(priority),
        timeout_s=_timeout_s(obj),
        ends_below_minimum=policy == LOSS_ENDS or (disrupts_all and policy != LOSS_KEEPS),
        deleting=is_deleting(obj),
        created_unix_s=time_from(metadata.get("creationTimestamp")),
        claims=tuple(
            PodClaim(
                reference=str(one.get("name") or ""),
                claim=str(one.get("resourceClaimName") or ""),
                template=str(one.get("resourceClaimTemplateName") or ""),
            )
            for one in islice(spec.get("resourceClaims") or (), MAX_ENTRIES)
        ),
    )


def queue_from(obj: Object) -> GroupQueue:
    """A Volcano Queue."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    allocated = (status.get("allocated") or {}).get("pods") or 0
    return GroupQueue(
        name=obj["metadata"]["name"],
        uid=obj["metadata"].get("uid", ""),
        state=status.get("state") or "",
        parent=spec.get("parent") or "",
        priority=int(spec.get("priority") or 0),
        capability=_amounts(spec.get("capability")),
        deserved=_amounts(spec.get("deserved")),
        guarantee=_amounts((spec.get("guarantee") or {}).get("resource")),
        pods=parse_quantity(str(allocated)).value,
    )


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: str(amount) for name, amount in (resources or {}).items()}


def _timeout_s(obj: Object) -> float:
    """The group's own deadline. 0: it has none, or one that can't be read or is too long. A
    deadline shorter than ``MIN_TIMEOUT_S`` becomes that."""
    try:
        timeout_s = parse_duration(annotation(obj, GANG_TIMEOUT))
    except ValueError:
        return 0.0
    return max(timeout_s, MIN_TIMEOUT_S) if 0 < timeout_s <= MAX_TIMEOUT_S else 0.0


def _sub_group(entry: Mapping[str, Any], cut: _Cut) -> SubGroupPolicy:
    size, least = entry.get("subGroupSize"), entry.get("minSubGroups")
    return SubGroupPolicy(
        name=entry.get("name") or "",
        selector=cut("labelSelector", _requirements(entry.get("labelSelector") or {}, cut)),
        label_keys=cut("matchLabelKeys", entry.get("matchLabelKeys") or ()),
        size=1 if size is None else int(size),
        minimum=0 if least is None else int(least),
    )


def _requirements(selector: Mapping[str, Any], cut: _Cut) -> tuple[NodeExpression, ...]:
    labels = (selector.get("matchLabels") or {}).items()
    return (
        *(NodeExpression(key, "In", (value,)) for key, value in labels),
        *(
            NodeExpression(
                one["key"], one["operator"], cut("labelSelector", one.get("values") or ())
            )
            for one in selector.get("matchExpressions") or ()
        ),
    )


def _sets(obj: Object, name: str, cut: _Cut) -> tuple[tuple[str, ...], ...]:
    """The task sets of an annotation, such as ``ps,worker;chief``, each once."""
    sets = dict.fromkeys(map(_names, annotation(obj, name).split(";")))
    return tuple(cut(name, tasks) for tasks in cut(name, filter(None, sets)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
