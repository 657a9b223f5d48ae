"""Schedules a pod, in the order of kube-scheduler's plugins. Pure.

Follows kube-scheduler 1.36's plugins, not dray's node filter, so that tests can find differences
between the two. For claims: PreFilter, Filter, PostFilter and PreBind of ``dynamicresources.go``,
without the allocation of claims.
"""

from collections import Counter
from dataclasses import dataclass

from dray.api.devices import Taint
from dray.api.pods import HostPort, Node, NodeExpression, NodeTerm, Pod
from dray_sandbox.scheduler.cache import CachedClaim, NodeUsage, SchedulerCache
from dray_sandbox.scheduler.readiness import TIMEOUT_S

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable")
_SCHEDULING_EFFECTS = ("NoSchedule", "NoExecute")
_MOST_RESERVATIONS = 256


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """Reserve ``reserve`` for the pod, then bind it."""

    node: str
    reserve: tuple[CachedClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node is feasible. PostFilter deallocates the claim ``clear``."""

    message: str
    clear: CachedClaim | None = None


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """A node is feasible, but binding to it always fails."""

    message: str


@dataclass(frozen=True, slots=True)
class NotQueued:
    """PreEnqueue refuses the pod; its status does not change."""

    message: str


Decision = ScheduleResult | Unschedulable | FilterFailure | NotQueued


def is_candidate(pod: Pod, cluster: SchedulerCache, scheduler: str) -> bool:
    """Whether this scheduler can schedule the pod now."""
    return (
        pod.scheduler == scheduler
        and not pod.node
        and not pod.gated
        and not pod.other_gates
        and not pod.deleting
        and pod.phase == "Pending"
        and pod.uid not in cluster.assumed
    )


def decide(
    pod: Pod, cluster: SchedulerCache, *, now_unix_s: float = 0.0, timeout_s: float = TIMEOUT_S
) -> Decision:
    """Schedule the pod. Devices that are not ready ``timeout_s`` after their allocation count as
    failed."""
    claims, missing = _claims_of(pod, cluster)
    if missing:
        return NotQueued(missing)
    if busy := [claim for claim in claims if claim.allocated and not _reservable(claim, pod)]:
        return _unschedulable(cluster, f"resourceclaim in use: {busy[0].name}")
    if not cluster.nodes:
        return Unschedulable("no nodes available to schedule pods")
    failed = [one for one in claims if one.readiness.needs_reallocation(now_unix_s, timeout_s)]
    refusals: Counter[str] = Counter()
    unavailable: dict[str, CachedClaim] = {}
    fitting: list[Node] = []
    for node in cluster.nodes.values():
        why = _node_refusal(pod, node, cluster)
        if why := why or _claims_refusal(claims, failed, node, unavailable):
            refusals[why] += 1
        else:
            fitting.append(node)
    if not fitting:
        return Unschedulable(_summary(cluster, refusals), _to_clear(pod, unavailable))
    return _place(pod, claims, min(fitting, key=lambda node: _load(pod, node, cluster)))


def _claims_of(pod: Pod, cluster: SchedulerCache) -> tuple[list[CachedClaim], str]:
    """The pod's claims, or the reason why PreEnqueue refuses the pod."""
    claims = []
    for reference in pod.claims:
        claim = cluster.claims.get((pod.namespace, reference.claim)) if reference.claim else None
        if claim is None:
            return [], f"waiting for the claim {reference.reference!r} to be created"
        if claim.deleting:
            return [], f'resourceclaim "{claim.name}" is being deleted'
        if reference.template and claim.owner_uid != pod.uid:
            return [], f"claim {claim.name} was not created for pod {pod.namespace}/{pod.name}"
        claims.append(claim)
    return claims, ""


def _reservable(claim: CachedClaim, pod: Pod) -> bool:
    return pod.uid in claim.reserved_for or len(claim.reserved_for) < _MOST_RESERVATIONS


def _node_refusal(pod: Pod, node: Node, cluster: SchedulerCache) -> str:
    needs = pod.needs
    if node.unschedulable and not any(t.tolerates(_UNSCHEDULABLE) for t in needs.tolerations):
        return "node(s) were unschedulable"
    for taint in node.taints:
        if taint.effect in _SCHEDULING_EFFECTS and not any(
            t.tolerates(taint) for t in needs.tolerations
        ):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    selected = all(node.labels.get(key) == value for key, value in needs.node_selector.items())
    if not selected or (needs.node_terms and not matches(needs.node_terms, node)):
        return "node(s) didn't match Pod's node affinity/selector"
    used = cluster.usage_of(node.name)
    if used.pods + 1 > node.pods:
        return "Too many pods"
    if needs.cpu_milli and used.cpu_milli + needs.cpu_milli > node.cpu_milli:
        return "Insufficient cpu"
    if needs.memory_bytes and used.memory_bytes + needs.memory_bytes > node.memory_bytes:
        return "Insufficient memory"
    for name, amount in needs.resources.items():
        if used.others[name] + amount > node.resources.get(name, 0):
            return f"Insufficient {name}"
    if any(_is_used(port, used) for port in needs.ports):
        return "node(s) didn't have free ports for the requested pod ports"
    return ""


def _is_used(port: HostPort, used: NodeUsage) -> bool:
    return any(
        count > 0
        and (taken.protocol, taken.number) == (port.protocol, port.number)
        and (port.address in ("0.0.0.0", taken.address) or taken.address == "0.0.0.0")
        for taken, count in used.ports.items()
    )


def _claims_refusal(
    claims: list[CachedClaim],
    failed: list[CachedClaim],
    node: Node,
    unavailable: dict[str, CachedClaim],
) -> str:
    """Why the claims reject a node; adds the rejecting ones to ``unavailable``."""
    rejecting = [
        claim
        for claim in claims
        if claim in failed or (claim.node_terms is not None and not matches(claim.node_terms, node))
    ]
    if not all(claim.allocated for claim in claims):
        return "cannot allocate all claims"
    unavailable.update({claim.uid: claim for claim in rejecting})
    return "resourceclaim not available on the node" if rejecting else ""


def _to_clear(pod: Pod, unavailable: dict[str, CachedClaim]) -> CachedClaim | None:
    """PostFilter: the first claim that no other pod uses (kube-scheduler takes a random one)."""
    for claim in unavailable.values():
        if claim.reserved_for in ((), (pod.uid,)):
            return claim
    return None


def _place(pod: Pod, claims: list[CachedClaim], node: Node) -> Decision:
    reserve = tuple(claim for claim in claims if pod.uid not in claim.reserved_for)
    for claim in reserve:
        if not claim.stamped:
            # PreBind writes the time with the reservation, but an allocation is immutable.
            return FilterFailure(
                f"reserving claim {claim.namespace}/{claim.name}: "
                "status.allocation: Invalid value: field is immutable"
            )
    return ScheduleResult(node.name, reserve)


def _load(pod: Pod, node: Node, cluster: SchedulerCache) -> tuple[float, str]:
    """Least allocated first, as by the default weights; names break ties."""
    used = cluster.usage_of(node.name)
    cpu = (used.cpu_milli + pod.needs.cpu_milli) / max(node.cpu_milli, 1)
    memory = (used.memory_bytes + pod.needs.memory_bytes) / max(node.memory_bytes, 1)
    return cpu + memory, node.name


def _unschedulable(cluster: SchedulerCache, why: str) -> Unschedulable:
    count = len(cluster.nodes)
    return Unschedulable(f"0/{count} nodes are available: {why}.")


def _summary(cluster: SchedulerCache, refusals: Counter[str]) -> str:
    parts = sorted(f"{count} {why}" for why, count in refusals.items())
    return f"0/{len(cluster.nodes)} nodes are available: {', '.join(parts)}."


def matches(terms: tuple[NodeTerm, ...], node: Node) -> bool:
    """Whether a node selector matches the node: all expressions of any term are true.

    An empty term matches nothing (``nodeaffinity.go``).
    """
    return any(term and all(_holds(expression, node) for expression in term) for term in terms)


def _holds(expression: NodeExpression, node: Node) -> bool:
    labels = {"metadata.name": node.name} if expression.is_field else node.labels
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(expression, value)
    return False


def _compares(expression: NodeExpression, value: str | None) -> bool:
    try:
        number, bound = int(value or ""), int(expression.values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if expression.operator == "Gt" else number < bound
