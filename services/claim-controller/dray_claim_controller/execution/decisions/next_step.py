"""The next step of a decision's execution, from observation alone. Pure.

The order is that of KEP-4381 for components other than kube-scheduler: finalizer, allocation
(with ``reservedFor`` if dray binds), then the lifting of the gate, or the binding once the
devices are ready for it. Every step can be repeated after a restart: an execution remembers only
``committed``, the claims that it saw allocated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dray.api.claims import EPOCH_SPAN, Allocation, Claim
from dray.api.names import OWNER_DRAY, VOID
from dray.api.pods import TERMINAL_PHASES, Pod
from dray.api.quantities import InvalidQuantityError, parse_quantity
from dray.kube.convert_metadata import LONGEST_ATTEMPT, annotation
from dray.kube.ports import NODES
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.cache.anti_affinity import same_topology
from dray_claim_controller.cache.cached_objects import CachedPod, CachedResourceClaim
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.binding_conditions import (
    NODE_GONE,
    ConditionsFailed,
    ConditionsPending,
    readiness,
)

GO, WAIT = "go", "wait"
"""Whether the pods of a group's decision may be bound."""
_GROUP_STOPPED = "group-stopped"
_STOP = "stop: "
REFUSED, NOT_WRITTEN = "refused", "not-written"
"""Reasons of attempts that Kubernetes does not let dray carry out."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What is observed of the objects of a decision."""

    epoch: int
    """Current epoch of the domain."""
    pod: Pod | None
    claims: Mapping[str, CachedResourceClaim]
    """By UID; absent: gone."""
    committed: frozenset[str] = frozenset()
    """UIDs that were allocated as decided before: seen by this execution, or by the log.
    Such a claim is never allocated a second time by the same attempt."""
    excluded_by: str = ""
    """The pod whose required anti-affinity excludes this pod from the decision's node, or empty."""
    marked: frozenset[str] = frozenset()
    """UIDs that this execution marked itself, so no earlier execution committed them."""
    siblings: tuple[Claim, ...] = ()
    """The pod's other claims of dray, which an earlier decision allocated."""
    voids: Mapping[str, int] = field(default_factory=dict)
    """By claim UID, the highest attempt that the pod's void annotation names."""
    devices: ConditionsPending | ConditionsFailed | None = None
    """Why devices of the pod's claims are not ready; None if all are ready."""
    node_gone: bool = False
    """Whether the decision's node does not exist (any more)."""
    given_up: Mapping[str, int] = field(default_factory=dict)
    """By claim UID, the highest attempt that is given up although the claim can't be written."""
    joint: str = GO
    """Whether the pod's group may be bound, or why not (``stop_jointly``)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Put finalizer and decision annotation on the claim, fenced by its revision."""

    claim: ClaimDecision


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the claim's allocation, fenced by the revision that carries the mark."""

    claim: ClaimDecision


@dataclass(frozen=True, slots=True)
class AwaitWatch:
    """Wait until the watch has shown the allocations, so that other components can see them."""


@dataclass(frozen=True, slots=True)
class AwaitDevices:
    """Wait until the devices are ready for the pod, or an object changes."""

    detail: str
    until_unix_s: float
    """The latest time to check again, in the facts' time."""


@dataclass(frozen=True, slots=True)
class AwaitGroup:
    """Wait until all pods of the decision have their devices."""

    detail: str
    until_unix_s: float = 0.0
    """The latest time to check again, in the facts' time."""


@dataclass(frozen=True, slots=True)
class LiftGate:
    """Remove dray's scheduling gate: kube-scheduler binds."""


@dataclass(frozen=True, slots=True)
class BindPod:
    """POST the binding."""


@dataclass(frozen=True, slots=True)
class Done:
    """The decision is carried out."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop carrying the decision out. ``withdraw``: void it and roll back its writes; otherwise
    something else already determines what becomes of it."""

    reason: str
    detail: str
    withdraw: bool = False
    siblings: tuple[ClaimDecision, ...] = ()
    """Claims that an earlier decision allocated to the pod, to be rolled back with this one."""


Step = Mark | Commit | AwaitWatch | AwaitDevices | AwaitGroup | LiftGate | BindPod | Done | Stop


def stop_jointly(why: str) -> str:
    """The verdict that no pod of a group's decision is bound."""
    return _STOP + why


def epoch_of(attempt: int) -> int:
    """The epoch an attempt was made in."""
    return (attempt - 1) // EPOCH_SPAN


def next_step(observed: Observed, decision: PodDecision) -> Step:
    """What to do next for ``decision``."""
    if (stop := _pod_stops(observed, decision)) is not None:
        return stop
    pod = observed.pod
    assert pod is not None
    if not pod.node and (stop := _siblings_stop(observed)) is not None:
        return stop
    is_unbound = not pod.node and (decision.binder == OWNER_DRAY or pod.gated)
    if is_unbound and observed.joint.startswith(_STOP):
        why = observed.joint.removeprefix(_STOP)
        return Stop(_GROUP_STOPPED, why, True, _decided_before(observed))
    for claim in decision.claims:
        if (step := _claim_step(observed, decision, claim)) is not None:
            return step
    if pod.node:
        return Done()
    if decision.binder != OWNER_DRAY and not pod.gated:
        return Done()
    if observed.joint == WAIT and decision.group is not None:
        return AwaitGroup(f"waits for the {decision.group.size} pods of its group")
    if decision.binder == OWNER_DRAY:
        return _bind(observed, decision)
    watched = all(observed.claims[claim.uid].allocation_watched for claim in decision.claims)
    return LiftGate() if watched else AwaitWatch()


def _bind(observed: Observed, decision: PodDecision) -> Step:
    # If kube-scheduler binds, it waits for the devices itself. All claims of the pod are rolled
    # back, because the others would keep it on this node.
    match observed.devices:
        case ConditionsPending() if observed.node_gone:
            why = f"node {decision.node} is gone"
            return Stop(NODE_GONE, why, True, _decided_before(observed))
        case ConditionsPending(detail, until_unix_s):
            return AwaitDevices(detail, until_unix_s)
        case ConditionsFailed(reason, detail):
            return Stop(reason, detail, True, _decided_before(observed))
        case None:
            return BindPod()


def _pod_stops(observed: Observed, decision: PodDecision) -> Stop | None:
    pod = observed.pod
    if pod is None or pod.uid != decision.pod_uid:
        return Stop("pod-gone", "the pod no longer exists")
    if pod.deleting or pod.phase in TERMINAL_PHASES:
        return Stop("pod-ended", f"the pod is {'deleting' if pod.deleting else pod.phase}")
    if pod.node and pod.node != decision.node:
        return Stop("bound-elsewhere", f"the pod is bound to {pod.node}", withdraw=True)
    if observed.excluded_by and decision.binder == OWNER_DRAY and not pod.node:
        why = f"pod {observed.excluded_by} keeps it away from {decision.node} by its anti-affinity"
        return Stop("repelled", why, withdraw=True)
    return None


def _siblings_stop(observed: Observed) -> Stop | None:
    # This decision was made when the pod's other claims were allocated. If one of them has been or
    # will be rolled back, all claims of the pod are rolled back and decided again.
    for claim in observed.siblings:
        void = max(claim.void, observed.voids.get(claim.uid, 0))
        if claim.allocation is None or 0 < claim.decision <= void:
            where = f"claim {claim.namespace}/{claim.name}"
            held = _decided_before(observed)
            return Stop("sibling-void", f"{where} of the same pod is rolled back", True, held)
    return None


def _decided_before(observed: Observed) -> tuple[ClaimDecision, ...]:
    return tuple(made for one in observed.siblings if (made := decided(one)) is not None)


def decided(claim: Claim) -> ClaimDecision | None:
    """A claim's allocation as a decision; None if dray did not decide it."""
    if claim.allocation is None or not claim.decision:
        return None
    return ClaimDecision(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=claim.decision,
        allocation=claim.allocation,
    )


def _claim_step(observed: Observed, decision: PodDecision, wanted: ClaimDecision) -> Step | None:
    """The step that the claim needs, or None if it is allocated as decided."""
    cached = observed.claims.get(wanted.uid)
    if cached is None:
        return Stop("claim-gone", f"claim {wanted.namespace}/{wanted.name} is gone")
    claim = cached.claim
    where = f"claim {claim.namespace}/{claim.name}"
    bound = observed.pod is not None and bool(observed.pod.node)
    if bound and _is_allocated(claim, wanted):
        return None
    # The allocation may be of an earlier attempt with the same devices.
    attempt = claim.decision if _is_allocated(claim, wanted) else wanted.attempt
    if 0 < attempt <= claim.void:
        return Stop("void", f"{where} voids attempts up to {claim.void}", withdraw=True)
    if 0 < attempt <= (void := observed.voids.get(wanted.uid, 0)):
        return Stop("void", f"the pod voids attempts of {where} up to {void}", withdraw=True)
    if 0 < attempt <= (void := observed.given_up.get(wanted.uid, 0)):
        why = f"attempts of {where} up to {void} are given up: Kubernetes does not store their void"
        return Stop("void", why, withdraw=True)
    # A committed allocation counts in every epoch, and its binding is completed; nothing else is.
    if epoch_of(wanted.attempt) < observed.epoch and not _is_allocated(claim, wanted):
        return Stop("old-epoch", f"the log's epoch is now {observed.epoch}")
    if claim.decision > wanted.attempt:
        return Stop("superseded", f"{where} carries attempt {claim.decision}")
    if _is_allocated(claim, wanted):
        return None
    if claim.allocation is not None:
        return Stop("allocated-otherwise", f"{where} holds {_device_names(claim.allocation)}")
    if claim.deleting:
        return Stop("claim-deleting", f"{where} is being deleted")
    if claim.spec.unreadable:
        # The unreadable part may be the void annotation.
        return Stop("unreadable", f"{where} {claim.spec.unreadable}", withdraw=True)
    if wanted.uid in observed.committed or _may_be_cleared(observed, decision, cached, wanted):
        return Stop("cleared", f"the allocation of {where} was cleared", withdraw=True)
    if claim.decision < wanted.attempt or not cached.protected:
        return Mark(wanted)
    return Commit(wanted)


def _is_allocated(claim: Claim, wanted: ClaimDecision) -> bool:
    return claim.allocation is not None and same_allocation(claim.allocation, wanted.allocation)


def _may_be_cleared(
    observed: Observed, decision: PodDecision, cached: CachedResourceClaim, wanted: ClaimDecision
) -> bool:
    # An earlier execution marked the claim, and kube-scheduler has the pod in hand: the claim may
    # have had an allocation of this attempt and lost it. That can't be observed, so the attempt is
    # given up, and the allocator decides again.
    if wanted.uid in observed.marked or cached.claim.decision != wanted.attempt:
        return False
    lifted = observed.pod is not None and not observed.pod.gated
    return decision.binder != OWNER_DRAY and lifted


def same_allocation(left: Allocation, right: Allocation) -> bool:
    """Whether two allocations consume the same capacity of the same devices on the same node.

    Amounts are compared as quantities, because servers rewrite ``1024Mi``. Share ids and
    configuration are not compared, because servers drop fields whose feature gates are off.
    """
    return left.node == right.node and _takes(left) == _takes(right)


def _device_names(allocation: Allocation) -> str:
    """The devices of an allocation, for messages."""
    return ", ".join(str(device.id) for device in allocation.devices) or "nothing"


def _takes(allocation: Allocation) -> list[tuple[str, str, tuple[tuple[str, int], ...]]]:
    return sorted(
        (
            device.request,
            str(device.id),
            tuple(sorted((name, _nano(amount)) for name, amount in device.consumed.items())),
        )
        for device in allocation.devices
    )


def _nano(amount: str) -> int:
    try:
        return parse_quantity(amount).nano
    except InvalidQuantityError:
        return -1


def excluding_pod(cache: ObjectCache, cached: CachedPod, node: str) -> str:
    """The pod (``namespace/name``) whose anti-affinity excludes a pod from ``node``, or empty."""
    if not cache.anti_affinity_pods or cached.pod is None:
        return ""
    labels = cached.object["metadata"].get("labels") or {}
    here = _labels(cache, node)
    for other in map(cache.pods.__getitem__, cache.anti_affinity_pods):
        if other.uid == cached.uid or other.terminal or not other.node:
            continue
        there = _labels(cache, other.node)
        for term in other.repels:
            if same_topology(term.topology, there, here) and term.concerns(
                cached.pod.namespace, labels
            ):
                return term.by
    return ""


def _labels(cache: ObjectCache, node: str) -> Mapping[str, str]:
    known = cache.plain[NODES.plural].get(node) or {"metadata": {}}
    return known["metadata"].get("labels") or {}


def voids_of(cached: CachedPod) -> dict[str, int]:
    """The highest attempt by claim UID that the pod's void annotation names."""
    found: dict[str, int] = {}
    for entry in annotation(cached.object, VOID).split(",") if cached.object else ():
        uid, _, attempt = entry.rpartition(".")
        if uid and attempt.isdecimal() and len(attempt) <= LONGEST_ATTEMPT:
            found[uid] = max(int(attempt), found.get(uid, 0))
    return found


class NextStep(RecordedRule[Step], frozen=True, kw_only=True, tag="next-step"):
    """What to do next for a decision."""

    decision: PodDecision
    epoch: int
    """Current epoch of the domain."""
    committed: tuple[str, ...] = ()
    """See ``Observed``; sorted."""
    marked: tuple[str, ...] = ()
    now_unix_s: float = 0.0
    """The time of the facts."""
    since_unix_s: float = 0.0
    """When it was decided, or, if no log has that, when its execution began."""
    binding_timeout_s: float = 600.0
    """How long after that a device may lack a binding condition."""
    joint: str = GO
    """See ``Observed``."""

    def answer(self, cache: ObjectCache) -> Step:
        cached = cache.pods.get(self.decision.pod_uid)
        claims = {
            claim.uid: cache.claims[claim.uid]
            for claim in self.decision.claims
            if claim.uid in cache.claims
        }
        pod = None if cached is None else cached.pod
        siblings = [] if pod is None else cache.claims_of(pod)
        observed = Observed(
            epoch=self.epoch,
            pod=pod,
            claims=claims,
            committed=frozenset(self.committed),
            marked=frozenset(self.marked),
            siblings=tuple(held.claim for held in siblings if held.claim.uid not in claims),
            voids={} if cached is None else voids_of(cached),
            excluded_by="" if cached is None else excluding_pod(cache, cached, self.decision.node),
            node_gone=self.decision.node not in cache.plain[NODES.plural],
            joint=self.joint,
            given_up={uid: cache.given_up[uid].attempt for uid in claims if uid in cache.given_up},
            devices=readiness(
                [] if pod is None else cache.every_claim_of(pod),
                now_unix_s=self.now_unix_s,
                since_unix_s=self.since_unix_s,
                timeout_s=self.binding_timeout_s,
            ),
        )
        return next_step(observed, self.decision)
