"""Updates of pods: what dray put into them stays, where a manifest is applied again. Pure.

What may not change is the API server's to refuse (``deploy/helm/dray/files/policies.yaml``), also
while the webhook is away.
"""

from dray.domain.names import GPUPOOL, OWN_ANNOTATIONS, SHAPE
from dray_webhook.injection import keep
from dray_webhook.jsonpatch import difference
from dray_webhook.pools import Rules
from dray_webhook.review import Answer, Object, Request, annotations_of


def put_back(pod: Object, request: Request, rules: Rules) -> Answer:
    """UPDATE: annotations that only dray writes, and what it injected, as they were."""
    if request.user_info.username in rules.service_users:
        return Answer()
    old = request.old_object or {}
    before = annotations_of(old)
    after = annotations_of(pod)
    reverted = [name for name in OWN_ANNOTATIONS if after.get(name) != before.get(name)]
    if GPUPOOL in before and GPUPOOL not in after:
        reverted.append(GPUPOOL)  # The webhook's, where the pod named no pool.
    for name in reverted:
        if name in before:
            after[name] = before[name]
        else:
            del after[name]
    patched = dict(pod)
    if reverted:
        patched["metadata"] = {**(pod.get("metadata") or {}), "annotations": after}
    if SHAPE in before:
        patched["spec"] = keep(pod.get("spec") or {}, old.get("spec") or {})
    return Answer(
        patch=tuple(difference(pod, patched)),
        warnings=tuple(
            f"annotation {name} is written by dray only; it was put back" for name in reverted
        ),
    )
