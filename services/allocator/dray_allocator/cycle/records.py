"""Records as this replica writes them: each has the position of the facts that it is based on."""

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import msgspec

from dray.api.claims import AllocatedDevice, Allocation, Claim, first_attempt
from dray.api.pods import Pod
from dray.messages.decisions import (
    Checkpoint,
    ClaimDecision,
    Decided,
    DecidedGroup,
    ExcludedNode,
    GroupHold,
    HeldClaim,
    LeftNode,
    NodeHold,
    NodeLeft,
    PodDecision,
    Release,
    Released,
    ReservedClaim,
    Waiting,
    WaitingPeer,
)
from dray.reasons import Reason
from dray_allocator.cycle.checkpoint_builder import CheckpointBuilder
from dray_allocator.placement.choice import Choice
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.domain import Reservation, SchedulingDomain, Stage
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions

Reasons = tuple[Reason, ...]
_WAITING_PODS_PER_RECORD = 1000
"""Most of them take a quarter of a kilobyte in a record."""


class _Head(TypedDict):
    domain: str
    epoch: int
    writer: str
    facts_sequence: int
    now_unix_s: float
    settings: dict[str, Any]


def _head(state: AllocatorState, domain: SchedulingDomain) -> _Head:
    return _Head(
        domain=domain.name,
        epoch=domain.epoch,
        writer=state.options.writer,
        facts_sequence=state.reached(domain.name),
        now_unix_s=state.facts.now_unix_s,
        settings=state.options.changed,
    )


def decided(
    state: AllocatorState, domain: SchedulingDomain, pods: tuple[PodDecision, ...]
) -> Decided:
    """A decision that chooses devices, by the pool's current policy."""
    version = state.facts.placement(domain.name)[1]
    learned = domain.learned
    return Decided(
        **_head(state, domain),
        policy_version=version,
        pods=pods,
        learned=domain.unwritten,
        learned_version=learned.version if learned is not None else 0,
    )


def decided_group(
    state: AllocatorState, domain: SchedulingDomain, parts: Sequence[tuple[PodDecision, ...]]
) -> Iterator[DecidedGroup]:
    """A decision on a group, in parts."""
    for number, pods in enumerate(parts, start=1):
        common = msgspec.structs.asdict(decided(state, domain, pods))
        yield DecidedGroup(**common, part=number, parts=len(parts))
        domain.unwritten = None


def waiting(
    state: AllocatorState, domain: SchedulingDomain, pods: Sequence[Pod], reasons: Reasons
) -> Iterator[Waiting]:
    """Why the pods are pending now: in one record, or in several if one can't hold so many pods or
    such long texts."""
    head_bytes = len(msgspec.json.encode(reasons))
    peers: list[WaitingPeer] = []
    used_bytes = head_bytes
    for pod in pods:
        peer = WaitingPeer(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            request_id=pod.request_id,
            traceparent=pod.traceparent,
        )
        added_bytes = len(msgspec.json.encode(peer)) + 1
        is_full = used_bytes + added_bytes > state.options.decided_bytes
        if peers and (is_full or len(peers) == _WAITING_PODS_PER_RECORD):
            yield _waiting(state, domain, peers, reasons)
            peers, used_bytes = [], head_bytes
        peers.append(peer)
        used_bytes += added_bytes
    if peers:
        yield _waiting(state, domain, peers, reasons)


def _waiting(
    state: AllocatorState, domain: SchedulingDomain, peers: Sequence[WaitingPeer], reasons: Reasons
) -> Waiting:
    first, *others = peers
    return Waiting(
        **_head(state, domain),
        **msgspec.structs.asdict(first),
        reasons=reasons,
        peers=tuple(others),
    )


def released(
    state: AllocatorState,
    domain: SchedulingDomain,
    releases: tuple[Release, ...],
    holds: tuple[GroupHold, ...] = (),
    node_hold: NodeHold | None = None,
) -> Released:
    """Reservations that ended, and what is held from now on."""
    head = _head(state, domain)
    return Released(**head, releases=releases, holds=holds, node_hold=node_hold)


def node_left(
    state: AllocatorState, domain: SchedulingDomain, node: str, revision: int
) -> NodeLeft:
    """A node left the domain with the fact of ``revision``, and nothing is in flight on it."""
    return NodeLeft(**_head(state, domain), node=node, node_revision=revision)


def checkpoint(state: AllocatorState, domain: SchedulingDomain) -> tuple[Checkpoint, ...]:
    """The parts of a checkpoint: the state that the log gives, without what no reader needs now."""
    log, head = domain.current, _head(state, domain)
    head["facts_sequence"] = max(head["facts_sequence"], log.facts_sequence)
    kept = [one for one in log.claims.values() if _is_needed(state, one)]
    parts = CheckpointBuilder(Checkpoint(**head, learned=log.learned), state.options.decided_bytes)
    for pod in log.pods.values():
        parts.add("in_flight", pod)
    for one in kept:
        pod_decision = log.pods.get(one.pod_uid)
        if not _has_attempt(pod_decision, one):
            parts.add("former", _former(one))
        parts.add(
            "reserved",
            ReservedClaim(
                uid=one.claim_uid,
                attempt=one.attempt,
                decided_unix_s=one.decided_unix_s,
                stage=one.stage.value,
            ),
        )
    for waits in log.waiting.values():
        if waits.pod_uid in state.facts.pods:
            parts.add_waiting(waits)
    for claim_uid, nodes in log.excluded.items():
        for node, since_unix_s in nodes.items():
            if state.facts.age_s(since_unix_s) < state.options.exclusion_s:
                excluded = ExcludedNode(claim_uid=claim_uid, node=node, since_unix_s=since_unix_s)
                parts.add("excluded_nodes", excluded)
    for node, revision in log.left.items():
        fact = state.facts.nodes.get(node)
        if fact is not None and fact.node.leaving == domain.name:
            parts.add("left_nodes", LeftNode(node=node, node_revision=revision))
    for hold in log.group_holds.values():
        parts.add("holds", hold)
    if log.node_hold is not None:
        parts.add("node_holds", log.node_hold)
    return parts.take()


def _is_needed(state: AllocatorState, reservation: Reservation) -> bool:
    """Whether a reader must know the attempt: it is not over, or the claim does not show that."""
    if reservation.stage is not Stage.OVER:
        return True
    claim = state.facts.claims.get(reservation.claim_uid)
    return claim is not None and claim.void < reservation.attempt


def _has_attempt(pod: PodDecision | None, reservation: Reservation) -> bool:
    return pod is not None and any(
        (claim.uid, claim.attempt) == (reservation.claim_uid, reservation.attempt)
        for claim in pod.claims
    )


def _former(reservation: Reservation) -> PodDecision:
    claim = ClaimDecision(
        uid=reservation.claim_uid,
        namespace=reservation.namespace,
        name=reservation.name,
        attempt=reservation.attempt,
        allocation=reservation.allocation,
    )
    return PodDecision(
        pod_uid=reservation.pod_uid,
        namespace=reservation.namespace,
        name="",
        node=reservation.node,
        binder="dray",
        claims=(claim,),
    )


def decision_of(
    domain: SchedulingDomain, wanted: PodRequest, choice: Choice, *, took_us: int = 0
) -> PodDecision:
    """A choice in the form in which the log has it."""
    pod, needs = wanted.pod, wanted.pod.needs
    allocations = allocations_of(wanted, choice)
    return PodDecision(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=choice.node,
        binder=pod.binder,
        claims=tuple(
            [
                _claim(domain, claim, allocation)
                for claim, allocation in zip(wanted.claims, allocations, strict=True)
            ]
        ),
        cpu_milli=needs.cpu_milli,
        memory_bytes=needs.memory_bytes,
        request_id=pod.request_id,
        traceparent=pod.traceparent,
        considered_devices=choice.considered_devices,
        took_us=took_us,
        resources=needs.resources,
        ports=needs.ports,
    )


def size_bytes(entry: PodDecision | HeldClaim) -> int:
    """Size of an entry in a record."""
    return len(msgspec.json.encode(entry))


def too_large(options: AllocatorOptions, decision_bytes: int) -> tuple[Reason, ...]:
    """Why a decision of this size can't be written; empty if it can."""
    if decision_bytes <= options.decided_bytes:
        return ()
    what = (
        f"the decision would have {decision_bytes} bytes, {options.decided_bytes} at most: make "
        "the configuration of the pod's claims and of their DeviceClasses shorter"
    )
    return (Reason("unsupported", what, 1, 1, "pod"),)


def allocations_of(wanted: PodRequest, choice: Choice) -> list[Allocation]:
    """What each claim gets."""
    if choice.results:
        return list(choice.results)
    devices: list[list[AllocatedDevice]] = [[] for _ in wanted.claims]
    for share in choice.shares:
        ask = share.ask
        given = AllocatedDevice(ask.request.name, share.card.id, None, share.consumed.text)
        devices[ask.claim].append(given)
    return [
        Allocation(tuple(given), choice.node, config)
        for given, config in zip(devices, wanted.pattern.configs, strict=True)
    ]


def _claim(domain: SchedulingDomain, claim: Claim, allocation: Allocation) -> ClaimDecision:
    return ClaimDecision(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=next_attempt(domain, claim),
        allocation=allocation,
    )


def next_attempt(domain: SchedulingDomain, claim: Claim) -> int:
    """An attempt number above those of all attempts that were made or voided."""
    known = domain.current.claims.get(claim.uid)
    before = 0 if known is None else known.attempt
    return max(first_attempt(domain.epoch), before + 1, claim.decision + 1, claim.void + 1)
