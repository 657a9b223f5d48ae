"""What the stand-in knows of the cluster. Pure: fed with objects, asked for nodes and claims."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dray.api.pods import HostPort, Node, NodeExpression, NodeTerm, Pod
from dray.kube.convert import node_from, pod_from
from dray.kube.ports import Object
from dray_sandbox.scheduler.readiness import Readiness, readiness_of

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class CachedClaim:
    """A ResourceClaim as far as placing its pod depends on it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str = ""
    """The pod that a generated claim belongs to, or empty."""
    allocated: bool = False
    stamped: bool = False
    """Whether the allocation carries an ``allocationTimestamp``."""
    node_terms: tuple[NodeTerm, ...] | None = None
    """The allocation's node selector; None: any node."""
    reserved_for: tuple[str, ...] = ()
    deleting: bool = False
    readiness: Readiness = field(default_factory=Readiness)
    """Of the devices that are allocated."""


def claim_seen(obj: Object) -> CachedClaim:
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
    """What the pods on a node sum to."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    others: Counter[str] = field(default_factory=Counter)
    """Of the other resources."""
    ports: Counter[HostPort] = field(default_factory=Counter)

    def add(self, pod: Pod, sign: int) -> None:
        """Count a pod in (1) or out (-1)."""
        self.cpu_milli += sign * pod.needs.cpu_milli
        self.memory_bytes += sign * pod.needs.memory_bytes
        self.pods += sign
        for name, amount in pod.needs.resources.items():
            self.others[name] += sign * amount
        for port in pod.needs.ports:
            self.ports[port] += sign


@dataclass(slots=True)
class SchedulerCache:
    """Nodes, pods and claims as last seen, with what is assumed of pods being bound."""

    nodes: dict[str, Node] = field(default_factory=dict)
    claims: dict[tuple[str, str], CachedClaim] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    """By uid."""
    usage: dict[str, NodeUsage] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    """Pods being bound, and to which node."""

    def see_node(self, obj: Object) -> bool:
        """A node was added or changed; whether that could make a pod fit."""
        node = node_from(obj)
        before = self.nodes.get(node.name)
        self.nodes[node.name] = node
        return before != node

    def forget_node(self, name: str) -> None:
        """A node is gone."""
        self.nodes.pop(name, None)

    def see_claim(self, obj: Object) -> CachedClaim | None:
        """A claim was added or changed; what it is now if that matters to its pods."""
        claim = claim_seen(obj)
        before = self.claims.get((claim.namespace, claim.name))
        self.claims[claim.namespace, claim.name] = claim
        same = before is not None and claim == replace(
            before, resource_version=claim.resource_version
        )
        return None if same else claim

    def forget_claim(self, obj: Object) -> None:
        """A claim is gone."""
        self.claims.pop((obj["metadata"]["namespace"], obj["metadata"]["name"]), None)

    def see_pod(self, obj: Object) -> tuple[Pod | None, Pod]:
        """A pod was added or changed: as it was before, and as it is."""
        pod = pod_from(obj)
        before = self.pods.get(pod.uid)
        if before is not None:
            self._count(before, -1)
        self.pods[pod.uid] = pod
        if pod.node:
            self.assumed.pop(pod.uid, None)
        self._count(pod, 1)
        return before, pod

    def forget_pod(self, uid: str) -> None:
        """A pod is gone."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
        self.assumed.pop(uid, None)

    def assume(self, pod: Pod, node: str) -> None:
        """Count the pod on ``node`` from now on: it is being bound."""
        self._count(pod, -1)
        self.assumed[pod.uid] = node
        self._count(pod, 1)

    def withdraw(self, uid: str) -> None:
        """Binding failed: the pod counts nowhere again."""
        pod = self.pods.get(uid)
        if pod is None or uid not in self.assumed:
            return
        self._count(pod, -1)
        del self.assumed[uid]
        self._count(pod, 1)

    def claims_of(self, pod: Pod) -> list[CachedClaim]:
        """The claims of a pod that there are."""
        keys = ((pod.namespace, one.claim) for one in pod.claims if one.claim)
        return [self.claims[key] for key in keys if key in self.claims]

    def users_of(self, claim: CachedClaim) -> Iterator[Pod]:
        """Pods that reference the claim."""
        for pod in self.pods.values():
            if pod.namespace == claim.namespace and any(c.claim == claim.name for c in pod.claims):
                yield pod

    def used(self, node: str) -> NodeUsage:
        """What the node's pods sum to."""
        return self.usage.setdefault(node, NodeUsage())

    def _count(self, pod: Pod, sign: int) -> None:
        node = pod.node or self.assumed.get(pod.uid, "")
        if node and pod.phase not in _OVER:
            self.used(node).add(pod, sign)


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
