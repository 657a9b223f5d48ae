"""Why a pod fits on no node: the reasons, on how many devices or nodes, and the nearest one."""

from collections.abc import Iterator

from dray.api.pods import Pod
from dray.reasons import Reason, bounded
from dray_allocator.explain import formatting
from dray_allocator.explain.class_reasons import ClassReasons
from dray_allocator.explain.nodes import node_reasons, pool_reasons
from dray_allocator.explain.table_reasons import TableReasons
from dray_allocator.placement.holds import claimant, is_free, may_use, usable
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.domain import Reservation, SchedulingDomain, Stage
from dray_allocator.state.state import AllocatorState

_MOST_REASONS = 24
_NO_DEVICES = "no slice with devices, or not all slices of its pool's newest generation"


def explain_pod(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest
) -> tuple[Reason, ...]:
    """The reasons, ordered from those in the claims themselves to the state of the nodes."""
    if domain.current.node_hold is not None:
        with usable(state, domain, claimant(state, wanted.pod)):
            return _explain_pod(state, domain, wanted)
    return _explain_pod(state, domain, wanted)


def _explain_pod(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest
) -> tuple[Reason, ...]:
    of_pool = pool_reasons(state, domain.name)
    found = _of_nodes(state, domain, wanted) if state.facts.served_nodes(domain.name) else []
    held = (*_held_devices(state, domain), *_held_for_others(state, domain, wanted.pod))
    return bounded((*of_pool, *found, *held))


def _of_nodes(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> list[Reason]:
    """The reasons by the node table, if it covers everything that the pod asks for and that the
    nodes publish; else by classes of nodes."""
    reasons: ClassReasons | TableReasons
    if wanted.pattern.in_full or state.published.beyond_table:
        reasons = ClassReasons(state, domain, wanted)
        if reasons.ended_at:
            return reasons.of_error()
    else:
        reasons = TableReasons(state, domain, wanted)
    nodes = state.facts.served_nodes(domain.name)
    found = [
        *reasons.of_devices(),
        *node_reasons(state, wanted, nodes, reasons.index),
        *reasons.of_nodes(),
    ]
    if not reasons.devices:
        found.append(Reason("count", "no devices", len(nodes), len(nodes), "node", _NO_DEVICES))
    return list(dict.fromkeys(found))[:_MOST_REASONS]


def _held_devices(state: AllocatorState, domain: SchedulingDomain) -> Iterator[Reason]:
    """Devices that are held for a claim that can't be written. No other claim can get them, because
    the attempt to allocate them may still succeed."""
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


def _held_for_others(state: AllocatorState, domain: SchedulingDomain, pod: Pod) -> Iterator[Reason]:
    """Devices that other groups keep after they have lost pods, and nodes that are held for a pod
    or group that has waited long."""
    own = claimant(state, pod)
    for hold in domain.current.group_holds.values():
        claims = [] if may_use(hold, own) else [one for one in hold.claims if is_free(state, one)]
        devices = len({device.id for one in claims for device in one.allocation.devices})
        if devices:
            is_own = hold.group.namespace == pod.namespace
            what = f"held for PodGroup {hold.group}" if is_own else "held for another PodGroup"
            until = formatting.moment(hold.until_unix_s)
            cards = max(devices, state.tables.of(domain.name).cards)
            yield Reason(
                "in-use", what, devices, cards, "device", f"it has lost pods; held until {until}"
            )
    nodes = domain.current.node_hold
    if nodes is not None and not may_use(nodes, own):
        what = "held for another pod or PodGroup"
        if nodes.namespace == pod.namespace:
            kind = "pod" if nodes.group is None else "PodGroup"
            what = f"held for {kind} {nodes.namespace}/{nodes.name}"
        until, total = (
            formatting.moment(nodes.until_unix_s),
            len(state.facts.served_nodes(domain.name)),
        )
        detail = f"it has waited for long; held until {until}"
        yield Reason("node", what, len(nodes.nodes), max(len(nodes.nodes), total), "node", detail)


def _reservations(state: AllocatorState, claim_uid: str) -> Iterator[Reservation]:
    claim = state.facts.claims[claim_uid]
    for domain in state.domains_of_claim(claim_uid):
        known = domain.current.claims.get(claim_uid)
        if known is not None and known.stage is not Stage.OVER and claim.void < known.attempt:
            yield known
