"""The stand-in scheduler's cache of nodes, pods and claims. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dray.api.pods import TERMINAL_PHASES, HostPort, Node, NodeExpression, NodeTerm, Pod
from dray.kube.convert import node_from, pod_from
from dray.kube.ports import Object
from dray_sandbox.scheduler.readiness import Readiness, readiness_of


@dataclass(frozen=True, slots=True)
class CachedClaim:
    """The parts of a ResourceClaim that scheduling needs."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str = ""
    """The uid of a generated claim's pod, or empty."""
    allocated: bool = False
    stamped: bool = False
    """Whether the allocation has an ``allocationTimestamp``."""
    node_terms: tuple[NodeTerm, ...] | None = None
    """The allocation's node selector; None: any node."""
    reserved_for: tuple[str, ...] = ()
    deleting: bool = False
    readiness: Readiness = field(default_factory=Readiness)
    """Whether the allocated devices are ready."""


def cached_claim(obj: Object) -> CachedClaim:
    """The claim in a ResourceClaim object."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    allocation = status.get("allocation") or {}
    owners = metadata.get("ownerReferences") or ()
    return CachedClaim(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        owner_uid=next((o["uid"] for o in owners if o.get("controller")), ""),
        allocated=bool(allocation),
        stamped=bool(allocation.get("allocationTimestamp")),
        node_terms=_terms(allocation.get("nodeSelector")),
        reserved_for=tuple(r["uid"] for r in status.get("reservedFor") or ()),
        deleting="deletionTimestamp" in metadata,
        readiness=readiness_of(status),
    )


@dataclass(slots=True)
class NodeUsage:
    """The sum of the pods on a node."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    others: Counter[str] = field(default_factory=Counter)
    """Amounts of other resources."""
    ports: Counter[HostPort] = field(default_factory=Counter)

    def add(self, pod: Pod, sign: int) -> None:
        """Add a pod (1) or subtract it (-1)."""
        self.cpu_milli += sign * pod.needs.cpu_milli
        self.memory_bytes += sign * pod.needs.memory_bytes
        self.pods += sign
        for name, amount in pod.needs.resources.items():
            self.others[name] += sign * amount
        for port in pod.needs.ports:
            self.ports[port] += sign


@dataclass(slots=True)
class SchedulerCache:
    """The newest known nodes, pods and claims, with assumed pods."""

    nodes: dict[str, Node] = field(default_factory=dict)
    claims: dict[tuple[str, str], CachedClaim] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    """By uid."""
    usage: dict[str, NodeUsage] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    """Nodes of pods that are being bound, by pod uid."""

    def update_node(self, obj: Object) -> bool:
        """Apply an added or changed node; returns whether that could make a pod schedulable."""
        node = node_from(obj)
        before = self.nodes.get(node.name)
        self.nodes[node.name] = node
        return before != node

    def remove_node(self, name: str) -> None:
        """Apply a deleted node."""
        self.nodes.pop(name, None)

    def update_claim(self, obj: Object) -> CachedClaim | None:
        """Apply an added or changed claim; returns it if its pods may be affected, else None."""
        claim = cached_claim(obj)
        before = self.claims.get((claim.namespace, claim.name))
        self.claims[claim.namespace, claim.name] = claim
        same = before is not None and claim == replace(
            before, resource_version=claim.resource_version
        )
        return None if same else claim

    def remove_claim(self, obj: Object) -> None:
        """Apply a deleted claim."""
        self.claims.pop((obj["metadata"]["namespace"], obj["metadata"]["name"]), None)

    def update_pod(self, obj: Object) -> tuple[Pod | None, Pod]:
        """Apply an added or changed pod; returns its former and its new state."""
        pod = pod_from(obj)
        before = self.pods.get(pod.uid)
        if before is not None:
            self._count(before, -1)
        self.pods[pod.uid] = pod
        if pod.node:
            self.assumed.pop(pod.uid, None)
        self._count(pod, 1)
        return before, pod

    def remove_pod(self, uid: str) -> None:
        """Apply a deleted pod."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
        self.assumed.pop(uid, None)

    def assume(self, pod: Pod, node: str) -> None:
        """Count the pod on ``node``, to which it is being bound."""
        self._count(pod, -1)
        self.assumed[pod.uid] = node
        self._count(pod, 1)

    def forget_assumed(self, uid: str) -> None:
        """Stop counting an assumed pod whose binding failed."""
        pod = self.pods.get(uid)
        if pod is None or uid not in self.assumed:
            return
        self._count(pod, -1)
        del self.assumed[uid]
        self._count(pod, 1)

    def claims_of(self, pod: Pod) -> list[CachedClaim]:
        """The existing claims of a pod."""
        keys = ((pod.namespace, one.claim) for one in pod.claims if one.claim)
        return [self.claims[key] for key in keys if key in self.claims]

    def users_of(self, claim: CachedClaim) -> Iterator[Pod]:
        """Pods that reference the claim."""
        for pod in self.pods.values():
            if pod.namespace == claim.namespace and any(c.claim == claim.name for c in pod.claims):
                yield pod

    def usage_of(self, node: str) -> NodeUsage:
        """The sum of the node's pods."""
        return self.usage.setdefault(node, NodeUsage())

    def _count(self, pod: Pod, sign: int) -> None:
        node = pod.node or self.assumed.get(pod.uid, "")
        if node and pod.phase not in TERMINAL_PHASES:
            self.usage_of(node).add(pod, sign)


def _terms(selector: Object | None) -> tuple[NodeTerm, ...] | None:
    if not selector:
        return None
    return tuple(
        (
            *(_expression(entry, False) for entry in term.get("matchExpressions") or ()),
            *(_expression(entry, True) for entry in term.get("matchFields") or ()),
        )
        for term in selector.get("nodeSelectorTerms") or ()
    )


def _expression(entry: Object, is_field: bool) -> NodeExpression:
    return NodeExpression(
        entry["key"], entry["operator"], tuple(entry.get("values") or ()), is_field
    )
