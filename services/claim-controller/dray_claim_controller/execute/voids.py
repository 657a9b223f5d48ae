"""What may be taken back, and what the pod is told before it is. Pure.

A void claim refuses to be committed, but a binding names no claims: only the pod can refuse it.
So before an allocation is cleared, the pod says by which attempts it is never bound (ADR 0022): in
the annotation that a claim has, too, as ``<claim UID>.<attempt>``, one per claim.
"""

from dray.domain.names import OWNER_DRAY, VOID
from dray.kube.convert_metadata import LONGEST_ATTEMPT, annotation
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.execute.rules import same_allocation
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import SeenPod


def may_take_back(
    picture: Picture, claim_uid: str, attempt: int, *, pod_uid: str, binder: str
) -> bool:
    """Whether what an attempt wrote on a claim may be taken back: nobody else uses it."""
    seen = picture.claims.get(claim_uid)
    if seen is None or seen.claim.decision > attempt:
        return False
    claim = seen.claim
    if not claim.reserved_for:
        return True
    # A reservation of dray's own came with the allocation and counts once the pod is bound; any
    # other means that somebody is about to use the allocation.
    pod = picture.pods.get(pod_uid)
    is_bound = pod is not None and bool(pod.node)
    own = claim.reserved_for == (pod_uid,) and binder == OWNER_DRAY
    return own and not is_bound


def is_held(picture: Picture, wanted: ClaimDecision) -> bool:
    """Whether the claim holds what was decided for it."""
    seen = picture.claims.get(wanted.uid)
    held = None if seen is None else seen.claim.allocation
    return held is not None and same_allocation(held, wanted.allocation)


def voids_of(seen: SeenPod) -> dict[str, int]:
    """Attempts, by claim UID, up to which the pod says that it must not be bound."""
    found: dict[str, int] = {}
    for entry in annotation(seen.object, VOID).split(",") if seen.object else ():
        uid, _, attempt = entry.rpartition(".")
        if uid and attempt.isdecimal() and len(attempt) <= LONGEST_ATTEMPT:
            found[uid] = max(int(attempt), found.get(uid, 0))
    return found


def untold(picture: Picture, decision: PodDecision) -> str:
    """What the pod is to say before anything of the decision is cleared; empty where it does, or
    where dray does not bind it."""
    seen = picture.pods.get(decision.pod_uid)
    if decision.binder != OWNER_DRAY or seen is None or seen.pod is None or seen.node:
        return ""
    said = voids_of(seen)
    wanted = dict(said)
    for claim in decision.claims:
        if is_held(picture, claim) and may_take_back(
            picture, claim.uid, claim.attempt, pod_uid=seen.uid, binder=decision.binder
        ):
            wanted[claim.uid] = max(claim.attempt, wanted.get(claim.uid, 0))
    if wanted == said:
        return ""
    return ",".join(f"{uid}.{attempt}" for uid, attempt in sorted(wanted.items()))
