"""Attempts that are given up because Kubernetes takes no write for them. Pure.

An attempt is committed by a write that is fenced by a revision of the claim which carries the
attempt's mark (``execute.rules``). So once it is given up, only one thing may still commit it: a
write that was sent before, and was fenced by the revision that was read then. If that revision has
no mark of the attempt, or is not the claim's newest any more, there is no such write, and the
attempt is as good as void (docs/adr/0030).
"""

from msgspec.structs import replace

from dray.api.claims import Claim, GivenUp


def abandon_attempts(claim: Claim, known: GivenUp | None, attempt: int, message: str) -> GivenUp:
    """What is known of a claim once attempts up to ``attempt`` are carried out by nobody any more.
    ``claim`` is as its object says."""
    attempt = attempt if known is None else max(attempt, known.attempt)
    void = 0 if known is None else known.void
    if not may_be_committed(claim, attempt):
        void = attempt
    return GivenUp(attempt, void, claim.resource_version, message)


def may_be_committed(claim: Claim, attempt: int) -> bool:
    """Whether a write that is fenced by this state of the claim may commit an attempt up to
    ``attempt``, or has done so."""
    return claim.allocation is not None or claim.void < claim.decision <= attempt


def refresh_abandoned(known: GivenUp, claim: Claim) -> GivenUp | None:
    """What is known of the claim once it is as its object says now; None: the object says all."""
    if claim.resource_version > known.revision:
        known = replace(known, void=known.attempt, message="")
    return None if claim.void >= known.attempt and not known.message else known


def with_void(claim: Claim, known: GivenUp | None) -> Claim:
    """The claim with all of its attempts void that count as void."""
    if known is None or known.void <= claim.void:
        return claim
    return replace(claim, void=known.void)
