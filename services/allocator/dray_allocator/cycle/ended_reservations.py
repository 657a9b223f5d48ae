"""Reservations that end, attempts to be voided, and nodes that left."""

from collections.abc import Iterator

from dray.messages.commands import VoidClaim
from dray.messages.decisions import Release
from dray_allocator.state.domain import Reservation, SchedulingDomain, Stage, executed_unknown
from dray_allocator.state.pending_allocations import (
    AttemptEnd,
    Surroundings,
    VoidRequest,
    end_of,
)
from dray_allocator.state.state import AllocatorState


def due_releases(
    state: AllocatorState, domain: SchedulingDomain, ticked: bool
) -> tuple[tuple[Release, ...], tuple[VoidClaim, ...]]:
    """Reservations to be released now and attempts to be voided.

    Commits are released with the next tick, or together with an urgent release. Between ticks, a
    reservation can end only if its claim, pod or node changed.
    """
    releases: list[Release] = []
    wishes: list[VoidClaim] = []
    urgent = ticked
    changed = {**domain.ending, **domain.to_settle}
    unsettled = domain.unsettled if ticked or domain.settle else changed
    domain.settle, domain.to_settle, domain.ending = False, {}, {}
    for claim_uid in tuple(unsettled):
        if claim_uid not in domain.unsettled:
            continue
        reservation = domain.current.claims.get(claim_uid)
        if reservation is None:
            wishes += _unknown_execution(state, domain, claim_uid)
            continue
        end = _end(state, domain, reservation)
        if isinstance(end, AttemptEnd):
            urgent = urgent or end.urgent
            releases.append(_release(reservation, end))
        elif end is not None:
            wishes += _wished(state, domain, reservation, end)
    if not urgent:
        domain.ending = dict.fromkeys(release.claim_uid for release in releases)
        releases.clear()
    return tuple(releases), tuple(wishes)


def ends_of(
    state: AllocatorState, domain: SchedulingDomain, releases: tuple[Release, ...]
) -> tuple[Release, ...]:
    """The given releases as they would be written now, without those that are not due."""
    found = []
    for release in releases:
        reservation = domain.current.claims.get(release.claim_uid)
        end = _end(state, domain, reservation) if reservation else None
        if reservation is not None and isinstance(end, AttemptEnd):
            found.append(_release(reservation, end))
    return tuple(found)


def leaving(state: AllocatorState, domain: SchedulingDomain) -> Iterator[tuple[str, int]]:
    """Nodes that leave the domain and have nothing in flight, with the revision of the fact that
    moves them."""
    facts, left = state.facts, domain.current.left
    asked = [
        name
        for name in sorted(facts.leaving.get(domain.name, ()))
        if left.get(name, -1) < facts.nodes[name].node.leaving_since
    ]
    busy = _busy_nodes(state, domain) if asked else {}
    for name in asked:
        if name not in busy:
            yield name, facts.nodes[name].revision


def _busy_nodes(state: AllocatorState, domain: SchedulingDomain) -> dict[str, None]:
    """Nodes with reservations in flight, with allocations that were cleared and not voided, or with
    decided pods that their sums lack; and nodes that are held or have held devices. The next domain
    can't see any of these in its own log."""
    busy = {
        reservation.node: None
        for claim_uid in domain.unsettled
        if (reservation := domain.current.claims.get(claim_uid)) is not None
        and reservation.stage is not Stage.OVER
    }
    held = (pod for uid, pod in domain.current.pods.items() if state.assumed_pods.has(uid))
    busy.update((pod.node, None) for pod in held)
    busy.update((one.node, None) for one in domain.current.held_claims.values())
    busy |= dict.fromkeys(domain.current.held_nodes.values())
    return busy


def _end(
    state: AllocatorState, domain: SchedulingDomain, reservation: Reservation
) -> AttemptEnd | VoidRequest | None:
    decision = domain.current.pods.get(reservation.pod_uid)
    timeout_s = decision.group.timeout_s if decision is not None and decision.group else 0.0
    around = Surroundings(
        state.facts.age_s(reservation.decided_unix_s),
        max(state.options.uncommitted_after_s, timeout_s),
        state.facts.pod_wants(reservation.pod_uid),
        state.facts.serves(reservation.node, domain.name),
    )
    return end_of(reservation, state.facts.claims.get(reservation.claim_uid), around)


def _release(reservation: Reservation, end: AttemptEnd) -> Release:
    return Release(
        claim_uid=reservation.claim_uid,
        attempt=reservation.attempt,
        why=end.why,
        exclude_node=end.exclude_node,
    )


def _wished(
    state: AllocatorState, domain: SchedulingDomain, reservation: Reservation, wish: VoidRequest
) -> list[VoidClaim]:
    """The command, once per repeat period. All replicas count the periods in the same way."""
    age_s = state.facts.age_s(reservation.decided_unix_s)
    return _ask(
        domain,
        VoidClaim(
            domain=domain.name,
            claim_uid=reservation.claim_uid,
            namespace=reservation.namespace,
            name=reservation.name,
            attempt=wish.attempt,
            reason=wish.reason,
            asked=int(age_s / state.options.void_repeat_s),
        ),
    )


def _unknown_execution(
    state: AllocatorState, domain: SchedulingDomain, claim_uid: str
) -> list[VoidClaim]:
    claim = state.facts.claims.get(claim_uid)
    if claim is None or not executed_unknown(claim, None):
        return []
    return _ask(
        domain,
        VoidClaim(
            domain=domain.name,
            claim_uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            attempt=claim.decision,
            reason="its execution has begun, but the log does not have it",
            asked=int(state.facts.now_unix_s / state.options.void_repeat_s),
        ),
    )


def _ask(domain: SchedulingDomain, command: VoidClaim) -> list[VoidClaim]:
    # Any other number than the last is new, even a lower one: the age of a record that is ahead
    # decreases.
    if command.asked == domain.asked.get(command.claim_uid):
        return []
    domain.asked[command.claim_uid] = command.asked
    return [command]
