"""Which pods need a claim that accounts for them, and its content. Pure.

Such a pod refers to no claim, so Kubernetes makes none. The claim has the shape of the pod's own
annotation, is owned by the pod, and is decided, allocated and reserved like any other. The claim of
a pod without GPUs asks for no device.
"""

from dray.api.names import CLAIM_REFERENCE, POD_CLAIM_NAME, SHAPE
from dray.api.pods import accounting_claim
from dray.kube.ports import CLAIMS, PODS, Object
from dray_claim_controller.cache.cached_objects import CachedPod, CachedResourceClaim
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.templates.decisions import Unusable, shape_of


def lacks_claim(cache: ObjectCache, cached: CachedPod) -> bool:
    """Whether a claim must be made for the pod."""
    pod = cached.pod
    if pod is None or pod.node or pod.deleting or cached.terminal or not pod.has_accounting_claim:
        return False
    return cache.claim_named(pod.namespace, accounting_claim(pod.uid)) is None


def claim_to_release(cache: ObjectCache, cached: CachedPod) -> CachedResourceClaim | None:
    """The claim that holds devices for a pod that has ended; None if there is none."""
    pod = cached.pod
    if pod is None or not cached.terminal or not pod.has_accounting_claim:
        return None
    claim = cache.claim_named(pod.namespace, accounting_claim(pod.uid))
    if claim is None or claim.claim.allocation is None or claim.claim.pod_uid != pod.uid:
        return None
    return claim


def _claim_of(pod: Object) -> Object | Unusable:
    """The claim of a pod."""
    metadata = pod["metadata"]
    shape = shape_of(str(metadata["annotations"][SHAPE]))
    if isinstance(shape, Unusable):
        return shape
    owner = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {
            "name": accounting_claim(metadata["uid"]),
            "namespace": metadata["namespace"],
            "labels": (shape.get("metadata") or {}).get("labels") or {},
            "annotations": {POD_CLAIM_NAME: CLAIM_REFERENCE},
            "ownerReferences": [owner],
        },
        "spec": shape["spec"],
    }


class AccountingClaim(
    RecordedRule[Object | Unusable | None], frozen=True, kw_only=True, tag="accounting-claim"
):
    """The claim to be made for a pod; None if there is none to make."""

    pod_uid: str

    def answer(self, cache: ObjectCache) -> Object | Unusable | None:
        cached = cache.pods.get(self.pod_uid)
        return _claim_of(cached.object) if cached and lacks_claim(cache, cached) else None
