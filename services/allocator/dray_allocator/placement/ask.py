"""What a pod's open claims ask for, or why dray can't give it."""

from collections.abc import Sequence

import msgspec

from dray.domain.claims import Claim
from dray.domain.devices import OpaqueConfig
from dray.domain.dra.nodes import NodeSelector
from dray.domain.placement import Placement
from dray.domain.pods import Pod
from dray.reasons import Reason
from dray_allocator.fit.search import Ask
from dray_allocator.placement.pattern import Pattern
from dray_allocator.placement.scores import Scoring
from dray_allocator.state import AllocatorState


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """All that is to be found for one pod, on one node."""

    pod: Pod
    claims: tuple[Claim, ...]
    asks: tuple[Ask, ...]
    devices_signature: bytes
    """Equal for pods that the same free devices satisfy."""
    signature: bytes
    """Equal for pods that may go to the same nodes for the same devices."""
    placement: Placement
    """The pool's, or the pod's own."""
    is_aware: bool
    """Whether fragmentation decides, and so what was learned."""
    scoring: Scoring
    """Of the placement; where fragmentation decides, as long as nothing is learned."""
    configs: tuple[tuple[OpaqueConfig, ...], ...]
    """Of each claim: that of the classes, each with its requests, then its own."""
    fixed_node: str = ""
    """Where another claim of the pod is allocated already."""
    named_nodes: tuple[str, ...] | None = None
    """The nodes that the pod names, as a DaemonSet's pods do; None: any will do."""
    excluded: tuple[str, ...] = ()
    reach: tuple[NodeSelector, ...] = ()
    """Which nodes can use what other claims of the pod hold, where that is not one node."""
    in_full: bool = False
    """Whether it wants what only structured parameters can decide."""
    alone: bool = False
    """Whether dray binds the pod, and so wants nodes where nobody else binds."""

    prefers: bool = False
    """Whether it would rather have some of the cards that fit."""

    @property
    def ordinary(self) -> bool:
        """Whether pods of equal signature fare alike."""
        return not self.fixed_node and not self.excluded and not self.reach


def wanted(state: AllocatorState, domain: str, pod: Pod) -> Wanted | tuple[Reason, ...]:
    """What the pod wants of dray, or the reasons why it can't be given anything."""
    claims = state.open_claims(pod)
    common = state.patterns.of(state.facts, state.fleet, domain, pod, claims)
    if common.is_refused:
        return tuple(_refusals(pod, claims, common))
    are_all_open = len(claims) == len(pod.claims)
    return Wanted(
        pod,
        claims,
        common.asks,
        common.devices_signature,
        common.signature,
        common.placement,
        common.is_aware,
        common.scoring,
        common.configs,
        "" if are_all_open else _fixed_node(state, pod),
        common.named_nodes,
        _excluded(state, domain, claims),
        () if are_all_open else _reach(state, pod),
        common.in_full,
        common.alone,
        common.prefers,
    )


def _refusals(pod: Pod, claims: Sequence[Claim], common: Pattern) -> list[Reason]:
    reasons = []
    for claim, one in zip(claims, common.said, strict=True):
        if claim.pool and claim.pool != pod.pool:
            reasons.append(
                _one("pool", f"claim {claim.name} asks for pool {claim.pool}, pod for {pod.pool}")
            )
        reasons += [
            _one("unsupported", f"claim {claim.name}: {what}")
            for what in one.faults(common.placement, in_full=common.in_full)
        ]
        reasons += [
            _one("unsupported", f"DeviceClass {name} does not exist") for name in one.missing
        ]
    return reasons


def _one(kind: str, what: str) -> Reason:
    return Reason(kind, what, 1, 1, "claim")


def _fixed_node(state: AllocatorState, pod: Pod) -> str:
    for claim in state.known_claims(pod) or ():
        if claim.allocation is not None and claim.allocation.node:
            return claim.allocation.node
    return ""


def _reach(state: AllocatorState, pod: Pod) -> tuple[NodeSelector, ...]:
    held = (claim.allocation for claim in state.known_claims(pod) or ())
    return tuple(one.selector for one in held if one is not None and one.selector is not None)


def _excluded(state: AllocatorState, domain: str, claims: tuple[Claim, ...]) -> tuple[str, ...]:
    """Nodes from which a claim was withdrawn lately."""
    excluded = state.domains[domain].current.excluded
    if not excluded:
        return ()
    since = state.facts.now_unix_s - state.rules.exclusion_s
    return tuple(
        node
        for claim in claims
        for node, at_unix_s in excluded.get(claim.uid, {}).items()
        if at_unix_s > since
    )
