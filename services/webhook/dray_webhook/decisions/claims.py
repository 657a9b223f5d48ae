"""Admission of hand-written ResourceClaims and ResourceClaimTemplates.

Mutation: requests for the physical ``tflops``/``vram`` become requests for the virtual capacities,
which devices of dray publish as consumable. Validation: no request tolerates the owner taint, the
pool admits the namespace, and if the server drops taints, no claim can get dray's devices without
dray. The chart's ``policies.yaml`` refuses later changes.
"""

import copy
from collections.abc import Iterator
from typing import Any

from dray.api.errors import InvalidInputError
from dray.api.names import (
    CLAIM_REFERENCE,
    DERIVED_FROM_LABEL,
    DEVICE_CLASS,
    DRIVER,
    OWN_ANNOTATIONS,
    POD_CLAIM_NAME,
    POOL_LABEL,
    TFLOPS,
    VIRTUAL_TFLOPS,
    VIRTUAL_VRAM,
    VRAM,
    qualified,
)
from dray.api.quantities import InvalidQuantityError, parse_quantity
from dray.api.share_config import config_problems
from dray.cel.environment import Mode
from dray_webhook.decisions.foreign_requests import refuse_tolerating, refuse_untainted
from dray_webhook.decisions.jsonpatch import difference
from dray_webhook.decisions.review import (
    DENIED,
    AdmissionAnswer,
    AdmissionRequest,
    Object,
    annotations_of,
)
from dray_webhook.decisions.shape import (
    covers_owner_taint,
    entries,
    refuse_owner_toleration,
    refuse_unreadable,
)
from dray_webhook.decisions.view import View

_TEMPLATE_KIND = "ResourceClaimTemplate"
_PAIRS = ((TFLOPS, VIRTUAL_TFLOPS), (VRAM, VIRTUAL_VRAM))


def mutate_claim(request: AdmissionRequest) -> AdmissionAnswer:
    """The answer of /mutate-claims: maps capacities, removes dray's own annotations."""
    claim = request.object or {}
    if request.operation != "CREATE" or request.kind.kind == _TEMPLATE_KIND:
        return AdmissionAnswer()
    changed = copy.deepcopy(claim)
    warnings: list[str] = []
    for entry in _entries(_spec(changed, request)):
        warnings.extend(_map_capacities(entry))
    annotations = (changed.get("metadata") or {}).get("annotations") or {}
    for name in OWN_ANNOTATIONS:
        if annotations.pop(name, None) is not None:
            warnings.append(f"annotation {name} is written by dray only; yours was removed")
    if any(True for _ in _entries(_spec(claim, request))) and not _pool(claim):
        warnings.append(
            f"the claim has no label {POOL_LABEL}: dray allocates only claims that name a GPUPool"
        )
    return AdmissionAnswer(patch=tuple(difference(claim, changed)), warnings=tuple(warnings))


def validate_claim(request: AdmissionRequest, view: View) -> AdmissionAnswer:
    """The answer of /validate-claims: claims and templates at CREATE."""
    errors = _at_create(request, view) if request.operation == "CREATE" else []
    if not errors:
        return AdmissionAnswer()
    return AdmissionAnswer(allowed=False, message="\n".join(errors), code=DENIED)


def concerns_dray(request: AdmissionRequest) -> bool:
    """Whether the claim is of dray's class, in one of dray's pools, or tolerates the owner taint.

    Other claims need an answer only if the server drops taints, and must not wait for dray.
    """
    claim = request.object or {}
    requests = (_spec(claim, request).get("devices") or {}).get("requests") or ()
    return bool(_pool(claim)) or any(
        entry.get("deviceClassName") == DEVICE_CLASS
        or any(map(covers_owner_taint, entry.get("tolerations") or ()))
        for _, entry in entries(requests)
    )


def _at_create(request: AdmissionRequest, view: View) -> list[str]:
    claim = request.object or {}
    spec = _spec(claim, request)
    kind = request.kind.kind or claim.get("kind", "")
    name = (claim.get("metadata") or {}).get("name") or request.name
    requests = (spec.get("devices") or {}).get("requests") or ()
    errors: list[str] = []
    where = f'{kind} "{name}"'
    try:
        refuse_owner_toleration(requests, where)
    except InvalidInputError as error:
        errors.append(str(error))
    errors.extend(refuse_tolerating(requests, where, view))
    errors.extend(_config_errors(spec, where))
    # The server has checked the selectors; a newer one may know functions that dray does not.
    # dray evaluates only those of claims with a pool's label, and checked those of a derived
    # claim when its pod was admitted.
    if _pool(claim) and not _is_derived(claim):
        try:
            refuse_unreadable(requests, where, view.language(Mode.STORED))
        except InvalidInputError as error:
            errors.append(str(error))
    if kind != _TEMPLATE_KIND:
        errors.extend(_pool_errors(claim, request.namespace, view))
        if not view.cluster.device_taints:
            errors.extend(_missing_taint_errors(claim, spec, view))
            if not _is_derived(claim):
                errors.extend(refuse_untainted(requests, where, view))
    return errors


def _config_errors(spec: Object, where: str) -> Iterator[str]:
    for config in (spec.get("devices") or {}).get("config") or ():
        opaque = config.get("opaque") or {}
        if opaque.get("driver") == DRIVER:
            problems = [*config_problems(opaque.get("parameters") or {}, strict=True)]
            if problems:
                yield (
                    f"{where}: the configuration of driver {DRIVER} can't be used: "
                    f"{'; '.join(problems)}"
                )


def _pool_errors(claim: Object, namespace: str, view: View) -> Iterator[str]:
    pool = view.pools.get(_pool(claim))
    if pool and not pool.admits(namespace):
        allowed = ", ".join(f'"{name}"' for name in pool.allowed_namespaces)
        yield (
            f'GPUPool "{pool.name}" does not admit claims of namespace "{namespace}": '
            f"expected one of: {allowed}"
        )


def _missing_taint_errors(claim: Object, spec: Object, view: View) -> Iterator[str]:
    if _is_derived(claim) or not any(True for _ in _entries(spec)):
        return
    if names := view.pools_of_dray():
        yield (
            "this API server drops device taints (DRADeviceTaints is off), so kube-scheduler could "
            f'allocate devices of GPUPool {names} to a hand-written claim of class "{DEVICE_CLASS}"'
            " while dray decides about them: use pod annotations instead"
        )


def _is_derived(claim: Object) -> bool:
    """Whether Kubernetes made the claim for a pod from a template that dray derived."""
    metadata = claim.get("metadata") or {}
    owners = [owner.get("kind") for owner in metadata.get("ownerReferences") or ()]
    return (
        "Pod" in owners
        and annotations_of(claim).get(POD_CLAIM_NAME) == CLAIM_REFERENCE
        and DERIVED_FROM_LABEL in _labels(claim)
    )


def _labels(claim: Object) -> dict[str, str]:
    return (claim.get("metadata") or {}).get("labels") or {}


def _pool(claim: Object) -> str:
    return _labels(claim).get(POOL_LABEL, "")


def _spec(obj: Object, request: AdmissionRequest) -> Object:
    spec: Object = obj.get("spec") or {}
    if (request.kind.kind or obj.get("kind")) == _TEMPLATE_KIND:
        spec = spec.get("spec") or {}
    return spec


def _entries(spec: Object) -> Iterator[Object]:
    """Every request or subrequest of our class."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        for entry in (request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            if entry.get("deviceClassName") == DEVICE_CLASS:
                yield entry


def _map_capacities(entry: Object) -> Iterator[str]:
    amounts: dict[str, Any] = (entry.get("capacity") or {}).get("requests") or {}
    for physical, virtual in _PAIRS:
        for spelling in (physical, qualified(physical)):
            if spelling not in amounts or _is_zero(amounts[spelling]):
                continue
            amount = amounts.pop(spelling)
            stated = next((amounts[n] for n in (virtual, qualified(virtual)) if n in amounts), None)
            if stated is None:
                amounts[virtual] = amount
                yield f"capacity request {spelling}: {amount} is taken as {virtual}: {amount}"
            else:
                yield (
                    f"capacity request {spelling}: {amount} is left out, "
                    f"because {virtual}: {stated} is requested too"
                )


def _is_zero(amount: object) -> bool:
    try:
        return parse_quantity(str(amount)).nano == 0
    except InvalidQuantityError:
        return False
