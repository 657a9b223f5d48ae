"""Claims that pods refer to, by the facts."""

from dray.api import names
from dray.api.claims import Claim
from dray.api.pods import Pod
from dray_allocator.state.facts import Facts


def known_claims(facts: Facts, pod: Pod) -> tuple[Claim, ...] | None:
    """The pod's claims that concern dray, or None while one of them is missing or ends."""
    claims: dict[str, Claim] = {}
    for reference in pod.claims:
        uid = facts.claim_uids.get((pod.namespace, reference.claim), "")
        claim = facts.claims.get(uid)
        if claim is None:
            ours = reference.reference == names.CLAIM_REFERENCE
            if ours or not reference.claim or pod.scheduler == names.DRAY_SCHEDULER:
                return None
            continue
        if claim.deleting or claim.pod_uid not in ("", pod.uid):
            return None
        claims[uid] = claim
    return tuple(claims.values())


def pool_of(facts: Facts, claim: Claim) -> str:
    """The pool of a claim: its own, else that of a pod that refers to it."""
    if claim.pool:
        return claim.pool
    for pod_uid in facts.pods_of.get((claim.namespace, claim.name), ()):
        return facts.pods[pod_uid].pool
    return ""
