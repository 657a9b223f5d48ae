"""Decides the answer to every admission path; live calls and replays both call ``decide``."""

from dray.messages.inputs import MUTATE_POD
from dray_webhook.decisions.claims import mutate_claim, validate_claim
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pods import admit_pod, refuse_late_annotations
from dray_webhook.decisions.pool_overlap import validate_pool
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionAnswer, AdmissionRequest
from dray_webhook.decisions.view import View
from dray_webhook.decisions.volcano import mutate_group, validate_group
from dray_webhook.decisions.workloads import validate_workload

VALIDATE_POD, MUTATE_CLAIM, VALIDATE_CLAIM = "validate-pods", "mutate-claims", "validate-claims"
VALIDATE_POOL, VALIDATE_WORKLOAD = "validate-pools", "validate-workloads"
MUTATE_GROUP, VALIDATE_GROUP = "mutate-groups", "validate-groups"
PATHS = (
    MUTATE_POD,
    VALIDATE_POD,
    MUTATE_CLAIM,
    VALIDATE_CLAIM,
    VALIDATE_POOL,
    VALIDATE_WORKLOAD,
    MUTATE_GROUP,
    VALIDATE_GROUP,
)


def decide(
    path: str, request: AdmissionRequest, view: View, installation: Installation, ids: AdmissionIds
) -> AdmissionAnswer:
    """The answer to a review of ``path``.

    Raises:
        KeyError: no such path.
    """
    match path:
        case "mutate-pods":
            return admit_pod(request, view, installation, ids)
        case "validate-pods":
            return refuse_late_annotations(request)
        case "mutate-claims":
            return mutate_claim(request)
        case "validate-claims":
            return validate_claim(request, view)
        case "validate-pools":
            return validate_pool(request, view)
        case "validate-workloads":
            return validate_workload(request, view, installation, ids)
        case "mutate-groups":
            return mutate_group(request, view, installation)
        case "validate-groups":
            return validate_group(request, view, installation)
    raise KeyError(path)
