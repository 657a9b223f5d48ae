"""What a pod's open claims ask for, or why dray can't give it."""

from collections.abc import Sequence

import msgspec

from dray.domain import names
from dray.domain.claims import Claim
from dray.domain.devices import OpaqueConfig
from dray.domain.dra.nodes import NodeSelector
from dray.domain.names import KUBERNETES_COMPATIBLE
from dray.domain.placement import HARD, Placement, overridden
from dray.domain.pods import Pod, PodNeeds
from dray.reasons import Reason
from dray_allocator.fit.search import Ask
from dray_allocator.placement.said import Said
from dray_allocator.state import AllocatorState


class Wanted(msgspec.Struct, frozen=True):
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
    said = [state.sayings.of(state.facts, state.fleet, claim) for claim in claims]
    placement = _placement(state, domain, said)
    in_full = placement.is_compatible or any(one.needs_lane for one in said)
    if refused := tuple(_refusals(pod, claims, said, placement, in_full)):
        return refused
    asks = () if in_full else _asks(claims, said)
    devices_signature = b"|".join([state.facts.signatures[claim.uid] for claim in claims])
    alone = _is_alone(state, domain, pod)
    told = _told(state, pod, placement, in_full)
    are_all_open = len(claims) == len(pod.claims)
    return Wanted(
        pod,
        claims,
        asks,
        devices_signature,
        state.signatures.of(pod.needs, alone, told, devices_signature),
        placement,
        "" if are_all_open else _fixed_node(state, pod),
        named_nodes(pod.needs),
        _excluded(state, domain, claims),
        () if are_all_open else _reach(state, pod),
        in_full,
        alone,
        any(ask.preference for ask in asks),
    )


def _asks(claims: Sequence[Claim], said: Sequence[Said]) -> tuple[Ask, ...]:
    return tuple(
        [
            Ask(
                claim.uid,
                ask.request,
                ask.selectors,
                ask.constraints,
                ask.signature,
                ask.percents,
                ask.preference,
                ask.amounts,
            )
            for claim, one in zip(claims, said, strict=True)
            for ask in one.asks
        ]
    )


def _told(state: AllocatorState, pod: Pod, placement: Placement, in_full: bool) -> tuple[str, ...]:
    """What else of a pod tells where its claims may be met: also the binder, where devices may
    have conditions that not every one waits for."""
    modes = [placement.topology] if placement.topology == HARD else []
    modes += [KUBERNETES_COMPATIBLE] if placement.is_compatible else []
    return (*modes, pod.binder) if in_full or state.fleet.says_more else tuple(modes)


def _placement(state: AllocatorState, domain: str, said: Sequence[Said]) -> Placement:
    """The pool's, and what the first claim that says something has in its place; what the webhook
    would not have let in counts for nothing."""
    policy = state.facts.placement(domain)[0]
    for placement, topology in [one.placement for one in said]:
        if placement or topology:
            return overridden(policy, placement, topology)
    return policy


def _is_alone(state: AllocatorState, domain: str, pod: Pod) -> bool:
    """Pods that wait in a pool whose nodes were made shared again have no other binder."""
    pool = state.facts.pools.get(domain)
    return pool is not None and pool.dedicated and pod.binder == names.OWNER_DRAY


def named_nodes(needs: PodNeeds) -> tuple[str, ...] | None:
    """The only nodes whose names every term of the pod's affinity admits; None: any name may do."""
    if not needs.node_terms:
        return None
    found: dict[str, None] = {}
    for term in needs.node_terms:
        names_of = [one.values for one in term if one.is_field and one.operator == "In"]
        if not names_of:
            return None
        found.update(dict.fromkeys(names_of[0]))
    return tuple(found)


def config_of(state: AllocatorState, claim: Claim) -> tuple[OpaqueConfig, ...]:
    """Configuration of the classes, each with its requests, then the claim's own."""
    return state.sayings.of(state.facts, state.fleet, claim).config


def _refusals(
    pod: Pod,
    claims: Sequence[Claim],
    said: Sequence[Said],
    placement: Placement,
    in_full: bool,
) -> list[Reason]:
    reasons = []
    for claim, one in zip(claims, said, strict=True):
        if claim.pool and claim.pool != pod.pool:
            reasons.append(
                _one("pool", f"claim {claim.name} asks for pool {claim.pool}, pod for {pod.pool}")
            )
        reasons += [
            _one("unsupported", f"claim {claim.name}: {what}")
            for what in one.faults(placement, in_full=in_full)
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
