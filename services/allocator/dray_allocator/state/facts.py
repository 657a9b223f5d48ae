"""The latest fact of every object, what a fact changes, and the look-ups that decisions need.

A fact never replaces a newer one: older revisions are ignored, and so are tombstones of a subject
that the object has left (its pool changed).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import Claim, ClaimSpec, DeviceRequest
from dray.api.devices import DeviceClass, DeviceTaintRule
from dray.api.placement import Placement, policy_placement
from dray.api.pods import TERMINAL_PHASES, GroupKey, Node, Pod, Policy, Pool
from dray.messages.facts import (
    ClaimObserved,
    ClusterObserved,
    DeviceClassObserved,
    Fact,
    GroupObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    Synced,
    TaintRuleObserved,
    Tick,
)
from dray_allocator.devices.percentages import percents, shares_of
from dray_allocator.state.group_index import GroupIndex
from dray_allocator.state.subscriptions import UndecodableFacts

T = TypeVar("T")

GONE_KEPT_S = 600.0
"""How long a deletion is remembered: longer than a log may be behind the facts. Later, an object
without a fact counts as deleted only if the facts are complete."""
_NONE_COUNTED: frozenset[str] = frozenset()
ClaimName = tuple[str, str]
"""Namespace and name."""
_SPECS_KEPT: Final = 1024
_Part = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""A request's selectors and capacity."""
_Key = tuple[tuple[_Part, ...], bytes]
Signature = tuple[bytes, bytes]
"""Equal for claims with equal specs: one part for the requests, one for the rest."""


class PoolChanges(msgspec.Struct, frozen=True, gc=False):
    """What changes for pools and all of their pods."""

    capacity: tuple[str, ...] = ()
    """Pools in which pods that did not fit before may fit, or may have other reasons to wait."""
    is_everywhere: bool = False
    """The same for all pools."""
    unsettled: tuple[str, ...] = ()
    """Pools whose reservations may end."""
    lost: tuple[str, ...] = ()
    """Pools that lost a node."""
    requirements: tuple[str, ...] = ()
    """Pools whose pods have other requirements."""
    are_requirements: bool = False
    """The same for all pools."""
    are_matches: bool = False
    """Whether devices may match other selectors."""


class Changes(msgspec.Struct, frozen=True, gc=False):
    """What a fact or a record changes. It determines what must be computed again."""

    claims: tuple[str, ...] = ()
    """Claims whose allocation, reservation or void changed."""
    pods: tuple[str, ...] = ()
    groups: tuple[GroupKey, ...] = ()
    """PodGroups that changed, or whose members did."""
    ended: tuple[str, ...] = ()
    """Pods that no longer want what is reserved for them."""
    nodes: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    """Pods that were added to the sums of a node, or removed from them."""
    cards: tuple[str, ...] = ()
    """Nodes whose devices changed; an empty name for devices of several nodes."""
    pools: PoolChanges | None = None


NOTHING: Final = Changes()
EVERYWHERE: Final = PoolChanges(is_everywhere=True)
_REQUIREMENTS: Final = PoolChanges(is_everywhere=True, are_requirements=True)


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A node, the revision it was read at, and the pods that its sums contain."""

    node: Node
    revision: int
    counted: frozenset[str]
    also_selected_by: tuple[str, ...] = ()
    """Pools that select the node and don't have it."""


class ClaimSpecInterner:
    """A bounded set of specs with their signatures: equal specs share one object, which saves cache
    misses. A thousand pods of one template have a thousand claims with equal specs."""

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[ClaimSpec, Signature]] = {}
        """By the part that differs most. Equality alone is not enough: 1 equals true."""

    def intern(self, claim: Claim) -> tuple[ClaimSpec, Signature]:
        """The first spec that equals the claim's, and its signature."""
        rest = _rest(claim.spec)
        key = tuple([_part(request) for request in claim.spec.requests]), rest
        kept = self._kept.get(key)
        if kept is not None and kept[0] == claim.spec:
            return kept
        if len(self._kept) >= _SPECS_KEPT:
            self._kept.clear()
        made = self._kept[key] = claim.spec, (_of_requests(claim), rest)
        return made


def _of_requests(claim: Claim) -> bytes:
    """Equal for claims with equal requests."""
    shares = [percents(claim, request.name) for request in claim.spec.requests]
    asked: tuple[object, ...] = (claim.spec.requests, claim.spec.constraints, shares)
    if any(request.first_available for request in claim.spec.requests):
        asked = (*asked, tuple(shares_of(claim)))
    return msgspec.json.encode(asked, order="deterministic")


def _rest(spec: ClaimSpec) -> bytes:
    """The part of a spec in which claims with equal requests may differ."""
    if not spec.config and not spec.unsupported:
        return b""
    return msgspec.json.encode((spec.config, spec.unsupported), order="deterministic")


def _part(request: DeviceRequest) -> _Part:
    return request.selectors, tuple(request.capacity.items())


@dataclass(slots=True)
class Facts:
    """Maps of the latest facts."""

    position: int = 0
    """Sequence of the last fact applied."""
    reached: dict[str, int] = field(default_factory=dict)
    """The same for each pool's claims and pods, and under "" for all other facts."""
    synced: bool = False
    whole: bool = True
    """Whether every fact that the stream held at ``position`` was applied."""
    undecodable: UndecodableFacts = field(default_factory=UndecodableFacts)
    now_unix_s: float = 0.0
    """Time of the first tick plus the steps of all later ticks; 0: no tick was read."""
    is_dated: bool = False
    """Whether a tick was read: without one, records would have no time."""
    claims: dict[str, Claim] = field(default_factory=dict)
    gone_claims: dict[str, float] = field(default_factory=dict)
    """Deleted claims and when; remembered for a while."""
    claim_uids: dict[ClaimName, str] = field(default_factory=dict)
    given_up: dict[str, str] = field(default_factory=dict)
    """By UID, why the last attempt of a claim was given up; such claims are not decided for now."""
    signatures: dict[str, Signature] = field(default_factory=dict)
    """Per claim."""
    pods: dict[str, Pod] = field(default_factory=dict)
    gone_pods: dict[str, float] = field(default_factory=dict)
    pods_of: dict[ClaimName, dict[str, None]] = field(default_factory=dict)
    """Pods that refer to a claim."""
    claims_in: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per pool, the claims that name it."""
    pods_in: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per pool, its pods."""
    nodes: dict[str, NodeFact] = field(default_factory=dict)
    gone_nodes: dict[str, float] = field(default_factory=dict)
    nodes_version: int = 0
    """Increases with every fact of a node."""
    members: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per pool, its nodes."""
    leaving: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per pool, the nodes that leave it and are in no pool yet."""
    in_other_pools: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per pool, nodes that it selects and another pool has."""
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    taint_rules: dict[str, DeviceTaintRule] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    """Extended resources for which kube-scheduler allocates devices of a class."""
    cluster: ClusterObserved | None = None
    """Fields that the API server keeps; None: not known yet."""
    groups: GroupIndex = field(default_factory=GroupIndex)
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

    def apply(self, fact: Fact) -> Changes:
        """Apply a fact of the configuration; return what it changes."""
        put = _PUTS.get(type(fact))
        return NOTHING if put is None else put(self, fact)

    def put_claim(self, fact: ClaimObserved) -> Changes:
        """Apply a claim or its tombstone."""
        claim = fact.claim
        uid, name = claim.uid, (claim.namespace, claim.name)
        known, given_up = self.claims.get(uid), self.given_up.get(uid)
        if not _is_news(self._claim_revisions, uid, fact.revision):
            return NOTHING
        if fact.deleted and known is not None and known.pool != claim.pool:
            return NOTHING
        if fact.moved_to is not None:
            if known is None:
                return Changes((uid,), self.pods_named(name))
            _move(self.claims_in, uid, known.pool, fact.moved_to)
            self.claims[uid] = replace(known, pool=fact.moved_to)
            return Changes((uid,))
        before = None if known is None else known.pool
        _move(self.claims_in, uid, before, None if fact.deleted else claim.pool)
        if fact.deleted:
            self.claims.pop(uid, None)
            self.signatures.pop(uid, None)
            self.given_up.pop(uid, None)
            self.gone_claims[uid] = self.now_unix_s
            if self.claim_uids.get(name) == uid:
                del self.claim_uids[name]
            pods = self.pods_named(name)
            return Changes((uid,), pods, pools=None if given_up is None else EVERYWHERE)
        self.gone_claims.pop(uid, None)
        spec, signature = self._specs.intern(claim)
        self.claims[uid] = claim if claim.spec is spec else replace(claim, spec=spec)
        self.signatures[uid] = signature
        self.claim_uids[name] = uid
        why = fact.given_up.message if fact.given_up is not None else ""
        if why:
            self.given_up[uid] = why
        elif given_up is not None:
            del self.given_up[uid]
        if (why or None) != given_up:  # Reasons may name the claims that have the devices.
            return Changes((uid,), pools=EVERYWHERE)
        return Changes((uid,))

    def put_pod(self, fact: PodObserved) -> Changes:
        """Apply a pod or its tombstone."""
        pod, uid = fact.pod, fact.pod.uid
        known = self.pods.get(uid)
        if not _is_news(self._pod_revisions, uid, fact.revision):
            return NOTHING
        if fact.deleted and known is not None and known.pool != pod.pool:
            return NOTHING
        if fact.moved_to is not None:
            if known is not None:
                self.groups.leave(known)
                _move(self.pods_in, uid, known.pool, fact.moved_to)
                moved = self.pods[uid] = replace(known, pool=fact.moved_to)
                self.groups.join(moved)
        else:
            before = None if known is None else known.pool
            _move(self.pods_in, uid, before, None if fact.deleted else pod.pool)
            if known is not None:
                self._refer(known, False)
                self.groups.leave(known)
            if fact.deleted:
                self.pods.pop(uid, None)
                self.gone_pods[uid] = self.now_unix_s
            else:
                self.gone_pods.pop(uid, None)
                self.pods[uid] = pod
                self._refer(pod, True)
                self.groups.join(pod)
        ended = () if self.pod_wants(uid) else (uid,)
        groups = _groups_of(known, pod)
        return Changes(self._without_pool(pod), (uid,), groups, ended)

    def _without_pool(self, pod: Pod) -> tuple[str, ...]:
        """The pod's claims that name no pool: their pool is that of the pods that refer to them."""
        found: tuple[str, ...] = ()
        for reference in pod.claims:
            uid = self.claim_uids.get((pod.namespace, reference.claim), "")
            claim = self.claims.get(uid)
            if claim is not None and not claim.pool:
                found = (*found, uid)
        return found

    def forget_pools(self, keep: Callable[[str], bool]) -> tuple[list[str], list[str]]:
        """Forget the claims and pods of all pools except those to keep; return their UIDs. They
        are not deleted."""
        self.undecodable.forget_pools(keep)
        claims = [claim for claim in self.claims.values() if not keep(claim.pool)]
        pods = [pod for pod in self.pods.values() if not keep(pod.pool)]
        for claim in claims:
            _move(self.claims_in, claim.uid, claim.pool, None)
            del self.claims[claim.uid], self.signatures[claim.uid]
            self.given_up.pop(claim.uid, None)
            self._claim_revisions.pop(claim.uid, None)
            if self.claim_uids.get((claim.namespace, claim.name)) == claim.uid:
                del self.claim_uids[claim.namespace, claim.name]
        for pod in pods:
            _move(self.pods_in, pod.uid, pod.pool, None)
            del self.pods[pod.uid]
            self._pod_revisions.pop(pod.uid, None)
            self._refer(pod, False)
            self.groups.leave(pod)
        return [claim.uid for claim in claims], [pod.uid for pod in pods]

    def put_node(self, fact: NodeObserved) -> Changes:
        """Apply a node or its tombstone."""
        node = fact.node
        known = self.nodes.get(node.name)
        if not _is_news(self._node_revisions, node.name, fact.revision):
            return NOTHING
        self.nodes_version += 1
        if known is None or fact.deleted or _membership(known.node) != _membership(node):
            self._served.clear()
        if known is not None:
            self.members[known.node.pool].pop(node.name, None)
            _move(self.leaving, node.name, _leaves(known.node), None)
            for pool in known.also_selected_by:
                self.in_other_pools[pool].pop(node.name, None)
        self.gone_nodes.pop(node.name, None)
        if fact.deleted:
            self.nodes.pop(node.name, None)
            self.gone_nodes[node.name] = self.now_unix_s
            return _changes_of_node(node.name, known, None)
        counted = frozenset(fact.counted_pods) if fact.counted_pods else _NONE_COUNTED
        also = fact.also_selected_by
        made = self.nodes[node.name] = NodeFact(node, fact.revision, counted, also)
        self.members.setdefault(node.pool, {})[node.name] = None
        _move(self.leaving, node.name, None, _leaves(node))
        for pool in also:
            self.in_other_pools.setdefault(pool, {})[node.name] = None
        return _changes_of_node(node.name, known, made)

    def put_class(self, fact: DeviceClassObserved) -> Changes:
        """Apply a DeviceClass."""
        _keep(self.classes, fact.device_class.name, fact.device_class, fact.deleted)
        stand_for = (one.stands_for for one in self.classes.values())
        self.given = frozenset(name for some in stand_for for name in some)
        return Changes(
            pools=PoolChanges(is_everywhere=True, are_requirements=True, are_matches=True)
        )

    def put_taint_rule(self, fact: TaintRuleObserved) -> None:
        """Apply a DeviceTaintRule."""
        _keep(self.taint_rules, fact.rule.name, fact.rule, fact.deleted)

    def put_pool(self, fact: PoolObserved) -> Changes:
        """Apply a GPUPool."""
        name = fact.pool.name
        _keep(self.pools, name, fact.pool, fact.deleted)
        return Changes(
            pods=tuple(self.pods_in.get(name, ())),
            pools=PoolChanges(capacity=(name,), requirements=(name,)),
        )

    def put_policy(self, fact: PolicyObserved) -> Changes:
        """Apply the policy of pools."""
        _keep(self.policies, fact.policy.name, fact.policy, fact.deleted)
        return Changes(pools=_REQUIREMENTS)

    def put_group(self, fact: GroupObserved) -> Changes:
        """Apply a PodGroup or its tombstone."""
        group = fact.group
        if not self.groups.put(group, fact.revision, deleted=fact.deleted):
            return NOTHING
        return Changes(groups=(group.key,))

    def put_synced(self, fact: Synced) -> Changes:
        """Note whether all facts are published."""
        self.synced = not fact.deleted
        return NOTHING

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
        return pod is not None and not pod.deleting and pod.phase not in TERMINAL_PHASES

    def tick(self, fact: Tick) -> tuple[list[str], list[str], list[str]]:
        """Advance the time and forget old deletions; return the forgotten claims, pods and nodes.

        A tick advances the time by its distance from the previous tick, but never backwards, and
        not by more than its bound times the number of ticks: itself and those that this reader
        missed.
        """
        if self._last_tick is None:
            self._date_deletions(fact.now_unix_s)
            self.now_unix_s = fact.now_unix_s
        else:
            step_s = fact.now_unix_s - self._last_tick.now_unix_s
            ticks = max(1, fact.revision - self._last_tick.revision)
            self.now_unix_s += min(max(0.0, step_s), ticks * fact.most_step_s)
        self._last_tick, self.is_dated = fact, True
        return (
            self._forget_gone(self.gone_claims, self._claim_revisions),
            self._forget_gone(self.gone_pods, self._pod_revisions),
            self._forget_gone(self.gone_nodes, self._node_revisions),
        )

    def _forget_gone(self, gone: dict[str, float], revisions: dict[str, int]) -> list[str]:
        oldest = takewhile(lambda one: self.now_unix_s - one[1] >= GONE_KEPT_S, gone.items())
        forgotten = [uid for uid, _ in oldest]
        for uid in forgotten:
            del gone[uid]
            revisions.pop(uid, None)
        return forgotten

    def age_s(self, unix_s: float) -> float:
        """Seconds between a moment of the facts' time and now.

        A record can be ahead of the facts only if a leader of an earlier release had a wrong clock
        when this replica, or the record's writer, read its first tick. The record then counts as
        old: its timeout is early.
        """
        return abs(self.now_unix_s - unix_s)

    def _date_deletions(self, now_unix_s: float) -> None:
        """Date the tombstones that were read before the first tick with the time of that tick."""
        for gone in (self.gone_claims, self.gone_pods, self.gone_nodes):
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

    def objects_of(self, pool: str) -> Changes:
        """The pool's pods, the claims that name it, and those that its pods refer to."""
        pods, claims = self.pods_in.get(pool, {}), dict(self.claims_in.get(pool, {}))
        for uid in pods:
            pod = self.pods[uid]
            found = ((pod.namespace, reference.claim) for reference in pod.claims)
            claims |= {self.claim_uids[name]: None for name in found if name in self.claim_uids}
        return Changes(tuple(claims), tuple(pods))

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


def _move(
    index: dict[str, dict[str, None]], uid: str, before: str | None, pool: str | None
) -> None:
    """Move an object from one pool to another; None: it was in no pool, or is in none now."""
    if before == pool:
        return
    if before is not None:
        del index[before][uid]
        if not index[before]:
            del index[before]
    if pool is not None:
        index.setdefault(pool, {})[uid] = None


def _leaves(node: Node) -> str | None:
    """The pool that a node leaves, while it is in no pool."""
    return node.leaving if node.leaving and not node.pool else None


def _membership(node: Node) -> tuple[str, str]:
    return node.pool, node.owner


def _keep(known: dict[str, T], name: str, value: T, deleted: bool) -> None:
    if deleted:
        known.pop(name, None)
    else:
        known[name] = value


def _changes_of_node(name: str, before: NodeFact | None, after: NodeFact | None) -> Changes:
    """What a node's fact changes. Lost capacity also counts, because reasons change."""
    pools = dict.fromkeys(
        pool
        for fact in (before, after)
        if fact is not None
        for pool in (fact.node.pool, fact.node.leaving if fact is after else "")
        if pool
    )
    elsewhere = _also(before) ^ _also(after)
    capacity = [pool for pool in sorted(elsewhere) if pool not in pools]
    if after is None or _may_fit_more(before, after):
        capacity += pools
    is_lost = before is not None and before.node.ready and (after is None or not after.node.ready)
    return Changes(
        nodes=(name,),
        # Includes pods that left the sums: a reader that folds their decision now assumes them
        # until they end.
        counted=tuple(sorted(_counted(before) ^ _counted(after))),
        pools=PoolChanges(
            tuple(capacity),
            unsettled=tuple(pools) if _may_end(before, after) else (),
            lost=tuple(pools) if is_lost else (),
        ),
    )


def _may_end(before: NodeFact | None, after: NodeFact | None) -> bool:
    """Whether reservations on a node may end, or the node may leave its pool."""
    if before is None or after is None or after.node.leaving:
        return True
    return _membership(before.node) != _membership(after.node)


def _counted(fact: NodeFact | None) -> frozenset[str]:
    return fact.counted if fact else _NONE_COUNTED


def _also(fact: NodeFact | None) -> frozenset[str]:
    return frozenset(fact.also_selected_by) if fact else frozenset()


def _may_fit_more(before: NodeFact | None, after: NodeFact) -> bool:
    """Whether a change of a node may free capacity: any change except a growing sum of requests."""
    if before is None:
        return True
    old, new = before.node, after.node
    frees = (
        new.used_cpu_milli < old.used_cpu_milli
        or new.used_memory_bytes < old.used_memory_bytes
        or new.used_pods < old.used_pods
        or any(new.used_resources.get(name, 0) < used for name, used in old.used_resources.items())
        or any(port not in new.used_ports for port in old.used_ports)
    )
    return frees or _described(old) != _described(new)


def _described(node: Node) -> tuple[object, ...]:
    return (
        node.pool,
        node.owner,
        node.dedicated,
        node.cpu_milli,
        node.memory_bytes,
        node.pods,
        node.resources,
        node.labels,
        node.taints,
        node.unschedulable,
        node.ready,
    )


def _groups_of(before: Pod | None, after: Pod) -> tuple[GroupKey, ...]:
    was_in = None if before is None else before.member
    if after.member is None:
        return () if was_in is None else (was_in.group,)
    group = after.member.group
    return (group,) if was_in is None or was_in.group == group else (was_in.group, group)


_PUTS: Final[Mapping[type[Fact], Callable[[Facts, Any], Changes]]] = {
    DeviceClassObserved: Facts.put_class,
    PoolObserved: Facts.put_pool,
    PolicyObserved: Facts.put_policy,
    GroupObserved: Facts.put_group,
    Synced: Facts.put_synced,
}
"""By type of fact, the method that applies it, for facts that change nothing outside ``Facts``."""
