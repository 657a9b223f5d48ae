"""Admission of pods without GPUs that name a scheduler of dray and a GPUPool: dray places them on
the pool's nodes, and binds them, as it does pods with GPUs.

They refer to no claim: dray makes one that accounts for them and asks for no device. If dray does
not bind in the pool, or a pod has needs that only kube-scheduler reads, it is a rider.
"""

from dray.api.errors import InvalidInputError
from dray.api.names import (
    DRA_ENABLED,
    DRAY_SCHEDULER,
    GPU_SHARE_RESOURCE,
    GPUPOOL,
    OWNER_DRAY,
    PREFIX,
)
from dray.api.pods import Pool
from dray.kube.convert import given_by_classes, pod_needs
from dray.messages.events import PodRequested
from dray_webhook.decisions import annotation_values as values
from dray_webhook.decisions.annotations import AnnotationFindings, AnnotationReader, GpuRequest
from dray_webhook.decisions.gpu_resources import without_resources
from dray_webhook.decisions.groups import JoinedGroup, join_group
from dray_webhook.decisions.injection import (
    AdmissionIds,
    Injection,
    inject,
    is_allocated_by_kube_scheduler,
    node_conflicts,
)
from dray_webhook.decisions.jsonpatch import difference
from dray_webhook.decisions.pools import Installation, PoolResolution, resolve_pool
from dray_webhook.decisions.review import (
    DENIED,
    RETRY,
    AdmissionAnswer,
    AdmissionRequest,
    Object,
    annotations_of,
)
from dray_webhook.decisions.riders import NOT_ABOUT_GPUS, OF_POOL, admit_rider, without_forged
from dray_webhook.decisions.shape import shape_without_devices
from dray_webhook.decisions.view import View

_KNOWN = (*NOT_ABOUT_GPUS, *OF_POOL)


def is_cpu_task(pod: Object, installation: Installation) -> bool:
    """Whether the pod names a scheduler of dray and a GPUPool, and asks for no GPUs."""
    annotations = annotations_of(pod)
    scheduler = (pod.get("spec") or {}).get("schedulerName")
    if scheduler not in (DRAY_SCHEDULER, *installation.scheduler_names):
        return False
    names = (name for name in annotations if name.startswith(PREFIX))
    wants_claim = annotations.get(DRA_ENABLED, "false") != "false"
    return GPUPOOL in annotations and not wants_claim and all(name in _KNOWN for name in names)


def admit_cpu_task(
    request: AdmissionRequest, view: View, installation: Installation, ids: AdmissionIds
) -> AdmissionAnswer:
    """The answer for such a pod at CREATE."""
    pod = request.object or {}
    findings = AnnotationFindings()
    group = join_group(pod, findings)
    name = AnnotationReader(annotations_of(pod), findings).read(GPUPOOL, values.pool, None)
    asked = GpuRequest(pool=name)
    found = resolve_pool(asked, request.namespace, view, installation, findings)
    findings.errors.extend(node_conflicts(pod.get("spec") or {}))
    why = "" if found.pool is None else _why_not_bound(pod, found.pool, view, findings)
    if findings.errors or found.pool is None:
        return _denial(request, view, found, findings)
    if why:
        what = f"annotation {GPUPOOL} has no effect: kube-scheduler places the pod, because {why}"
        return admit_rider(pod, installation, ids, (what,))
    patched = _placed(pod, found.pool, group, ids)
    findings.warnings.append(
        f'the pod asks for no GPUs, and gets none: dray places it on nodes of GPUPool "{name}"'
    )
    return AdmissionAnswer(
        patch=tuple(difference(pod, patched)),
        warnings=tuple(findings.warnings),
        requested=PodRequested(
            request_id=ids.request_id,
            namespace=request.namespace,
            name=request.name or (pod.get("metadata") or {}).get("name", ""),
            pool=found.pool.name,
            template="",
            understood={"gpus": "0", "pool": found.pool.name, "binder": OWNER_DRAY},
            traceparent=ids.traceparent,
        ),
    )


def _why_not_bound(pod: Object, pool: Pool, view: View, findings: AnnotationFindings) -> str:
    """Why dray does not bind the pod on the pool's nodes; empty: it does."""
    if is_allocated_by_kube_scheduler(pool):
        return f'GPUPool "{pool.name}" is owned by kube-scheduler (spec.owner)'
    if not pool.dedicated:
        return f'GPUPool "{pool.name}" is on shared nodes'
    try:
        needs = pod_needs(pod.get("spec") or {})
    except InvalidInputError as error:
        findings.errors.append(f"spec of the pod: {error}")
        return ""
    unread = (*needs.unread, *given_by_classes(needs, view.classes.values()))
    named = ", ".join(unread)
    return f"the pod has needs that only kube-scheduler reads ({named})" if unread else ""


def _placed(pod: Object, pool: Pool, group: JoinedGroup, ids: AdmissionIds) -> Object:
    """The pod, to be bound by dray."""
    injection = Injection(
        base="",
        template="",
        shape_text=shape_without_devices(pool),
        pool=pool,
        gated=False,
        ids=ids,
        group=group,
        plugin={},
    )
    # A share that no decision gives would keep pods that have GPUs from theirs.
    return inject(without_resources(without_forged(pod), (GPU_SHARE_RESOURCE,)), injection)


def _denial(
    request: AdmissionRequest, view: View, found: PoolResolution, findings: AnnotationFindings
) -> AdmissionAnswer:
    name = request.name or ((request.object or {}).get("metadata") or {}).get("name") or ""
    return AdmissionAnswer(
        allowed=False,
        code=RETRY if view.unanswered else DENIED,
        message=f'pod "{name}" can\'t be placed: {"; ".join(findings.errors)}',
        warnings=tuple(findings.warnings),
        unresolved=tuple(dict.fromkeys(found.unresolved)),
    )
