"""Pods that exist already: what was admitted stays. Pure."""

from dray.domain.names import GPUPOOL, OWN_ANNOTATIONS, POD_ANNOTATIONS, SHAPE
from dray_webhook.injection import keep
from dray_webhook.jsonpatch import difference
from dray_webhook.pools import Rules
from dray_webhook.review import DENIED, Answer, Object, Request, annotations_of


def keep_admitted(pod: Object, request: Request, rules: Rules) -> Answer:
    """UPDATE: what only dray writes is put back, what a user asked for can't change."""
    if request.user_info.username in rules.service_users:
        return Answer()
    old = request.old_object or {}
    before = annotations_of(old)
    after = annotations_of(pod)
    admitted = SHAPE in before
    protected = (*OWN_ANNOTATIONS, GPUPOOL) if admitted else OWN_ANNOTATIONS
    changed = [
        name for name in POD_ANNOTATIONS if name in after and after[name] != before.get(name)
    ]
    errors = [
        f'annotation {name} is "{after[name]}", and was "{before.get(name, "")}" when the pod was '
        "admitted: its claim is made and can't change; delete the pod and create it anew"
        for name in changed
    ]
    if errors and admitted:
        return Answer(allowed=False, message="\n".join(errors), code=DENIED)
    reverted = [name for name in protected if after.get(name) != before.get(name)]
    for name in reverted:
        if name in before:
            after[name] = before[name]
        else:
            del after[name]
    patched = dict(pod)
    if reverted:
        patched["metadata"] = {**(pod.get("metadata") or {}), "annotations": after}
    if admitted:
        patched["spec"] = keep(pod.get("spec") or {}, old.get("spec") or {})
    return Answer(
        patch=tuple(difference(pod, patched)),
        warnings=(
            *(f"annotation {name} is written by dray only; it was put back" for name in reverted),
            *(f"annotation {name} has no effect on a pod that exists already" for name in changed),
        ),
    )
