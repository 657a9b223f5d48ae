"""The effect of claims that Kubernetes keeps from being allocated on pending pods."""

from collections.abc import Iterable, Iterator

from dray.api.claims import Claim
from dray.reasons import Reason
from dray_allocator.state.decision_log import Reservation, Stage
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


def refusals(state: AllocatorState, claims: Iterable[Claim]) -> Iterator[Reason]:
    """Why claims are not decided for now: the last attempt was given up."""
    for claim in claims:
        if (why := state.facts.given_up.get(claim.uid)) is not None:
            what = f"claim {claim.namespace}/{claim.name} can't be allocated"
            yield Reason("refused", what, 1, 1, "claim", why)


def held(state: AllocatorState, domain: SchedulingDomain) -> Iterator[Reason]:
    """Devices that no other claim can get while a claim can't be written: an attempt to allocate
    them may still succeed."""
    for uid, why in state.facts.given_up.items():
        for reservation in _reservations(state, uid):
            devices = len({one.id for one in reservation.allocation.devices})
            cards = max(devices, state.tables.of(domain.name).cards)
            where = f"{reservation.namespace}/{reservation.name}"
            yield Reason(
                "in-use",
                f"held for claim {where}",
                devices,
                cards,
                "device",
                f"Kubernetes refuses to write that claim: {why}",
            )


def _reservations(state: AllocatorState, claim_uid: str) -> Iterator[Reservation]:
    claim = state.facts.claims[claim_uid]
    for domain in state.domains.values():
        known = domain.current.claims.get(claim_uid)
        if known is not None and known.stage is not Stage.OVER and claim.void < known.attempt:
            yield known
