"""Compares the decision log of each claim with the claim's status. Pure."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.quantities import parse_quantity
from dray_allocator.state.domain import Reservation, Stage
from dray_claim_controller.cache.abandoned_attempts import with_void
from dray_cli.doctor.deep.differences import Difference, Side, devices_named, devices_text
from dray_cli.doctor.deep.snapshot import ClaimStatus, ClusterSnapshot

_LATE_S = 15.0
"""How much later than the allocator's own time-out a decision may be voided."""
_STATUS_COUNTS = (
    "Kubernetes: a claim's status is what counts, and the allocator counts it, too, as soon as a "
    "fact shows it"
)
_BOOKS = (
    "Kubernetes; the log is only behind, and no device is allocated twice by it: the replica that "
    "serves the pool writes it down at the next tick"
)
_SEE_REPLICA = (
    "nothing, if a replica serves the pool and a claim-controller leads (see above); else see why "
    "not"
)
_REMAKE = (
    "find out who writes ResourceClaims other than dray and kube-scheduler "
    "(kubectl get resourceclaim -o yaml --show-managed-fields), and delete the pod, so that its "
    "claim is recreated"
)


@dataclass(frozen=True, slots=True)
class _Verdict:
    kind: str
    right: str
    do: str


def log_and_status(snapshot: ClusterSnapshot, stale: Container[str]) -> Iterator[Difference]:
    """Differences of claims that are in a log, or whose allocation must be in one. If a claim's
    fact is ``stale``, that is why its log is behind: then this is no difference of its own."""
    for domain in snapshot.state.domains.values():
        for uid, reservation in sorted(domain.current.claims.items()):
            written = snapshot.claims.get(uid)
            verdict = _verdict(snapshot, reservation, written)
            if verdict is None or _lives_elsewhere(snapshot, domain.name, uid):
                continue
            if verdict.right != _BOOKS or uid not in stale:
                yield _difference(snapshot, domain.name, reservation, written, verdict)
        yield from _unknown_to(snapshot, domain.name)


def _verdict(
    snapshot: ClusterSnapshot, reservation: Reservation, written: ClaimStatus | None
) -> _Verdict | None:
    if written is None:
        return _Verdict("claim-is-gone", _BOOKS, _SEE_REPLICA)
    allocation = written.claim.allocation
    if allocation is None:
        return _unallocated(snapshot, reservation, written)
    if reservation.stage is Stage.OVER:
        return _allocated_although_over(snapshot, reservation, allocation)
    if _shares(allocation.devices) != _shares(reservation.allocation.devices):
        return _Verdict("another-allocation", _STATUS_COUNTS, _REMAKE)
    if reservation.stage is Stage.RESERVED:
        return _Verdict("commit-not-noted", _BOOKS, _SEE_REPLICA)
    return None


def _unallocated(
    snapshot: ClusterSnapshot, reservation: Reservation, written: ClaimStatus
) -> _Verdict | None:
    if reservation.stage is Stage.OVER:
        return None
    given_up = snapshot.given_up.get(reservation.claim_uid)
    if with_void(written.claim, given_up).void >= reservation.attempt:
        return _Verdict("void-not-noted", _BOOKS, _SEE_REPLICA)
    if given_up is not None and given_up.attempt >= reservation.attempt:
        return None  # reported by ``refused``
    if reservation.stage is Stage.COMMITTED:
        return _Verdict(
            "allocation-cleared",
            "Kubernetes: the claim holds nothing any more; the devices stay reserved until the "
            "claim-controller has voided the attempt: a late write could allocate them twice",
            "see the claim-controller's log for the reason",
        )
    age_s = snapshot.state.facts.now_unix_s - reservation.decided_unix_s
    if age_s < snapshot.state.options.uncommitted_after_s + _LATE_S:
        return None  # on its way, as it should be
    return _Verdict(
        "decision-not-carried-out",
        "Kubernetes: the claim holds nothing; the devices stay reserved until the attempt is "
        "voided",
        "see `dray trace` of the pod, and the claim-controller's log, for what stops it",
    )


def _allocated_although_over(
    snapshot: ClusterSnapshot, reservation: Reservation, allocation: Allocation
) -> _Verdict | None:
    if _may_be_of_scheduler(snapshot, allocation):
        return None  # allocated by kube-scheduler while it owned the pool
    if _shares(allocation.devices) == _shares(reservation.allocation.devices):
        return _Verdict("allocated-although-voided", _STATUS_COUNTS, _REMAKE)
    return _Verdict("another-allocation", _STATUS_COUNTS, _REMAKE)


def _difference(
    snapshot: ClusterSnapshot,
    domain: str,
    reservation: Reservation,
    written: ClaimStatus | None,
    verdict: _Verdict,
) -> Difference:
    decided = reservation.allocation.devices
    held = written.claim.allocation if written is not None else None
    says = f"attempt {reservation.attempt} is {reservation.stage}: {devices_text(decided)}"
    since = snapshot.logs[domain].claim_times.get(reservation.claim_uid, reservation.decided_unix_s)
    return Difference(
        verdict.kind,
        f"claim {reservation.namespace}/{reservation.name}",
        devices_named(decided, held.devices if held else ()),
        (_kubernetes_says(written), Side(f"log of {domain}", says, since)),
        verdict.right,
        verdict.do,
    )


def _kubernetes_says(written: ClaimStatus | None) -> Side:
    """The claim's status, in a few words."""
    if written is None:
        return Side("Kubernetes", "there is no such claim")
    allocation = written.claim.allocation
    says = devices_text(allocation.devices) if allocation else "not allocated"
    marks = f"; void {written.claim.void}" if written.claim.void else ""
    return Side("Kubernetes", f"{says}{marks}", written.since_unix_s)


def refused(snapshot: ClusterSnapshot) -> Iterator[Difference]:
    """Claims whose allocation Kubernetes refuses, and the devices that are reserved for them."""
    for uid, given_up in sorted(snapshot.given_up.items()):
        written = snapshot.claims.get(uid)
        if not given_up.message or written is None:
            continue
        kept = snapshot.state.device_usage.of_claim(uid)
        says = f"given up, attempts up to {given_up.attempt}: {given_up.message}"
        yield Difference(
            "claim-is-refused",
            f"claim {written.claim.namespace}/{written.claim.name}",
            devices_named(kept),
            (_kubernetes_says(written), Side("claim-controller", says)),
            "Kubernetes; devices are kept as long as a write that was sent before may still "
            "allocate them",
            "let Kubernetes accept changes of the claim (a policy, a webhook, annotations at their "
            "limit), or delete its pod; it is tried again at least every 5 minutes",
        )


def _unknown_to(snapshot: ClusterSnapshot, domain: str) -> Iterator[Difference]:
    """Claims that are in no log, are allocated on the domain's own nodes, and are younger than its
    untrimmed log: no allocator decided their allocations."""
    log = snapshot.logs[domain]
    if not log.whole:
        return
    for uid, written in sorted(snapshot.claims.items()):
        claim = written.claim
        if claim.allocation is None or claim.created_unix_s <= log.opened_unix_s:
            continue
        if not _served(snapshot, domain, claim.allocation) or _may_be_of_scheduler(
            snapshot, claim.allocation
        ):
            continue
        if any(uid in each.current.claims for each in snapshot.state.domains.values()):
            continue
        yield Difference(
            "nobody-decided-it",
            f"claim {claim.namespace}/{claim.name}",
            devices_named(claim.allocation.devices),
            (_kubernetes_says(written), Side(f"log of {domain}", "no decision", log.opened_unix_s)),
            _STATUS_COUNTS,
            _REMAKE,
        )


def _served(snapshot: ClusterSnapshot, domain: str, allocation: Allocation) -> bool:
    facts = snapshot.state.facts
    devices = [one for one in allocation.devices if not one.admin_access]
    ours = [one for one in devices if one.id.driver in snapshot.state.options.drivers]
    return any(facts.serves(one.id.pool, domain) for one in ours)


def _may_be_of_scheduler(snapshot: ClusterSnapshot, allocation: Allocation) -> bool:
    return any(one.id.pool in snapshot.scheduler_nodes for one in allocation.devices)


def _lives_elsewhere(snapshot: ClusterSnapshot, domain: str, uid: str) -> bool:
    """Whether the claim's reservation in another pool's log is the one that counts."""
    return any(
        (other := each.current.claims.get(uid)) is not None and other.stage is not Stage.OVER
        for each in snapshot.state.domains.values()
        if each.name != domain
    )


def _shares(devices: tuple[AllocatedDevice, ...]) -> list[tuple[object, ...]]:
    """Devices and amounts per request, independent of the amounts' notation."""
    return sorted((one.id, one.request, _amounts(one)) for one in devices)


def _amounts(one: AllocatedDevice) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, parse_quantity(text).nano) for name, text in one.consumed.items()))
