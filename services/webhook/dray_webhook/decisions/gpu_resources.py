"""Pods that ask for whole GPUs with a device plugin's resource: ``nvidia.com/gpu: 1``.

The resource becomes annotations. It is removed from pods that get a claim: kube-scheduler would
look for a node that has it.
"""

import copy
import json
from collections.abc import Sequence

from dray.api.names import (
    CONTAINER_GPU_COUNT,
    CONTAINER_GPUS,
    DEDICATED_GPU,
    DRA_ENABLED,
    GPU_COUNT,
    INJECT_CONTAINER,
    MAX_GPUS_PER_CLAIM,
)
from dray.api.quantities import NANO, InvalidQuantityError, parse_quantity
from dray_webhook.decisions.annotation_values import quoted
from dray_webhook.decisions.annotations import AMOUNTS, AnnotationFindings
from dray_webhook.decisions.containers import containers_of
from dray_webhook.decisions.review import Object, annotations_of

_SAY_HOW_MANY = (*AMOUNTS, GPU_COUNT, CONTAINER_GPUS, CONTAINER_GPU_COUNT, INJECT_CONTAINER)


def asks_by_resource(pod: Object, resources: Sequence[str]) -> bool:
    """Whether a container asks for one of the resources."""
    return bool(_resource_counts(pod, resources))


def as_annotations(pod: Object, resources: Sequence[str], findings: AnnotationFindings) -> Object:
    """The pod with annotations in place of the resources; adds errors to ``findings``."""
    counts = _resource_counts(pod, resources)
    if not counts:
        return pod
    annotations = annotations_of(pod)
    asked = " or ".join(resources)
    errors = [
        f"container {quoted(next(iter(counts)))} asks for {asked}, which is whole "
        f"GPUs, and annotation {name} says what the pod gets, too: expected one of them"
        for name in _SAY_HOW_MANY
        if name in annotations
    ] + [
        f"container {quoted(name)} asks for {count} of {asked}: expected {MAX_GPUS_PER_CLAIM} at "
        "most, the most devices that Kubernetes allows in one claim"
        for name, count in counts.items()
        if count > MAX_GPUS_PER_CLAIM
    ]
    findings.errors += errors
    # After an error, annotations of amounts are left out, so that they cause no other error.
    written = {} if errors else _who_gets_them(pod, counts)
    others = {name: text for name, text in annotations.items() if name not in _SAY_HOW_MANY}
    converted = without_resources(pod, resources)
    converted["metadata"] = {
        **(pod.get("metadata") or {}),
        "annotations": {DRA_ENABLED: "true", DEDICATED_GPU: "true", **written, **others},
    }
    return converted


def without_resources(pod: Object, resources: Sequence[str]) -> Object:
    """The pod whose containers do not ask for the resources."""
    stripped = copy.deepcopy(pod)
    for container in containers_of(stripped.get("spec") or {}):
        if _count(container, resources):
            for amounts in ("limits", "requests"):
                for name in resources:
                    (container["resources"].get(amounts) or {}).pop(name, None)
    return stripped


def _who_gets_them(pod: Object, counts: dict[str, int]) -> dict[str, str]:
    """Annotations that give GPUs to the containers. Init containers end before the others start, so
    they take turns with the only other container that asks, if they ask for no more than it does.
    Otherwise each container gets its own GPUs."""
    turns = taking_turns(pod.get("spec") or {})
    lasting = [count for name, count in counts.items() if name not in turns]
    if len(lasting) == 1 and lasting[0] == max(counts.values()):
        return {GPU_COUNT: str(lasting[0]), INJECT_CONTAINER: ",".join(counts)}
    return {CONTAINER_GPU_COUNT: json.dumps(counts)}


def taking_turns(spec: Object) -> set[str]:
    """The init containers that end before the others start."""
    return {
        container.get("name", "")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") != "Always"
    }


def _resource_counts(pod: Object, resources: Sequence[str]) -> dict[str, int]:
    """The number of whole GPUs by container, for containers that ask for some."""
    return {
        container.get("name", ""): count
        for container in containers_of(pod.get("spec") or {})
        if (count := _count(container, resources))
    }


def _count(container: Object, resources: Sequence[str]) -> int:
    """The number that a container asks for; also 0 if the API server will refuse the amount."""
    limits = (container.get("resources") or {}).get("limits") or {}
    try:
        nano = sum(parse_quantity(str(limits[name])).nano for name in resources if name in limits)
    except InvalidQuantityError:
        return 0
    return 0 if nano % NANO else max(nano // NANO, 0)
