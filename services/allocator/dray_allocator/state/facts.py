"""The latest fact of every object, and the look-ups that decisions need.

A fact never replaces a newer one: older revisions are ignored, and so are tombstones of a subject
that the object has left (its pool changed).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from dray.api import names
from dray.api.claims import Claim
from dray.api.devices import DeviceClass, DeviceTaintRule
from dray.api.placement import Placement, policy_placement
from dray.api.pods import Node, Pod, Policy, Pool
from dray.messages.facts import ClaimObserved, ClusterObserved, NodeObserved, PodObserved, Tick
from dray_allocator.state.claim_specs import ClaimSpecInterner
from dray_allocator.values.undecodable import UndecodableFacts

GONE_KEPT_S = 600.0
"""How long a deletion is remembered: longer than a log may be behind the facts. Later, an object
without a fact counts as deleted only if the facts are complete."""
_FINISHED = ("Succeeded", "Failed")
_NONE_COUNTED: frozenset[str] = frozenset()
ClaimName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A node, the revision it was read at, and the pods that its sums contain."""

    node: Node
    revision: int
    counted: frozenset[str]
    also_selected_by: tuple[str, ...] = ()
    """Pools that select the node and don't have it."""


@dataclass(slots=True)
class Facts:
    """Maps of the latest facts."""

    position: int = 0
    """Sequence of the last fact applied."""
    reached: dict[str, int] = field(default_factory=dict)
    """The same, of each pool's claims and pods; under "" of all other facts."""
    synced: bool = False
    whole: bool = True
    """Whether every fact that the stream held at ``position`` was applied."""
    undecodable: UndecodableFacts = field(default_factory=UndecodableFacts)
    now_unix_s: float = 0.0
    """Time of the first tick plus the steps of all later ticks; 0: no tick was read."""
    claims: dict[str, Claim] = field(default_factory=dict)
    gone_claims: dict[str, float] = field(default_factory=dict)
    """Deleted claims and when; remembered for a while."""
    claim_uids: dict[ClaimName, str] = field(default_factory=dict)
    given_up: dict[str, str] = field(default_factory=dict)
    """By UID, why the last attempt of a claim was given up; such claims are not decided for now."""
    signatures: dict[str, bytes] = field(default_factory=dict)
    """Per claim, equal for equal specs."""
    pods: dict[str, Pod] = field(default_factory=dict)
    gone_pods: dict[str, float] = field(default_factory=dict)
    pods_of: dict[ClaimName, dict[str, None]] = field(default_factory=dict)
    """Pods that refer to a claim."""
    nodes: dict[str, NodeFact] = field(default_factory=dict)
    nodes_version: int = 0
    """Increases with every fact of a node."""
    members: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per pool, its nodes."""
    in_other_pools: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per pool, nodes that it selects and another pool has."""
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    taint_rules: dict[str, DeviceTaintRule] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    """Extended resources for which kube-scheduler allocates devices of a class."""
    cluster: ClusterObserved | None = None
    """Fields that the API server keeps; None: not known yet."""
    pools: dict[str, Pool] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    _served: dict[str, list[str]] = field(default_factory=dict)
    _placements: dict[str, tuple[Policy, Placement]] = field(default_factory=dict)
    """Parsed placements of policies."""
    _specs: ClaimSpecInterner = field(default_factory=ClaimSpecInterner)
    _claim_revisions: dict[str, int] = field(default_factory=dict)
    _pod_revisions: dict[str, int] = field(default_factory=dict)
    _node_revisions: dict[str, int] = field(default_factory=dict)
    _last_tick: Tick | None = None

    def put_claim(self, fact: ClaimObserved) -> bool:
        """Apply a claim or its tombstone; False if it is old."""
        claim = fact.claim
        known = self.claims.get(claim.uid)
        if not _is_news(self._claim_revisions, claim.uid, fact.revision):
            return False
        if fact.deleted and known is not None and known.pool != claim.pool:
            return False
        if fact.moved_to is not None:
            if known is not None:
                self.claims[claim.uid] = replace(known, pool=fact.moved_to)
            return True
        name = (claim.namespace, claim.name)
        self.given_up.pop(claim.uid, None)
        if fact.deleted:
            self.claims.pop(claim.uid, None)
            self.signatures.pop(claim.uid, None)
            self.gone_claims[claim.uid] = self.now_unix_s
            if self.claim_uids.get(name) == claim.uid:
                del self.claim_uids[name]
            return True
        self.gone_claims.pop(claim.uid, None)
        spec, signature = self._specs.same(claim)
        self.claims[claim.uid] = claim if claim.spec is spec else replace(claim, spec=spec)
        self.signatures[claim.uid] = signature
        self.claim_uids[name] = claim.uid
        if fact.given_up is not None and fact.given_up.message:
            self.given_up[claim.uid] = fact.given_up.message
        return True

    def put_pod(self, fact: PodObserved) -> bool:
        """Apply a pod or its tombstone; False if it is old."""
        pod = fact.pod
        known = self.pods.get(pod.uid)
        if not _is_news(self._pod_revisions, pod.uid, fact.revision):
            return False
        if fact.deleted and known is not None and known.pool != pod.pool:
            return False
        if fact.moved_to is not None:
            if known is not None:
                self.pods[pod.uid] = replace(known, pool=fact.moved_to)
            return True
        if known is not None:
            self._refer(known, False)
        if fact.deleted:
            self.pods.pop(pod.uid, None)
            self.gone_pods[pod.uid] = self.now_unix_s
        else:
            self.gone_pods.pop(pod.uid, None)
            self.pods[pod.uid] = pod
            self._refer(pod, True)
        return True

    def forget_pools(self, keep: Callable[[str], bool]) -> tuple[list[str], list[str]]:
        """Forget the claims and pods of all pools except those to keep; return their UIDs. They
        are not deleted."""
        self.undecodable.forget_pools(keep)
        claims = [claim for claim in self.claims.values() if not keep(claim.pool)]
        pods = [pod for pod in self.pods.values() if not keep(pod.pool)]
        for claim in claims:
            del self.claims[claim.uid], self.signatures[claim.uid]
            self.given_up.pop(claim.uid, None)
            self._claim_revisions.pop(claim.uid, None)
            if self.claim_uids.get((claim.namespace, claim.name)) == claim.uid:
                del self.claim_uids[claim.namespace, claim.name]
        for pod in pods:
            del self.pods[pod.uid]
            self._pod_revisions.pop(pod.uid, None)
            self._refer(pod, False)
        return [claim.uid for claim in claims], [pod.uid for pod in pods]

    def put_node(self, fact: NodeObserved) -> NodeFact | None:
        """Apply a node or its tombstone; return its earlier fact."""
        node = fact.node
        known = self.nodes.get(node.name)
        if not _is_news(self._node_revisions, node.name, fact.revision):
            return known
        self.nodes_version += 1
        if known is None or fact.deleted or _membership(known.node) != _membership(node):
            self._served.clear()
        if known is not None:
            self.members[known.node.pool].pop(node.name, None)
            for pool in known.also_selected_by:
                self.in_other_pools[pool].pop(node.name, None)
        if fact.deleted:
            self.nodes.pop(node.name, None)
            return known
        counted = frozenset(fact.counted_pods) if fact.counted_pods else _NONE_COUNTED
        also = fact.also_selected_by
        self.nodes[node.name] = NodeFact(node, fact.revision, counted, also)
        self.members.setdefault(node.pool, {})[node.name] = None
        for pool in also:
            self.in_other_pools.setdefault(pool, {})[node.name] = None
        return known

    def served_nodes(self, pool: str) -> list[str]:
        """The pool's nodes on which dray allocates, by name. Not to be changed."""
        served = self._served.get(pool)
        if served is None:
            members = sorted(self.members.get(pool, ()))
            served = [name for name in members if self.nodes[name].node.owner == "dray"]
            self._served[pool] = served
        return served

    def serves(self, node: str, pool: str) -> bool:
        """Whether dray allocates on a node for a pool."""
        fact = self.nodes.get(node)
        return fact is not None and fact.node.pool == pool and fact.node.owner == "dray"

    def pool_served_by(self, node: str) -> str:
        """The pool for which dray allocates on a node; empty for none."""
        fact = self.nodes.get(node)
        return fact.node.pool if fact is not None and fact.node.owner == "dray" else ""

    def pod_wants(self, pod_uid: str) -> bool:
        """Whether the pod exists and is neither ending nor ended."""
        pod = self.pods.get(pod_uid)
        return pod is not None and not pod.deleting and pod.phase not in _FINISHED

    def tick(self, fact: Tick) -> None:
        """Advance the time and forget old deletions.

        A tick advances the time by its distance from the tick before, but never backwards, and at
        most by its bound for itself and for each tick that this reader missed.
        """
        if self._last_tick is None:
            self._date_deletions(fact.now_unix_s)
            self.now_unix_s = fact.now_unix_s
        else:
            step_s = fact.now_unix_s - self._last_tick.now_unix_s
            ticks = max(1, fact.revision - self._last_tick.revision)
            self.now_unix_s += min(max(0.0, step_s), ticks * fact.most_step_s)
        self._last_tick = fact
        for gone, revisions in (
            (self.gone_claims, self._claim_revisions),
            (self.gone_pods, self._pod_revisions),
        ):
            while gone:
                uid = next(iter(gone))
                if self.now_unix_s - gone[uid] < GONE_KEPT_S:
                    break
                del gone[uid]
                revisions.pop(uid, None)

    def age_s(self, unix_s: float) -> float:
        """Seconds between a moment of the facts' time and now.

        A record can be ahead of the facts only if a leader of an earlier release had a wrong clock
        when this replica, or the record's writer, read its first tick. The record then counts as
        old: its timeout is early.
        """
        return abs(self.now_unix_s - unix_s)

    def _date_deletions(self, now_unix_s: float) -> None:
        """Date tombstones that were read before the first tick: they are as old as the reader."""
        for gone in (self.gone_claims, self.gone_pods):
            gone.update(dict.fromkeys(gone, now_unix_s))

    def placement(self, pool: str) -> tuple[Placement, int]:
        """The pool's placement and the version of its policy."""
        known = self.pools.get(pool)
        policy = self.policies.get(known.template) if known else None
        if policy is None:
            return _DEFAULT, 0
        read = self._placements.get(policy.name)
        if read is None or read[0] is not policy:
            read = self._placements[policy.name] = (policy, policy_placement(policy))
        return read[1], policy.version

    @property
    def is_dated(self) -> bool:
        """Whether a tick was read: without one, records would have no time."""
        return self._last_tick is not None

    @property
    def list_attributes(self) -> bool:
        """Whether the API server keeps list attributes."""
        return self.cluster is not None and self.cluster.list_attributes

    @property
    def binding_conditions(self) -> bool:
        """Whether dray waits for binding conditions of devices: the API server keeps them and
        the allocation's time, and the claim-controller knows them."""
        cluster = self.cluster
        return (
            cluster is not None
            and cluster.binding_conditions
            and cluster.allocation_timestamp
            and cluster.waits_for_devices
        )

    def pods_named(self, claim: ClaimName) -> tuple[str, ...]:
        """The pods that refer to a claim."""
        return tuple(self.pods_of.get(claim, ()))

    def claims_of(self, pod: Pod) -> tuple[Claim, ...] | None:
        """The pod's claims that concern dray, or None while one of them is missing or ends."""
        claims: dict[str, Claim] = {}
        for reference in pod.claims:
            uid = self.claim_uids.get((pod.namespace, reference.claim), "")
            claim = self.claims.get(uid)
            if claim is None:
                ours = reference.reference == names.CLAIM_REFERENCE
                if ours or not reference.claim or pod.scheduler == names.DRAY_SCHEDULER:
                    return None
                continue
            if claim.deleting or claim.pod_uid not in ("", pod.uid):
                return None
            claims[uid] = claim
        return tuple(claims.values())

    def pool_of(self, claim: Claim) -> str:
        """The pool of a claim: its own, else that of a pod that refers to it."""
        if claim.pool:
            return claim.pool
        for pod_uid in self.pods_of.get((claim.namespace, claim.name), ()):
            return self.pods[pod_uid].pool
        return ""

    def _refer(self, pod: Pod, refers: bool) -> None:
        for reference in pod.claims:
            if not reference.claim:
                continue
            pods = self.pods_of.setdefault((pod.namespace, reference.claim), {})
            if refers:
                pods[pod.uid] = None
            else:
                pods.pop(pod.uid, None)
                if not pods:
                    del self.pods_of[pod.namespace, reference.claim]


def _is_news(revisions: dict[str, int], key: str, revision: int) -> bool:
    if revision < revisions.get(key, 0):
        return False
    revisions[key] = revision
    return True


_DEFAULT = policy_placement(None)


def _membership(node: Node) -> tuple[str, str]:
    return node.pool, node.owner
