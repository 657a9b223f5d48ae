"""Admission of pods without GPUs that name one of dray's schedulers, or are in a group.

kube-scheduler places them. Pods of a group wait at dray's gate until the group starts.
"""

import copy
from collections.abc import Sequence

from dray.api.names import (
    ALLOCATION_GATE,
    DEFAULT_SCHEDULER,
    DRA_ENABLED,
    GANG_ANNOTATIONS,
    GPUPOOL,
    OWN_ANNOTATIONS,
    PREFIX,
    REQUEST_ID,
    SHAPE,
    TRACEPARENT,
)
from dray_webhook.decisions.annotations import AnnotationFindings
from dray_webhook.decisions.groups import NO_GROUP, JoinedGroup, join_group, name_group
from dray_webhook.decisions.injection import NEVER_ON_CREATED_PODS, AdmissionIds
from dray_webhook.decisions.jsonpatch import difference
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import DENIED, AdmissionAnswer, Object, annotations_of

NOT_ABOUT_GPUS = (*GANG_ANNOTATIONS, *OWN_ANNOTATIONS)
OF_POOL = (GPUPOOL, DRA_ENABLED)
"""Annotations that pods without GPUs may have if dray places them."""


def asks_for_gpus(pod: Object) -> bool:
    """Whether annotations of dray ask for GPUs, or are not known."""
    names = (name for name in annotations_of(pod) if name.startswith(PREFIX))
    return any(name not in NOT_ABOUT_GPUS for name in names)


def admit_rider(
    pod: Object, installation: Installation, ids: AdmissionIds, warnings: Sequence[str] = ()
) -> AdmissionAnswer:
    """The answer for a pod without GPUs at CREATE."""
    findings = AnnotationFindings(warnings=[*warnings])
    group = join_group(pod, findings)
    scheduler = (pod.get("spec") or {}).get("schedulerName") or DEFAULT_SCHEDULER
    if scheduler not in (DEFAULT_SCHEDULER, *installation.scheduler_names):
        # Another scheduler places the pod; it may also know the group.
        patched = without_forged(pod)
        return AdmissionAnswer(
            patch=tuple(difference(pod, patched)), warnings=tuple(findings.warnings)
        )
    if findings.errors:
        name = (pod.get("metadata") or {}).get("name") or ""
        return AdmissionAnswer(
            allowed=False,
            code=DENIED,
            message=f'pod "{name}" can\'t join its group: {"; ".join(findings.errors)}',
            warnings=tuple(findings.warnings),
        )
    patched = _patched(pod, group, ids)
    return AdmissionAnswer(patch=tuple(difference(pod, patched)), warnings=tuple(findings.warnings))


def without_forged(pod: Object) -> Object:
    """The pod without annotations that only dray writes: dray would make a template from a forged
    shape."""
    patched = copy.deepcopy(pod)
    for name in (*NEVER_ON_CREATED_PODS, SHAPE):
        ((patched.get("metadata") or {}).get("annotations") or {}).pop(name, None)
    return patched


def _patched(pod: Object, group: JoinedGroup, ids: AdmissionIds) -> Object:
    patched = without_forged(pod)
    spec = patched.setdefault("spec", {})
    spec["schedulerName"] = DEFAULT_SCHEDULER
    annotations = patched.setdefault("metadata", {}).setdefault("annotations", {})
    for name in OF_POOL:  # Pods in a pool wait for claims of dray.
        annotations.pop(name, None)
    annotations[REQUEST_ID] = ids.request_id
    annotations[TRACEPARENT] = ids.traceparent
    if group == NO_GROUP:
        return patched
    name_group(annotations, group)
    gates = spec.get("schedulingGates") or []
    if all(gate.get("name") != ALLOCATION_GATE for gate in gates):
        spec["schedulingGates"] = [*gates, {"name": ALLOCATION_GATE}]
    return patched
