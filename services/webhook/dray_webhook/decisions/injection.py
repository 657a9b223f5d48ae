"""Injects the claim into a pod: references, scheduler, gate, toleration and annotations."""

import copy
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.api.devices import Taint, Toleration
from dray.api.enforcement import MPS
from dray.api.names import (
    ALLOCATED,
    ALLOCATION_GATE,
    CLAIM_REFERENCE,
    COMPUTE_PERCENT_REQUEST,
    CONTAINER_GPU_IDS,
    DECISION,
    DEDICATED_TAINT,
    DEFAULT_SCHEDULER,
    DRA_ENABLED,
    DRAY_SCHEDULER,
    GPU_IDS,
    GPU_TOPOLOGY,
    GPUPOOL,
    OWNER_KUBE_SCHEDULER,
    PREPARE_AGAIN,
    REQUEST_ID,
    SHAPE,
    TEMPLATE_READY,
    TRACEPARENT,
    VOID,
)
from dray.api.placement import HARD
from dray.api.pods import Pool
from dray_webhook.decisions.annotations import GpuRequest
from dray_webhook.decisions.containers import ContainerAssignment, containers_of
from dray_webhook.decisions.device_plugin import PluginRequest, ask_device_plugin
from dray_webhook.decisions.groups import NO_GROUP, JoinedGroup, name_group
from dray_webhook.decisions.priorities import prioritize
from dray_webhook.decisions.shape import HASH_DIGITS, ClaimShape

Object = dict[str, Any]
Uses = Mapping[str, tuple[str, ...]]
"""The claim's requests by container; an empty tuple means the whole claim."""
_DERIVED = re.compile(rf"(?P<base>.+)-[0-9a-f]{{{HASH_DIGITS}}}")
NEVER_ON_CREATED_PODS = (
    DECISION,
    VOID,
    ALLOCATED,
    TEMPLATE_READY,
    PREPARE_AGAIN,
    CONTAINER_GPU_IDS,
    GPU_IDS,
)


@dataclass(frozen=True, slots=True)
class AdmissionIds:
    """The ids of one admission call."""

    request_id: str
    traceparent: str


@dataclass(frozen=True, slots=True)
class Injection:
    """What is injected into a pod."""

    base: str
    template: str
    """Name of the derived template."""
    shape_text: str
    pool: Pool
    gated: bool
    ids: AdmissionIds
    group: JoinedGroup = NO_GROUP
    priority_class: str = ""
    """For the pod's quality of service; empty: none."""
    uses: Uses | None = None
    """None: the containers that refer to the claim, or all if none does, get the whole claim."""
    plugin: PluginRequest | None = None
    """What its containers ask the device plugin for; None: the pod refers to a claim."""


def is_allocated_by_kube_scheduler(pool: Pool) -> bool:
    """Whether kube-scheduler allocates the pool's devices; dray then only derives the template."""
    return pool.owner == OWNER_KUBE_SCHEDULER


def dray_binds(pool: Pool, gated: bool) -> bool:
    """Whether dray binds the pod; otherwise kube-scheduler does."""
    return not gated and not is_allocated_by_kube_scheduler(pool)


def scheduler_conflicts(spec: Object, pool: Pool) -> Iterator[str]:
    """Why no scheduler would place ``spec`` in the pool."""
    if is_allocated_by_kube_scheduler(pool) and spec.get("schedulerName") == DRAY_SCHEDULER:
        yield (
            f'spec.schedulerName is "{DRAY_SCHEDULER}", but GPUPool "{pool.name}" is owned by '
            "kube-scheduler (spec.owner), which allocates and binds by itself: leave "
            "spec.schedulerName out, or name a pool that dray owns"
        )


def share_conflicts(asked: Sequence[GpuRequest], pool: Pool) -> Iterator[str]:
    """Why the pool's allocator can't honour what is requested."""
    if is_allocated_by_kube_scheduler(pool) and any(one.compute_percent for one in asked):
        yield (
            f'annotation {COMPUTE_PERCENT_REQUEST} can\'t be met: GPUPool "{pool.name}" is owned '
            "by kube-scheduler (spec.owner), which takes amounts and not shares that depend on the "
            "card: state tflops-request and vram-request, or name a pool that dray owns"
        )
    if is_allocated_by_kube_scheduler(pool) and any(one.topology == HARD for one in asked):
        yield (
            f'annotation {GPU_TOPOLOGY} is "{HARD}": GPUPool "{pool.name}" is owned by '
            "kube-scheduler (spec.owner), which takes the first cards that fit: leave the "
            "annotation out, or name a pool that dray owns"
        )
    most = max((one.count for one in asked), default=0)
    if pool.enforcement.enforcer == MPS and most > 1:
        yield (
            f'{most} GPUs are asked for one container: GPUPool "{pool.name}" runs MPS '
            "(spec.enforcer), a program can use only one MPS daemon, and each serves one GPU: ask "
            "for one GPU per container, or name another pool"
        )


def node_conflicts(spec: Object) -> Iterator[str]:
    """Why ``spec`` can be placed in no pool."""
    if spec.get("nodeName"):
        yield (
            f'spec.nodeName is "{spec["nodeName"]}": expected none, because the scheduler '
            "chooses the node; use nodeSelector or node affinity to narrow it down"
        )


def claim_conflicts(spec: Object, base: str, other_bases: Container[str]) -> Iterator[str]:
    """Why the claim can't be injected into ``spec``.

    ``other_bases`` are base templates in the namespace that the pool does not use.
    """
    entries = spec.get("resourceClaims") or []
    ours = [entry for entry in entries if _is_ours(entry, base)]
    if len(ours) > 1:
        names = ", ".join(f'"{entry.get("name", "")}"' for entry in ours)
        yield (
            f'spec.resourceClaims {names} all refer to the base template "{base}": expected one, '
            "because the annotations describe one claim"
        )
    for entry in entries:
        if entry.get("name") == CLAIM_REFERENCE and entry not in ours:
            yield (
                f'spec.resourceClaims has an entry "{CLAIM_REFERENCE}" that refers to something '
                f'other than the base template "{base}": dray injects an entry of that name; '
                "rename yours"
            )
        elif entry not in ours and (other := _base_of(entry)) in other_bases:
            yield (
                f'spec.resourceClaims "{entry.get("name", "")}" refers to the base template '
                f'"{other}", but the pool takes "{base}", and the pod would get two claims: '
                f'leave the entry out, or refer to "{base}"'
            )


def refers_to_claim(spec: Object, base: str) -> bool:
    """Whether the pod refers to the claim that its annotations describe."""
    return any(_is_ours(entry, base) for entry in spec.get("resourceClaims") or ())


def uses_of(containers: ContainerAssignment, shape: ClaimShape) -> Uses | None:
    """The requests that each container refers to; None: references stay as the pod has them."""
    if containers.sharing is None:
        return None
    if not containers.own:
        return dict.fromkeys(containers.sharing, ())
    names = {own.container: shape.requests[own.container] for own in containers.own}
    shared = dict.fromkeys(containers.sharing, shape.requests.get("", ()))
    return {name: (*own, *shape.others) for name, own in (shared | names).items()}


def container_conflicts(spec: Object, base: str, uses: Uses | None) -> Iterator[str]:
    """Why a container's reference to the claim contradicts the annotations."""
    if uses is None:
        return
    written = {
        CLAIM_REFERENCE,
        *(
            entry.get("name", "")
            for entry in spec.get("resourceClaims") or ()
            if _is_ours(entry, base)
        ),
    }
    for container in containers_of(spec):
        name = container.get("name", "")
        if name not in uses and any(use.get("name") in written for use in _uses(container)):
            yield (
                f'container "{name}" refers to the claim of dray in resources.claims, but the '
                "annotations give it no GPUs: name it there, or take the reference away"
            )


def foreign_needs(spec: Object, base: str) -> Object:
    """``spec`` without dray's entry: what the pod needs other than its GPUs."""
    entries = spec.get("resourceClaims") or ()
    return {**spec, "resourceClaims": [entry for entry in entries if not _is_ours(entry, base)]}


def inject(pod: Object, injection: Injection) -> Object:
    """The pod with its claim; deterministic, except for ``injection.ids``."""
    pod = copy.deepcopy(pod)
    spec = pod.setdefault("spec", {})
    if injection.plugin is None:
        _refer(spec, injection)
    else:
        ask_device_plugin(spec, injection.plugin)
    _schedule(spec, injection)
    _annotate(pod.setdefault("metadata", {}), injection)
    return pod


def keep(spec: Object, before: Object) -> Object:
    """``spec`` of an update with the fields that ``inject`` set ``before``.

    A manifest that is applied again would remove them, and the API server would refuse the update.
    """
    kept = dict(spec)
    if scheduler := before.get("schedulerName"):
        kept["schedulerName"] = scheduler
    tolerations = spec.get("tolerations") or []
    lost = [
        toleration
        for toleration in before.get("tolerations") or ()
        if toleration.get("key") == DEDICATED_TAINT and toleration not in tolerations
    ]
    if lost:
        kept["tolerations"] = [*tolerations, *lost]
    return kept


def _is_ours(entry: Object, base: str) -> bool:
    template = entry.get("resourceClaimTemplateName") or ""
    derived = _DERIVED.fullmatch(template)
    if template == base or (derived is not None and derived["base"] == base):
        return True
    return derived is not None and entry.get("name") == CLAIM_REFERENCE


def _base_of(entry: Object) -> str:
    """The base template that an entry refers to, directly or through a derived template."""
    template: str = entry.get("resourceClaimTemplateName") or ""
    derived = _DERIVED.fullmatch(template)
    return derived["base"] if derived else template


def _refer(spec: Object, injection: Injection) -> None:
    """Add an entry to the pod, and one to every container unless some containers have one."""
    reference = {
        "name": CLAIM_REFERENCE,
        "resourceClaimTemplateName": injection.template,
    }
    entries = spec["resourceClaims"] = spec.get("resourceClaims") or []
    written = CLAIM_REFERENCE
    for index, entry in enumerate(entries):
        if _is_ours(entry, injection.base):
            written = entry.get("name") or CLAIM_REFERENCE
            entries[index] = reference
            break
    else:
        entries.append(reference)
    if injection.uses is not None:
        _refer_by_request(spec, written, injection.uses)
        return
    containers = containers_of(spec)
    uses = [use for each in containers for use in _uses(each) if use.get("name") == written]
    for use in uses:
        use["name"] = CLAIM_REFERENCE
    if not uses:
        for container in containers:
            resources = container.get("resources") or {}
            claims = [*(resources.get("claims") or ()), {"name": CLAIM_REFERENCE}]
            container["resources"] = {**resources, "claims": claims}


def _refer_by_request(spec: Object, written: str, uses: Uses) -> None:
    """Replace the entries of each container that gets devices."""
    for container in containers_of(spec):
        if (requests := uses.get(container.get("name", ""))) is None:
            continue
        named = [{"name": CLAIM_REFERENCE, "request": request} for request in requests]
        others = [
            use for use in _uses(container) if use.get("name") not in (written, CLAIM_REFERENCE)
        ]
        claims = [*others, *(named or [{"name": CLAIM_REFERENCE}])]
        container["resources"] = {**(container.get("resources") or {}), "claims": claims}


def _uses(container: Object) -> list[Object]:
    return (container.get("resources") or {}).get("claims") or []


def _schedule(spec: Object, injection: Injection) -> None:
    gates = spec.get("schedulingGates") or []
    others = [gate for gate in gates if gate.get("name") != ALLOCATION_GATE]
    binds = dray_binds(injection.pool, injection.gated)
    spec["schedulerName"] = DRAY_SCHEDULER if binds else DEFAULT_SCHEDULER
    if injection.gated and len(others) == len(gates):
        spec["schedulingGates"] = [*gates, {"name": ALLOCATION_GATE}]
    elif not injection.gated and len(others) < len(gates):
        spec["schedulingGates"] = others
    prioritize(spec, injection.priority_class)
    if injection.pool.dedicated:
        _tolerate(spec, injection.pool.name)


def _tolerate(spec: Object, pool: str) -> None:
    taint = Taint(DEDICATED_TAINT, pool)
    tolerations = spec.get("tolerations") or []
    for entry in tolerations:
        toleration = Toleration(
            key=entry.get("key") or "",
            operator=entry.get("operator") or "Equal",
            value=entry.get("value") or "",
            effect=entry.get("effect") or "",
        )
        if toleration.tolerates(taint):
            return
    wanted = {"key": taint.key, "operator": "Equal", "value": pool, "effect": taint.effect}
    spec["tolerations"] = [*tolerations, wanted]


def _annotate(metadata: Object, injection: Injection) -> None:
    annotations = metadata.setdefault("annotations", {})
    for name in NEVER_ON_CREATED_PODS:
        annotations.pop(name, None)
    annotations[GPUPOOL] = injection.pool.name
    annotations[REQUEST_ID] = injection.ids.request_id
    annotations[TRACEPARENT] = injection.ids.traceparent
    annotations[SHAPE] = injection.shape_text
    if injection.plugin is not None:
        annotations[DRA_ENABLED] = "false"
    name_group(annotations, injection.group)
