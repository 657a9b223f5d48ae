"""Updates of pods: restores what dray injected, for manifests that are applied again.

``deploy/helm/dray/files/policies.yaml`` refuses what may not change, also while the webhook is
unavailable.
"""

from dray.api.names import DRA_ENABLED, GPUPOOL, OWN_ANNOTATIONS, REQUEST_ID, SHAPE
from dray_webhook.decisions.gpu_resources import without_resources
from dray_webhook.decisions.injection import keep
from dray_webhook.decisions.jsonpatch import difference
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionAnswer, AdmissionRequest, Object, annotations_of
from dray_webhook.decisions.riders import OF_POOL


def restore_injected(
    pod: Object, request: AdmissionRequest, installation: Installation
) -> AdmissionAnswer:
    """Restore dray's own annotations and the fields that it injected."""
    if request.user_info.username in installation.service_users:
        return AdmissionAnswer()
    old = request.old_object or {}
    before = annotations_of(old)
    after = annotations_of(pod)
    is_rider = REQUEST_ID in before and SHAPE not in before
    # Admission removed a rider's annotations about a pool, which its manifest may still have.
    own = (*OWN_ANNOTATIONS, *OF_POOL) if is_rider else OWN_ANNOTATIONS
    reverted = [name for name in own if after.get(name) != before.get(name)]
    has_claim = SHAPE in before and before.get(DRA_ENABLED) != "false"
    # The webhook wrote these if the pod lacked them.
    written = (GPUPOOL,) if has_claim else (GPUPOOL, DRA_ENABLED)
    reverted += [
        name for name in written if name in before and name not in after and name not in reverted
    ]
    for name in reverted:
        if name in before:
            after[name] = before[name]
        else:
            del after[name]
    patched = dict(without_resources(pod, installation.gpu_resources) if has_claim else pod)
    if reverted:
        patched["metadata"] = {**(pod.get("metadata") or {}), "annotations": after}
    if SHAPE in before or REQUEST_ID in before:
        patched["spec"] = keep(patched.get("spec") or {}, old.get("spec") or {})
    return AdmissionAnswer(
        patch=tuple(difference(pod, patched)),
        warnings=tuple(
            f"annotation {name} is changed by dray only; it was put back" for name in reverted
        ),
    )
