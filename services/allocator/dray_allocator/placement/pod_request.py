"""The request of a pod: what its open claims require, or why dray can't decide them.

Requirements are computed once per pattern: most pods of a workload have equal ones. A pattern is
the content of a pod's claims, its needs, its placement and its binder.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dray.api.claims import EPOCH_SPAN, Claim
from dray.api.devices import OpaqueConfig
from dray.api.names import DRAY_SCHEDULER, KUBERNETES_COMPATIBLE
from dray.api.nodes import NodeSelector
from dray.api.placement import HARD, Placement, overridden
from dray.api.pods import Pod, PodNeeds
from dray.messages.decisions import ClaimDecision
from dray.reasons import Reason, bounded, name_list
from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.node_search import search_plan
from dray_allocator.devices.ordered_search import SearchPlan
from dray_allocator.devices.published_devices import PublishedDevices
from dray_allocator.nodes.ratings import Scoring
from dray_allocator.placement.claim_requirements import ClaimRequirements, ClaimRequirementsCache
from dray_allocator.placement.validate_claim import refused_topology
from dray_allocator.scoring.policies import scoring_of
from dray_allocator.scoring.topology import concerns
from dray_allocator.scoring.without_devices import WITHOUT_DEVICES
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.facts import Facts, Signature
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.cache_budget import CacheBudget

_MOST_BYTES: Final = 2**24
_MOST_ALIKE: Final = 16
_ClaimKeys = tuple[tuple[Signature, str], ...]
"""Per claim: its signature and its pool."""
_Key = tuple[str, str, str, bool, bool, int, int, _ClaimKeys]
_FIRST_EXCLUSION: Final = 20
"""The first exclusion of a node is shorter than the longest one by this factor."""


class PodPattern(msgspec.Struct, frozen=True):
    """The requirements that pods of one pattern have in common. They hold until a class, a pool or
    a policy changes."""

    asks: tuple[DeviceRequirements, ...]
    plan: SearchPlan
    """The same, as the search reads them."""
    weighed: tuple[DeviceRequirements, ...]
    """See ``ClaimRequirements.weighed``."""
    devices_signature: bytes
    """Equal for pods that fit the same free devices."""
    signature: bytes
    """Equal for pods that fit the same nodes with the same devices."""
    placement: Placement
    """The pool's placement, or the pod's own."""
    needs_devices: bool
    """Whether a claim asks for a device; the claim of a pod without GPUs does not."""
    is_aware: bool
    """Whether the placement is FragmentationAware, and so uses the workload model."""
    scoring: Scoring
    """The placement's scoring, or that of pods without devices. FragmentationAware uses it until
    there is a workload model, and in the search."""
    configs: tuple[tuple[OpaqueConfig, ...], ...]
    """Per claim: the configuration of its classes, each with its requests, then its own."""
    named_nodes: tuple[str, ...] | None
    """The nodes that the pods name, as those of a DaemonSet do; None: any node."""
    in_full: bool
    """Whether the pods need the search (``devices.table_scope``)."""
    alone: bool
    """Whether dray binds the pods, which then need nodes on which no other scheduler binds."""
    prefers: bool
    """Whether a request prefers some of the cards that fit."""
    connects: bool
    """Whether links between the cards matter."""
    is_refused: bool
    """Whether a claim can't be decided at all."""
    refused_topology: str
    """Why the cards can't be connected as the pods require; empty if they can."""
    requirements: tuple[ClaimRequirements, ...]
    """Per open claim."""
    needs: PodNeeds


class PodRequest(msgspec.Struct, frozen=True, gc=False):
    """Everything to be found for one pod, on one node."""

    pattern: PodPattern
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
    claims, others = state.claims_to_decide(pod)
    if others:
        return tuple(_of_others(state, others))
    if state.facts.given_up and (refused := tuple(_given_up(state, claims))):
        return refused
    pattern = _patterns(state).of(state.facts, state.published, domain, pod, claims)
    if pattern.is_refused:
        return bounded(_refusals(pod, claims, pattern))
    return _request(state, domain, pod, claims, pattern)


def without_claims(
    state: AllocatorState,
    domain: SchedulingDomain,
    request: PodRequest,
    made: Mapping[str, ClaimDecision],
) -> PodRequest:
    """The request without the claims that are decided already, for nodes that can use these."""
    if not made:
        return request
    pod, claims = request.pod, tuple(one for one in request.claims if one.uid not in made)
    pattern = _patterns(state).of(state.facts, state.published, domain.name, pod, claims)
    rest = _request(state, domain.name, pod, claims, pattern)
    allocations = [one.allocation for one in made.values()]
    nodes = [rest.fixed_node, *(one.node for one in allocations if one.selector is None)]
    selectors = tuple(one.selector for one in allocations if one.selector is not None)
    return msgspec.structs.replace(
        rest, fixed_node=next(filter(None, nodes), ""), reach=(*rest.reach, *selectors)
    )


def _request(
    state: AllocatorState,
    domain: str,
    pod: Pod,
    claims: tuple[Claim, ...],
    pattern: PodPattern,
) -> PodRequest:
    are_all_open = len(claims) == len(pod.claims)
    return PodRequest(
        pattern,
        pod,
        claims,
        "" if are_all_open else _fixed_node(state, pod),
        _excluded(state, domain, pod, claims),
        () if are_all_open else _reach(state, pod),
    )


def _patterns(state: AllocatorState) -> "PodPatterns":
    patterns = state.patterns
    if not isinstance(patterns, PodPatterns):
        patterns = state.patterns = PodPatterns()
    return patterns


class PodPatterns:
    """A bounded cache of patterns; it changes no result."""

    def __init__(self) -> None:
        self._requirements = ClaimRequirementsCache()
        self._known: dict[_Key, list[PodPattern]] = {}
        """By the part of the pattern that differs most; pods of one key differ in their needs."""
        self._room = CacheBudget(_MOST_BYTES)

    def forget(self) -> None:
        """Forget everything: a class, a pool or a policy changed."""
        self._requirements, self._room = ClaimRequirementsCache(), CacheBudget(_MOST_BYTES)
        self._known.clear()

    def of(
        self,
        facts: Facts,
        published: PublishedDevices,
        domain: str,
        pod: Pod,
        claims: Sequence[Claim],
    ) -> PodPattern:
        """The requirements of a pod of these facts with these open claims."""
        needs, pool, signatures = pod.needs, facts.pools.get(domain), facts.signatures
        # Pending pods in a pool whose nodes became shared again have no other binder.
        alone = pool is not None and pool.dedicated and pod.scheduler == DRAY_SCHEDULER
        claim_keys = tuple([(signatures[one.uid], one.pool) for one in claims])
        about = (domain, pod.pool, pod.scheduler, alone, bool(published.beyond_table))
        key = (*about, needs.cpu_milli, needs.memory_bytes, claim_keys)
        alike = self._known.get(key, ())
        for known in alike:
            if known.needs == needs:
                return known
        requirements = tuple([self._requirements.of(facts, claim) for claim in claims])
        policy = facts.placement(domain)[0]
        made = _pattern(
            requirements,
            claim_keys,
            policy,
            pod,
            published,
            alone=alone,
            needs_devices=any(claim.spec.requests for claim in claims),
        )
        if not self._room.takes(
            len(made.signature) + sum(len(rest) for (_, rest), _ in claim_keys)
        ):
            self._known.clear()
            alike = ()
        self._known[key] = [made, *alike[: _MOST_ALIKE - 1]]
        return made


def _pattern(
    requirements: tuple[ClaimRequirements, ...],
    claim_keys: _ClaimKeys,
    policy: Placement,
    pod: Pod,
    published: PublishedDevices,
    *,
    alone: bool,
    needs_devices: bool,
) -> PodPattern:
    placement = _placement(policy, requirements)
    in_full = placement.is_compatible or any(one.is_beyond_table for one in requirements)
    asks = () if in_full else _device_requirements(requirements)
    modes = _modes(pod, placement, in_full or bool(published.beyond_table))
    needed = msgspec.json.encode((pod.needs, alone, *modes), order="deterministic")
    signature = b"|".join([requests for (requests, _), _ in claim_keys])
    is_elsewhere = any(pool not in ("", pod.pool) for _, pool in claim_keys)
    faulty = any(one.faults(placement) or one.missing for one in requirements)
    refusal = _refused_topology(placement, requirements) if in_full else ""
    return PodPattern(
        asks=asks,
        plan=search_plan(asks, len(requirements)),
        weighed=tuple([ask for one in requirements for ask in one.weighed]),
        devices_signature=signature,
        signature=needed + b"|" + signature,
        placement=placement,
        needs_devices=needs_devices,
        is_aware=placement.is_aware,
        scoring=scoring_of(placement) if needs_devices else WITHOUT_DEVICES,
        configs=tuple([one.config for one in requirements]),
        named_nodes=_named_nodes(pod.needs),
        in_full=in_full,
        alone=alone,
        prefers=any(ask.preference for ask in asks),
        connects=concerns(asks, placement.topology),
        is_refused=is_elsewhere or faulty or bool(refusal),
        refused_topology=refusal,
        requirements=requirements,
        needs=pod.needs,
    )


def _device_requirements(
    requirements: Sequence[ClaimRequirements],
) -> tuple[DeviceRequirements, ...]:
    """The requirements of all claims; equal requests of several claims are several entries."""
    return tuple(
        [
            msgspec.structs.replace(ask, claim=number)
            for number, one in enumerate(requirements)
            for ask in one.asks
        ]
    )


def _placement(policy: Placement, requirements: Sequence[ClaimRequirements]) -> Placement:
    """The pool's placement, or that of the first claim that has one. A value that the webhook
    would refuse is ignored."""
    for placement, topology in [one.placement for one in requirements]:
        if placement or topology:
            return overridden(policy, placement, topology)
    return policy


def _refused_topology(placement: Placement, requirements: Sequence[ClaimRequirements]) -> str:
    topologies = [topology for _, topology in (one.placement for one in requirements)]
    return refused_topology(placement, topologies, sum(one.most_devices for one in requirements))


def _modes(pod: Pod, placement: Placement, binder_counts: bool) -> tuple[str, ...]:
    """The part of a pod that decides on which nodes its claims can be met. It includes the binder
    if ``binder_counts``, because devices may have conditions that not every binder waits for."""
    modes = [placement.topology] if placement.topology == HARD else []
    modes += [KUBERNETES_COMPATIBLE] if placement.is_compatible else []
    return (*modes, pod.binder) if binder_counts else tuple(modes)


def _named_nodes(needs: PodNeeds) -> tuple[str, ...] | None:
    """The only nodes that every term of the pod's node affinity admits by name; None: any name."""
    if not needs.node_terms:
        return None
    found: dict[str, None] = {}
    for term in needs.node_terms:
        names_of = [one.values for one in term if one.is_field and one.operator == "In"]
        if not names_of:
            return None
        found.update(dict.fromkeys(names_of[0]))
    return tuple(found)


def _refused_by_pool(state: AllocatorState, domain: str, pod: Pod) -> Reason | None:
    """Why the pool refuses the pod: the pool is being deleted, or it does not admit the pod's
    namespace, which is also that of the pod's claims."""
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


def _refusals(pod: Pod, claims: Sequence[Claim], pattern: PodPattern) -> list[Reason]:
    reasons = []
    for claim, one in zip(claims, pattern.requirements, strict=True):
        if claim.pool and claim.pool != pod.pool:
            reasons.append(
                _one("pool", f"claim {claim.name} asks for pool {claim.pool}, pod for {pod.pool}")
            )
        reasons += [
            _one("unsupported", f"claim {claim.name}: {what}")
            for what in one.faults(pattern.placement)
        ]
        reasons += [
            _one("unsupported", f"DeviceClass {name} does not exist") for name in one.missing
        ]
    if pattern.refused_topology:
        reasons.append(_one("unsupported", pattern.refused_topology))
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
    allocations = (claim.allocation for claim in state.facts.claims_of(pod) or ())
    return tuple(
        one.selector for one in allocations if one is not None and one.selector is not None
    )


def _excluded(
    state: AllocatorState, domain: str, pod: Pod, claims: tuple[Claim, ...]
) -> tuple[str, ...]:
    """Nodes from which a claim was rolled back lately."""
    excluded = state.domains[domain].current.excluded
    if not excluded:
        return ()
    options, is_member = state.options, pod.member is not None
    return tuple(
        node
        for claim in claims
        for node, at_unix_s in excluded.get(claim.uid, {}).items()
        if state.facts.age_s(at_unix_s)
        < (
            options.group_exclusion_s
            if is_member
            else _exclusion_s(claim.void, options.exclusion_s)
        )
    )


def _exclusion_s(void: int, longest_s: float) -> float:
    """How long a node is excluded: twice as long after each void attempt of the epoch. It begins
    short because the problem that kept kube-scheduler from the node may be over soon."""
    voided = (max(1, void) - 1) % EPOCH_SPAN
    return min(longest_s, longest_s / _FIRST_EXCLUSION * 2.0 ** min(voided, _FIRST_EXCLUSION))
