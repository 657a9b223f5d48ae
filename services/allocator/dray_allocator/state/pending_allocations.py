"""How a reservation ends.

This follows from the claim's latest fact and its latest attempt in the log; the order in which
facts and records arrived does not matter.
"""

from dataclasses import dataclass

from dray.api.claims import Claim
from dray.messages.decisions import WhyReleased
from dray_allocator.state.domain import Reservation, Stage


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of a reservation: why, and which node to exclude for a while."""

    why: WhyReleased
    exclude_node: str = ""
    urgent: bool = True
    """Whether to record it at once; else with the next tick."""


@dataclass(frozen=True, slots=True)
class VoidRequest:
    """The claim-controller must void the attempt before the reservation can end."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Further conditions of a reservation's end."""

    age_s: float
    """Age of the reservation."""
    uncommitted_after_s: float
    pod_wants: bool
    """Whether the pod exists and is neither ending nor ended."""
    node_serves: bool
    """Whether the node is still in the domain."""


def end_of(
    reservation: Reservation, claim: Claim | None, around: Surroundings
) -> AttemptEnd | VoidRequest | None:
    """The reservation's end, the void that must come first, or None: nothing to do yet.

    ``claim`` is None only if the facts are complete: the claim is deleted.
    """
    if reservation.stage is Stage.OVER:
        return AttemptEnd("deleted", urgent=False) if claim is None else None
    if claim is None:
        return AttemptEnd("deleted", urgent=reservation.stage is Stage.RESERVED)
    if claim.allocation is not None:
        is_reserved = reservation.stage is Stage.RESERVED
        return AttemptEnd("committed", urgent=False) if is_reserved else None
    if claim.void >= reservation.attempt:
        return _voided(reservation, around)
    if reservation.stage is Stage.COMMITTED:
        return VoidRequest(reservation.attempt, "the allocation was cleared")
    return _void_request(reservation, around)


def _voided(reservation: Reservation, around: Surroundings) -> AttemptEnd:
    node = reservation.node
    if reservation.stage is Stage.COMMITTED:
        return AttemptEnd("withdrawn", node)
    asked_by_us = around.age_s >= around.uncommitted_after_s
    unwanted = asked_by_us or not around.pod_wants or not around.node_serves
    return AttemptEnd("voided", "" if unwanted else node)


def _void_request(reservation: Reservation, around: Surroundings) -> VoidRequest | None:
    if not around.pod_wants:
        return VoidRequest(reservation.attempt, "the pod is gone")
    if not around.node_serves:
        return VoidRequest(reservation.attempt, f"node {reservation.node} left the domain")
    if around.age_s >= around.uncommitted_after_s:
        return VoidRequest(
            reservation.attempt, f"not committed after {around.uncommitted_after_s:g} s"
        )
    return None
