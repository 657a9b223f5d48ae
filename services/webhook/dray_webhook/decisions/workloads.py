"""Warns of workloads whose pods would be refused; never refuses a workload."""

from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pods import admit_pod
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import DENIED, AdmissionAnswer, AdmissionRequest, Object
from dray_webhook.decisions.view import View


def validate_workload(
    request: AdmissionRequest, view: View, installation: Installation, ids: AdmissionIds
) -> AdmissionAnswer:
    """The answer of /validate-workloads: the errors of the workload's pods, as warnings.

    The errors describe the present state: objects that the pods need may be created later.
    """
    pod = _owned(_pod_template(request.object or {}), request)
    creation = {"object": pod, "old_object": None, "operation": "CREATE"}
    answer = admit_pod(request.model_copy(update=creation), view, installation, ids)
    if answer.allowed:
        return AdmissionAnswer(warnings=answer.warnings)
    if answer.code != DENIED:
        return AdmissionAnswer(unresolved=answer.unresolved)
    _, _, why = answer.message.partition(": ")
    first, *numbered = why.splitlines()
    head = f'{request.kind.kind} "{request.name}": its pods would be refused'
    return AdmissionAnswer(
        warnings=(head, *(numbered or [first]), *answer.warnings), unresolved=answer.unresolved
    )


def _owned(pod: Object, request: AdmissionRequest) -> Object:
    """The pod as the workload's controller will create it."""
    kind = "Job" if request.kind.kind == "CronJob" else request.kind.kind
    group = f"{request.kind.group}/{request.kind.version}"
    owner = {"apiVersion": group, "kind": kind, "name": request.name, "controller": True}
    owner["uid"] = "new"  # It gets one only after admission.
    return {**pod, "metadata": {**(pod.get("metadata") or {}), "ownerReferences": [owner]}}


def _pod_template(workload: Object) -> Object:
    """The template of a workload's pods; a CronJob has it in its Job template."""
    spec: Object = workload.get("spec") or {}
    job: Object = (spec.get("jobTemplate") or {}).get("spec") or {}
    template: Object = spec.get("template") or job.get("template") or {}
    return template
