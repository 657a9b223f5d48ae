"""The request of a pod: what its open claims require, or why dray can't decide them."""

from collections.abc import Iterator, Sequence

from dray.api.claims import Claim
from dray.api.nodes import NodeSelector
from dray.api.pods import Pod
from dray.reasons import Reason, bounded, name_list
from dray_allocator.state.pod_requirements import PodPattern, PodRequirements
from dray_allocator.state.state import AllocatorState


class PodRequest(PodRequirements, frozen=True, gc=False):
    """Everything to be found for one pod, on one node."""

    pod: Pod
    claims: tuple[Claim, ...]
    fixed_node: str
    """The node on which another claim of the pod is allocated."""
    excluded: tuple[str, ...]
    reach: tuple[NodeSelector, ...]
    """Nodes that can use the devices of the pod's allocated claims, unless that is one node."""

    @property
    def ordinary(self) -> bool:
        """Whether pods of equal signature have equal results."""
        return not self.fixed_node and not self.excluded and not self.reach


def wanted(state: AllocatorState, domain: str, pod: Pod) -> PodRequest | tuple[Reason, ...]:
    """The pod's request, or the reasons why dray can't decide it."""
    if refusal := _refused_by_pool(state, domain, pod):
        return (refusal,)
    claims = state.open_claims(pod)
    if others := state.claims_of_others(pod):
        return tuple(_of_others(state, others))
    if state.facts.given_up and (refused := tuple(_given_up(state, claims))):
        return refused
    common = state.patterns.of(state.facts, state.published, domain, pod, claims)
    if common.is_refused:
        return bounded(_refusals(pod, claims, common))
    are_all_open = len(claims) == len(pod.claims)
    return PodRequest(
        common.asks,
        common.plan,
        common.devices_signature,
        common.signature,
        common.placement,
        common.is_aware,
        common.scoring,
        common.configs,
        common.named_nodes,
        common.in_full,
        common.alone,
        common.prefers,
        pod,
        claims,
        "" if are_all_open else _fixed_node(state, pod),
        _excluded(state, domain, pod, claims),
        () if are_all_open else _reach(state, pod),
    )


def _refused_by_pool(state: AllocatorState, domain: str, pod: Pod) -> Reason | None:
    """Why the pool serves no new pod, or none of this namespace. The pod's claims are in its
    namespace, too."""
    pool = state.facts.pools.get(domain)
    if pool is not None and pool.deleting:
        return Reason("pool", f"pool {pool.name} is being deleted: name another one", 0, 0, "pool")
    if pool is None or pool.admits(pod.namespace):
        return None
    what = (
        f"namespace {pod.namespace} may not use pool {pool.name} "
        f"(allowedNamespaces: {name_list(pool.allowed_namespaces)})"
    )
    return Reason("namespace", what, 0, 0, "pod")


def _refusals(pod: Pod, claims: Sequence[Claim], common: PodPattern) -> list[Reason]:
    reasons = []
    for claim, one in zip(claims, common.requirements, strict=True):
        if claim.pool and claim.pool != pod.pool:
            reasons.append(
                _one("pool", f"claim {claim.name} asks for pool {claim.pool}, pod for {pod.pool}")
            )
        reasons += [
            _one("unsupported", f"claim {claim.name}: {what}")
            for what in one.faults(common.placement)
        ]
        reasons += [
            _one("unsupported", f"DeviceClass {name} does not exist") for name in one.missing
        ]
    if common.refused_topology:
        reasons.append(_one("unsupported", common.refused_topology))
    return reasons


def _given_up(state: AllocatorState, claims: Sequence[Claim]) -> Iterator[Reason]:
    """Why claims are not decided for now: the last attempt was given up."""
    for claim in claims:
        if (why := state.facts.given_up.get(claim.uid)) is not None:
            what = f"claim {claim.namespace}/{claim.name} can't be allocated"
            yield Reason("refused", what, 1, 1, "claim", why)


def _of_others(state: AllocatorState, claims: Sequence[Claim]) -> Iterator[Reason]:
    for claim in claims:
        users = (state.facts.pods.get(uid) for uid in claim.reserved_for)
        named = ", ".join(f"{one.namespace}/{one.name}" for one in users if one is not None)
        yield Reason(
            "in-use",
            f"claim {claim.name} is allocated for another pod",
            1,
            1,
            "claim",
            f"it is for {named or 'one that is gone'}, and dray binds one pod per claim: refer to "
            "a resourceClaimTemplateName, and each pod gets its own",
        )


def _one(kind: str, what: str) -> Reason:
    return Reason(kind, what, 1, 1, "claim")


def _fixed_node(state: AllocatorState, pod: Pod) -> str:
    for claim in state.facts.claims_of(pod) or ():
        if claim.allocation is not None and claim.allocation.node:
            return claim.allocation.node
    return ""


def _reach(state: AllocatorState, pod: Pod) -> tuple[NodeSelector, ...]:
    held = (claim.allocation for claim in state.facts.claims_of(pod) or ())
    return tuple(one.selector for one in held if one is not None and one.selector is not None)


def _excluded(
    state: AllocatorState, domain: str, pod: Pod, claims: tuple[Claim, ...]
) -> tuple[str, ...]:
    """Nodes from which a claim was rolled back lately."""
    excluded = state.domains[domain].current.excluded
    if not excluded:
        return ()
    rules = state.rules
    exclusion_s = rules.exclusion_s if pod.member is None else rules.group_exclusion_s
    return tuple(
        node
        for claim in claims
        for node, at_unix_s in excluded.get(claim.uid, {}).items()
        if state.facts.age_s(at_unix_s) < exclusion_s
    )
