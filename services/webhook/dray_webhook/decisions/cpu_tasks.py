"""Admission of pods without GPUs that name one of dray's schedulers: dray places them on nodes of a
GPUPool and binds them, as it does pods with GPUs.

The pool is the one that the pod names. A pod that names none gets the default pool if it is in a
Volcano PodGroup whose ``minResources`` have GPUs, as frameworks create it: the group's other pods
are in that pool. The pods refer to no claim: dray makes one that accounts for them and asks for no
device. A pod is a rider instead if dray does not bind in the pool, if it has needs that only
kube-scheduler reads, or if it names no pool and selects its nodes itself.
"""

from dray.api.errors import InvalidInputError
from dray.api.names import (
    DEVICE_CLASS,
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
from dray.messages.rpc import Lookup
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
_DEVICES = f"deviceclass/{DEVICE_CLASS}"
"""End of the resource names that Volcano gives to dray's devices."""


def is_cpu_task(pod: Object, installation: Installation) -> bool:
    """Whether the pod names one of dray's schedulers, names a GPUPool or a Volcano PodGroup, and
    asks for no GPUs."""
    annotations = annotations_of(pod)
    scheduler = (pod.get("spec") or {}).get("schedulerName")
    if scheduler not in (DRAY_SCHEDULER, *installation.scheduler_names):
        return False
    asks = any(name not in _KNOWN for name in annotations if name.startswith(PREFIX))
    if asks or annotations.get(DRA_ENABLED, "false") != "false":
        return False
    group = join_group(pod, AnnotationFindings())
    return GPUPOOL in annotations or bool(group.name and not group.is_native and not group.is_owned)


def admit_cpu_task(
    request: AdmissionRequest, view: View, installation: Installation, ids: AdmissionIds
) -> AdmissionAnswer:
    """The answer for such a pod at CREATE."""
    pod = request.object or {}
    if GPUPOOL in annotations_of(pod):
        return _admit_to_pool(request, view, installation, ids)
    findings = AnnotationFindings()
    group = join_group(pod, findings)
    if findings.errors:
        return admit_rider(pod, installation, ids)  # Refuses the pod for them.
    question = Lookup(kind="group", name=group.name, namespace=request.namespace)
    if question not in view.asked:  # The group may have been created a moment ago.
        return AdmissionAnswer(unresolved=(question,))
    if any(_means_gpus(name, installation) for name in view.group_resources.get(question, ())):
        if not (field := _selects_nodes(pod.get("spec") or {})):
            return _admit_to_pool(request, view, installation, ids)
        why = f"it names no GPUPool and selects its nodes itself ({field})"
        return admit_rider(pod, installation, ids, (_by_kube_scheduler(why),))
    error = view.unanswered.get(question)
    why = f'dray could not make sure whether PodGroup "{group.name}" asks for GPUs: {error}'
    return admit_rider(pod, installation, ids, (_by_kube_scheduler(why),) if error else ())


def _selects_nodes(spec: Object) -> str:
    """The field that restricts the pod to some nodes, which may be outside the default pool; empty:
    there is none."""
    if spec.get("nodeSelector"):
        return "spec.nodeSelector"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return "required node affinity" if required else ""


def _means_gpus(resource: str, installation: Installation) -> bool:
    return resource in installation.gpu_resources or resource.endswith(_DEVICES)


def _by_kube_scheduler(why: str) -> str:
    return f"kube-scheduler places the pod once its group has started, because {why}"


def _admit_to_pool(
    request: AdmissionRequest, view: View, installation: Installation, ids: AdmissionIds
) -> AdmissionAnswer:
    """The answer for a pod that belongs in the pool that it names, or in the default pool. If it
    names no pool, kube-scheduler may place it instead."""
    pod = request.object or {}
    findings = AnnotationFindings()
    group = join_group(pod, findings)
    is_named = GPUPOOL in annotations_of(pod)
    reader = AnnotationReader(annotations_of(pod), findings)
    name = reader.read(GPUPOOL, values.pool, None) if is_named else ""
    of_pool = findings if is_named else AnnotationFindings()
    found = resolve_pool(GpuRequest(pool=name), request.namespace, view, installation, of_pool)
    findings.errors.extend(node_conflicts(pod.get("spec") or {}))
    why = "; ".join(of_pool.errors) if not is_named else ""
    if found.pool is not None:
        why = why or _why_not_bound(pod, found.pool, view, findings)
    if findings.errors or found.unresolved or (found.pool is None and not why):
        return _denial(request, view, found, findings)
    if why and is_named:
        what = f"annotation {GPUPOOL} has no effect: kube-scheduler places the pod, because {why}"
        return admit_rider(pod, installation, ids, (what,))
    if found.pool is None or why:
        return admit_rider(pod, installation, ids, (_by_kube_scheduler(why),))
    patched = _placed(pod, found.pool, group, ids)
    findings.warnings.append(
        "the pod asks for no GPUs, and gets none: dray places it on nodes of GPUPool "
        f'"{found.pool.name}"'
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
    # A share without a decision would be missing for pods that have GPUs.
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
