"""What a pod's open claims ask for, or why dray can't give it."""

from dataclasses import dataclass

import msgspec

from dray.domain import names
from dray.domain.claims import Claim, DeviceRequest
from dray.domain.devices import DeviceClass, OpaqueConfig
from dray.domain.dra.nodes import NodeSelector
from dray.domain.names import KUBERNETES_COMPATIBLE, PLACEMENT_FIELD, TOPOLOGY_FIELD
from dray.domain.placement import HARD, Placement, overridden
from dray.domain.pods import Pod, PodNeeds
from dray.reasons import Reason
from dray_allocator.fit.parameters import own_parameters
from dray_allocator.fit.percent import percents
from dray_allocator.fit.search import Ask
from dray_allocator.lane.asking import asks_of, needs_lane
from dray_allocator.placement.preference import preference_of
from dray_allocator.placement.sense import senseless
from dray_allocator.state import AllocatorState


@dataclass(frozen=True, slots=True)
class Wanted:
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

    @property
    def prefers(self) -> bool:
        """Whether it would rather have some of the cards that fit."""
        return any(ask.preference for ask in self.asks)

    @property
    def ordinary(self) -> bool:
        """Whether pods of equal signature fare alike."""
        return not self.fixed_node and not self.excluded and not self.reach


def wanted(state: AllocatorState, domain: str, pod: Pod) -> Wanted | tuple[Reason, ...]:
    """What the pod wants of dray, or the reasons why it can't be given anything."""
    claims = state.open_claims(pod)
    placement = _placement(state, domain, claims)
    in_full = placement.is_compatible or any(needs_lane(claim) for claim in claims)
    if refused := tuple(_refusals(state, pod, claims, in_full)):
        return refused
    asks = () if in_full else tuple(ask for claim in claims for ask in _asks(state, claim))
    devices_signature = b"|".join(state.facts.signatures[claim.uid] for claim in claims)
    alone = _is_alone(state, domain, pod)
    needs = msgspec.json.encode(
        (pod.needs, alone, *_told(state, pod, placement, in_full)), order="deterministic"
    )
    return Wanted(
        pod,
        claims,
        asks,
        devices_signature,
        needs + b"|" + devices_signature,
        placement,
        _fixed_node(state, pod),
        named_nodes(pod.needs),
        _excluded(state, domain, claims),
        _reach(state, pod),
        in_full,
        alone,
    )


def _told(state: AllocatorState, pod: Pod, placement: Placement, in_full: bool) -> tuple[str, ...]:
    """What else of a pod tells where its claims may be met: also the binder, where devices may
    have conditions that not every one waits for."""
    modes = [placement.topology] if placement.topology == HARD else []
    modes += [KUBERNETES_COMPATIBLE] if placement.is_compatible else []
    return (*modes, pod.binder) if in_full or state.fleet.says_more else tuple(modes)


def _placement(state: AllocatorState, domain: str, claims: tuple[Claim, ...]) -> Placement:
    """The pool's, and what the first claim that says something has in its place; what the webhook
    would not have let in counts for nothing."""
    policy = state.facts.placement(domain)[0]
    for claim in claims:
        for parameters in own_parameters(claim):
            placement = str(parameters.get(PLACEMENT_FIELD, ""))
            topology = str(parameters.get(TOPOLOGY_FIELD, ""))
            if placement or topology:
                return overridden(policy, placement, topology)
    return policy


def _is_alone(state: AllocatorState, domain: str, pod: Pod) -> bool:
    """Pods that wait in a pool whose nodes were made shared again have no other binder."""
    pool = state.facts.pools.get(domain)
    return pool is not None and pool.dedicated and pod.binder == names.OWNER_DRAY


def named_nodes(needs: PodNeeds) -> tuple[str, ...] | None:
    """The only nodes whose names every term of the pod's affinity admits; None: any name may do."""
    found: dict[str, None] = {}
    for term in needs.node_terms:
        names_of = [one.values for one in term if one.is_field and one.operator == "In"]
        if not names_of:
            return None
        found.update(dict.fromkeys(names_of[0]))
    return tuple(found) if needs.node_terms else None


def config_of(state: AllocatorState, claim: Claim) -> tuple[OpaqueConfig, ...]:
    """Configuration of the classes, each with its requests, then the claim's own."""
    requests: dict[str, list[str]] = {}
    for request in claim.spec.requests:
        requests.setdefault(request.device_class, []).append(request.name)
    from_classes = [
        OpaqueConfig(config.driver, config.parameters, tuple(named), "FromClass")
        for name, named in requests.items()
        for config in _class(state, name).config
    ]
    return (*from_classes, *claim.spec.config)


def _class(state: AllocatorState, name: str) -> DeviceClass:
    return state.facts.classes.get(name) or DeviceClass(name)


def _asks(state: AllocatorState, claim: Claim) -> list[Ask]:
    return [_ask(state, claim, request) for request in claim.spec.requests]


def _ask(state: AllocatorState, claim: Claim, request: DeviceRequest) -> Ask:
    selectors = (*_class(state, request.device_class).selectors, *request.selectors)
    constraints = tuple(
        constraint
        for constraint in claim.spec.constraints
        if not constraint.requests or request.name in constraint.requests
    )
    signature = msgspec.json.encode((request.device_class, selectors, request.tolerations))
    shares = percents(claim, request.name)
    prefer = preference_of(claim, request.name)
    return Ask(claim.uid, request, selectors, constraints, signature, shares, prefer)


def _refusals(
    state: AllocatorState, pod: Pod, claims: tuple[Claim, ...], in_full: bool
) -> list[Reason]:
    reasons = []
    for claim in claims:
        if claim.pool and claim.pool != pod.pool:
            reasons.append(
                _one("pool", f"claim {claim.name} asks for pool {claim.pool}, pod for {pod.pool}")
            )
        reasons += [
            _one("unsupported", f"claim {claim.name}: {what}")
            for what in senseless(claim, in_full=in_full)
        ]
        reasons += [
            _one("unsupported", f"DeviceClass {ask.device_class} does not exist")
            for ask in asks_of(claim)
            if ask.device_class not in state.facts.classes
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
    since = state.facts.now_unix_s - state.rules.exclusion_s
    return tuple(
        node
        for claim in claims
        for node, at_unix_s in excluded.get(claim.uid, {}).items()
        if at_unix_s > since
    )
