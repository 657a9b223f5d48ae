"""Compares bus with Kubernetes, replicas with logs, and devices with their users. Pure."""

from collections.abc import Iterator

import msgspec

from dray.api.claims import AllocatedDevice, Claim
from dray.api.devices import ResourceSlice
from dray.api.json_codec import canonical
from dray.messages.rpc import Holding
from dray_allocator.core.dump import double_allocations, holdings_of
from dray_allocator.state.domain import SchedulingDomain
from dray_claim_controller.cache.abandoned_attempts import with_void
from dray_claim_controller.cache.cached_objects import is_ours
from dray_cli.doctor.deep.claims import log_and_status, refused
from dray_cli.doctor.deep.differences import (
    NOTHING,
    Difference,
    Side,
    devices_named,
    devices_text,
)
from dray_cli.doctor.deep.snapshot import ClaimStatus, ClusterSnapshot, ReplicaAnswer

_OBJECT_COUNTS = "Kubernetes: facts are made from its objects"
_SEE_OBSERVER = (
    "see the claim-controller's log for why it does not publish what it sees; restarted, its "
    "leader lists and publishes everything again"
)
_FOLD_COUNTS = "facts and log: the state follows from them"
_RESTART = (
    "restart the replica: it reads everything again. This is a bug of dray: keep what "
    "`dray record` writes now"
)


def differences(snapshot: ClusterSnapshot, *, floor: int) -> list[Difference]:
    """All differences in a snapshot. ``floor``: the sequence of a fact that every replica must
    have applied by now."""
    stale = dict(_facts_and_claims(snapshot))
    return [
        *_double_allocations(snapshot),
        *refused(snapshot),
        *log_and_status(snapshot, stale),
        *stale.values(),
        *_facts_and_slices(snapshot),
        *_logs_and_replicas(snapshot, floor),
    ]


def _double_allocations(snapshot: ClusterSnapshot) -> Iterator[Difference]:
    """Devices whose claims use more than the device has."""
    for double in double_allocations(snapshot.state):
        yield Difference(
            "double-allocation",
            f"device {double.device.device} on {double.device.pool}",
            (f"{double.device.device} on {double.device.pool}",),
            (
                Side("slice", double.detail),
                *(_user(snapshot, uid) for uid in double.claim_uids),
            ),
            "all sides: the claims together get more than the device has. If the pool's oversell "
            "ratio was lowered, running pods continue, and no new pod gets these devices",
            "delete the pod of the claim that was allocated last; if no ratio was lowered, this is "
            "a bug of dray, or of the claim's writer: keep what `dray record` writes now",
        )


def _user(snapshot: ClusterSnapshot, uid: str) -> Side:
    claim = snapshot.state.facts.claims.get(uid)
    written = snapshot.claims.get(uid)
    who = f"{claim.namespace}/{claim.name}" if claim is not None else uid
    says = devices_text(snapshot.state.device_usage.of_claim(uid))
    return Side(who, says, written.since_unix_s if written is not None else None)


def _facts_and_claims(snapshot: ClusterSnapshot) -> Iterator[tuple[str, Difference]]:
    """Claims whose facts differ from the objects in Kubernetes, by uid."""
    facts = snapshot.state.facts.claims
    ours = [uid for uid, written in snapshot.claims.items() if _is_compared(written.claim)]
    for uid in sorted({*facts, *ours}):
        written, fact = snapshot.claims.get(uid), facts.get(uid)
        known = None
        if written is not None and uid in ours:
            known = with_void(written.claim, snapshot.given_up.get(uid))
        differing = _differing(known, fact)
        if not differing:
            continue
        yield uid, _old_fact(snapshot, written, known, fact, differing)


def _is_compared(claim: Claim) -> bool:
    return is_ours(claim) or claim.allocation is not None


def _old_fact(
    snapshot: ClusterSnapshot,
    written: ClaimStatus | None,
    known: Claim | None,
    fact: Claim | None,
    differing: tuple[str, ...],
) -> Difference:
    claim = known or fact
    assert claim is not None
    return Difference(
        "stale-fact",
        f"claim {claim.namespace}/{claim.name}",
        devices_named(_held(known), _held(fact)),
        (
            Side("Kubernetes", _spec_text(known, differing), _since(written)),
            Side("facts", _spec_text(fact, differing), snapshot.fact_times.get(claim.uid)),
        ),
        _OBJECT_COUNTS,
        _SEE_OBSERVER,
    )


def _differing(one: Claim | None, other: Claim | None) -> tuple[str, ...]:
    """The fields that differ; ``uid`` if only one side has the claim."""
    if one is None or other is None:
        return () if one is other else ("uid",)
    if other.spec.too_large and _held(one) == _held(other):
        # The fact has as much of the claim as fits into a message.
        one = msgspec.structs.replace(one, spec=other.spec, allocation=other.allocation)
    names = (
        field.name for field in msgspec.structs.fields(Claim) if field.name != "resource_version"
    )
    return tuple(name for name in names if not _same(getattr(one, name), getattr(other, name)))


def _same(one: object, other: object) -> bool:
    """Whether they are equal, even if they were decoded as parts of other values."""
    return one == other or canonical(one) == canonical(other)


def _spec_text(claim: Claim | None, names: tuple[str, ...]) -> str:
    if claim is None:
        return "there is no such claim"
    if names == ("uid",):
        return devices_text(_held(claim)) if claim.allocation else "not allocated"
    return "; ".join(_field(claim, name) for name in names)


def _field(claim: Claim, name: str) -> str:
    value = getattr(claim, name)
    if name == "allocation":
        pinned = f" (for node {value.node})" if value is not None and value.node else ""
        return devices_text(_held(claim)) + pinned if value is not None else "not allocated"
    return f"{name.replace('_', ' ')} {value!r}"


def _held(claim: Claim | None) -> tuple[AllocatedDevice, ...]:
    return claim.allocation.devices if claim is not None and claim.allocation else ()


def _since(written: ClaimStatus | None) -> float | None:
    return written.since_unix_s if written is not None else None


def _facts_and_slices(snapshot: ClusterSnapshot) -> Iterator[Difference]:
    """Slices whose facts differ from the objects in Kubernetes."""
    for name in sorted({*snapshot.slices, *snapshot.fact_slices}):
        object_, fact = snapshot.slices.get(name), snapshot.fact_slices.get(name)
        if object_ == fact:
            continue
        yield Difference(
            "stale-fact",
            f"slice {name}",
            tuple(f"{device} on {pool}" for device, pool in _devices_differing(object_, fact)),
            (Side("Kubernetes", _slice_text(object_)), Side("facts", _slice_text(fact))),
            _OBJECT_COUNTS,
            _SEE_OBSERVER,
        )


def _devices_differing(
    one: ResourceSlice | None, other: ResourceSlice | None
) -> list[tuple[str, str]]:
    mine, theirs = (
        {(device.name, part.pool): device for device in part.devices} if part is not None else {}
        for part in (one, other)
    )
    return sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))


def _slice_text(part: ResourceSlice | None) -> str:
    if part is None:
        return "there is no such slice"
    return f"generation {part.generation} of pool {part.pool}, {len(part.devices)} devices"


def _logs_and_replicas(snapshot: ClusterSnapshot, floor: int) -> Iterator[Difference]:
    """Replicas whose state differs from the one that facts and log give."""
    for domain in snapshot.state.domains.values():
        replica = snapshot.replicas.get(domain.name)
        if not isinstance(replica, ReplicaAnswer):
            continue
        if replica.epoch != domain.epoch or replica.facts_sequence < floor:
            yield _behind(domain, replica, floor)
            continue
        mine = holdings_of(snapshot.state, domain)
        for uid in sorted({*mine, *replica.holdings}):
            if _plain(mine.get(uid)) != _plain(replica.holdings.get(uid)):
                yield _remembered(domain, replica, mine.get(uid), replica.holdings.get(uid))


def _behind(domain: SchedulingDomain, replica: ReplicaAnswer, floor: int) -> Difference:
    follows = replica.epoch == domain.epoch
    seen = f"has not applied fact {floor} yet" if follows else f"serves epoch {replica.epoch}"
    wanted = f"fact {floor} is there" if follows else f"its log has epoch {domain.epoch}"
    return Difference(
        "replica-lags",
        f"pool {domain.name}",
        (),
        (Side("facts", wanted), Side(replica.instance, seen)),
        "the facts; the replica decides nothing on what it has not read, or its append fails",
        "see its log, and check that it gets enough CPU time; otherwise restart it",
    )


def _remembered(
    domain: SchedulingDomain, replica: ReplicaAnswer, mine: Holding | None, theirs: Holding | None
) -> Difference:
    known = mine or theirs
    assert known is not None
    name = f"{known.namespace}/{known.name}" if known.name else known.uid
    devices = [(*one.decided, *one.used) for one in (mine, theirs) if one is not None]
    return Difference(
        "replica-diverged",
        f"claim {name}",
        devices_named(*devices),
        (
            Side(f"log of {domain.name}", _holding_text(mine), _decided(mine)),
            Side(replica.instance, _holding_text(theirs)),
        ),
        _FOLD_COUNTS,
        _RESTART,
    )


def _decided(holding: Holding | None) -> float | None:
    return holding.decided_unix_s if holding is not None else None


def _holding_text(holding: Holding | None) -> str:
    if holding is None:
        return NOTHING
    attempt = f"attempt {holding.attempt} is {holding.stage}: " if holding.attempt else ""
    return f"{attempt}{devices_text(holding.decided)}; in use: {devices_text(holding.used)}"


def _plain(holding: Holding | None) -> Holding | None:
    """The holding without its name: a replica may have removed the name with the claim."""
    if holding is None:
        return None
    return msgspec.structs.replace(holding, namespace="", name="")
