"""Attempts that are given up because Kubernetes does not store writes for them. Pure.

An attempt is committed by a write that is fenced by a claim revision with the attempt's mark
(``execution.decisions.next_step``). So after the attempt is given up, only a write that was sent
earlier can still commit it, and only if the claim's newest revision is the one that fences this
write and has the mark. Otherwise the attempt counts as void (docs/adr/0030).
"""

from msgspec.structs import replace

from dray.api.claims import Claim, GivenUp


def abandon_attempts(claim: Claim, known: GivenUp | None, attempt: int, message: str) -> GivenUp:
    """The record of a claim after attempts up to ``attempt`` were given up: nobody carries them out
    any more. ``claim`` is as its object describes it."""
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
    """The updated record for the claim as its object is now; None: the object itself says
    everything."""
    if claim.resource_version > known.revision:
        known = replace(known, void=known.attempt, message="")
    return None if claim.void >= known.attempt and not known.message else known


def with_void(claim: Claim, known: GivenUp | None) -> Claim:
    """The claim, with ``void`` raised to the attempts that count as void by the record
    ``known``."""
    if known is None or known.void <= claim.void:
        return claim
    return replace(claim, void=known.void)
