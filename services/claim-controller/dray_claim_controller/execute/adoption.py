"""Pods that have all their devices and were left halfway: whose order is in no log. Pure.

The log of an epoch that is over says nothing any more, but what it committed stays in
``ResourceClaim.status``. Such a pod only lacks its binding, or the lifting of its gate.
"""

from dray.domain.names import OWNER_DRAY
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.execute.orders import Order
from dray_claim_controller.execute.rules import decided
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import SeenClaim, SeenPod


def adopted(picture: Picture, seen: SeenPod) -> Order | None:
    """The order that finishes what is there, or None where there is nothing to finish."""
    pod = seen.pod
    if pod is None or pod.node or pod.deleting or seen.terminal:
        return None
    dray_binds = pod.binder == OWNER_DRAY
    if not dray_binds and not pod.gated:
        return None
    claims = picture.claims_of(pod)
    decisions = [made for held in claims if (made := _decision(held)) is not None]
    nodes = {made.allocation.node for made in decisions}
    if not decisions or len(decisions) < len(pod.claims) or len(nodes) != 1:
        return None
    if dray_binds and any(pod.uid not in held.claim.reserved_for for held in claims):
        return None
    return Order(
        domain=pod.pool,
        decision=PodDecision(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=nodes.pop(),
            binder=pod.binder,
            claims=tuple(decisions),
            request_id=pod.request_id,
            traceparent=pod.traceparent,
        ),
        committed=frozenset(made.uid for made in decisions),
    )


def _decision(held: SeenClaim) -> ClaimDecision | None:
    claim = held.claim
    if claim.allocation is None or not claim.allocation.node or claim.deleting:
        return None
    return decided(claim) if claim.void < claim.decision else None
