"""The allocator's state: facts and logs as far as they are read, and what follows from both.

A fact or a record is applied, which gives its ``Changes``; ``requeue`` then computes again what
follows from the changed objects: use of devices, assumed pods, and the queues. It may be called at
any time and any number of times: the state is a function of facts and records, not of the order in
which they were read.

A replica reads the pools that it serves and those that they depend on (docs/adr/0026). It decides
in a pool only when it has read everything that the records of that pool were based on.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Protocol

import msgspec

from dray.api import names
from dray.api.claims import Allocation, Claim
from dray.api.devices import DeviceId
from dray.api.pods import GroupKey, Pod
from dray.cel.environment import Environment, Mode, environment_of_server
from dray.messages.base import subject_of
from dray.messages.decisions import PodDecision
from dray.messages.facts import (
    ClaimObserved,
    ClusterObserved,
    DomainObserved,
    Fact,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    SliceObserved,
    TaintRuleObserved,
    Tick,
)
from dray_allocator.devices.published_devices import Card, PublishedDevices
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.devices.usage import FULL_NODE, AssumedPods, AssumedResources, UsageLedger
from dray_allocator.nodes.table import Source
from dray_allocator.nodes.tables import NodeTables, Pools
from dray_allocator.scoring.fragmentation.score import NodeWorths
from dray_allocator.state.domain import (
    Reservation,
    SchedulingDomain,
    Stage,
    counts,
    executed_unknown,
    held_node_uid,
    merely_reserved,
)
from dray_allocator.state.domain_index import DomainIndex
from dray_allocator.state.facts import EVERYWHERE, NOTHING, Changes, Facts, PoolChanges
from dray_allocator.state.kept_scores import KeptScores
from dray_allocator.state.pending_groups import PendingGroups
from dray_allocator.state.subscriptions import PoolDependencies, Subscriptions
from dray_allocator.values.events import Effect, Follow, Unfollow
from dray_allocator.values.options import AllocatorOptions
from dray_allocator.values.undecodable import UndecodableFact

_NO_PODS: Final[Mapping[str, None]] = {}
_CACHES = ("tables", "patterns")


class RequirementsCache(Protocol):
    """A cache of what claims and pods require."""

    def forget(self) -> None:
        """Forget everything: a class, a pool or a policy changed."""


class Suspect(msgspec.Struct, frozen=True, gc=False):
    """Why a device is to be checked."""

    claim_uid: str
    """The claim that uses more of it than before."""
    since: int
    """``AllocatorState.ticks`` when the device began to be used more."""


class BusyDomains:
    """Names of domains in the order of their places; those behind a place are found without a look
    at the others."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        """All names; none may be added or dropped meanwhile."""
        return iter(self._places)

    def add(self, domain: SchedulingDomain) -> None:
        """Add a domain, or move it to its place."""
        if self._places.get(domain.name) != domain.place:
            self.drop(domain.name)
            self._places[domain.name] = domain.place
            insort(self._order, (domain.place, domain.name))

    def drop(self, name: str) -> None:
        """Remove a domain, if it is there."""
        place = self._places.pop(name, None)
        if place is not None:
            del self._order[bisect_left(self._order, (place, name))]

    def after(self, place: int) -> Iterator[str]:
        """The domains behind a place; domains may be added or dropped meanwhile."""
        while (at := bisect_left(self._order, (place + 1, ""))) < len(self._order):
            place, name = self._order[at]
            yield name


@dataclass(slots=True)
class AllocatorState:
    """Everything the decisions depend on, and what is cached of it."""

    options: AllocatorOptions = field(default_factory=AllocatorOptions)
    facts: Facts = field(default_factory=Facts)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    """The pools whose claims, pods and logs are read."""
    pool_dependencies: PoolDependencies = field(default_factory=PoolDependencies)
    published: PublishedDevices = field(init=False)
    domains: dict[str, SchedulingDomain] = field(default_factory=dict)
    """Pools that are subscribed to."""
    unread_domains: dict[str, SchedulingDomain] = field(default_factory=dict)
    """All other pools: only their epoch is known."""
    stopwatch: Callable[[], int] = int
    """Microseconds; for people, never for decisions. ``int`` gives 0, for replays."""
    tables: NodeTables = field(init=False)
    device_usage: UsageLedger = field(default_factory=UsageLedger)
    assumed_pods: AssumedPods = field(default_factory=AssumedPods)
    selectors: SelectorCache = field(default_factory=SelectorCache)
    patterns: RequirementsCache | None = None
    """Requirements of pods (``placement.pod_request``); made on first use."""
    requirements_version: int = 0
    """Increases when pods that were refused may no longer be: a class, a pool or a policy changed,
    or something that all pools read."""
    shared_version: int = 0
    """Increases when devices that many nodes see, or their use, change."""
    suspects: dict[DeviceId, Suspect] = field(default_factory=dict)
    """Devices whose use grew, to be checked."""
    ticks: int = 0
    """How many ticks were applied."""
    is_postponed: bool = False
    """Whether domains take a step after the next ``Continue``."""
    last_place: int = 0
    """The place of the last domain that took a step; the postponed domains follow it."""
    index: DomainIndex = field(default_factory=DomainIndex)
    """Which domains an event may concern."""
    busy_domains: BusyDomains = field(default_factory=BusyDomains)
    """Domains in which a step may do something, once this replica serves them."""
    kept_scores: KeptScores = field(default_factory=KeptScores)
    """The scores of this replica's decisions, for people."""
    _queued_in: dict[str, str] = field(default_factory=dict)
    """By pod, the only domain in whose queue it may be."""
    _places: int = 0
    """How many domains were added."""
    _dependencies: int = 0
    """The version of ``pool_dependencies`` to which ``index.unread`` belongs."""

    def __post_init__(self) -> None:
        self.published = PublishedDevices(self.options.drivers)
        self._make_tables()

    def __getstate__(self) -> dict[str, object]:
        """The state without its caches, for copies: tables read the state that made them."""
        named = [one.name for one in fields(self) if one.name not in _CACHES]
        return {name: getattr(self, name) for name in named}

    def __setstate__(self, copied: dict[str, object]) -> None:
        for name, value in copied.items():
            setattr(self, name, value)
        self.patterns = None
        self._make_tables()

    def _make_tables(self) -> None:
        source = Source(
            node=lambda name: self.facts.nodes[name].node,
            assumed=self.assumed_pods.sums,
            cards=lambda name: self.published.of(name).cards,
            uses=self.device_usage.devices,
        )
        pools = Pools(
            nodes=lambda pool: self.facts.served_nodes(pool),
            of=lambda node: self.facts.pool_served_by(node),
        )
        self.tables = NodeTables(source, pools)

    def busy(self) -> Iterator[SchedulingDomain]:
        """Domains in which a step may do something, and some others."""
        for name in self.busy_domains:
            if (domain := self.domains.get(name)) is not None:
                yield domain

    def ready_after(
        self, place: int, most: int, *, goes_on: bool, last: int | None = None
    ) -> list[SchedulingDomain]:
        """The first ``most`` domains behind a place in which a step may do something and to whose
        logs this replica may append now; none behind the place ``last``. ``goes_on``: paused
        searches may continue."""
        found: list[SchedulingDomain] = []
        for name in self.busy_domains.after(place):
            domain = self.domains.get(name)
            if domain is None or domain.serving_since is None or not domain.has_work(goes_on=True):
                self.busy_domains.drop(name)
                continue
            if len(found) == most or (last is not None and domain.place > last):
                break
            has_work = goes_on or not domain.queue.paused or domain.has_work(goes_on=False)
            if has_work and self.ready(domain):
                found.append(domain)
        return found

    def complete(self, domain: SchedulingDomain) -> bool:
        """Whether this replica has read all facts and records on which earlier records depend."""
        facts = self.facts
        has_facts = facts.synced and facts.whole and facts.is_dated and not domain.unnamed
        is_reached = has_facts and facts.position >= domain.current.facts_sequence
        return is_reached and self.is_caught_up(domain.name)

    def all_complete(self) -> bool:
        """Whether ``complete`` is true for all domains."""
        facts, spans = self.facts, self.published.shared_pools
        if facts.undecodable.facts or (spans and not self.subscriptions.everything):
            return all(self.complete(domain) for domain in self.domains.values())
        is_whole = facts.synced and facts.whole and facts.is_dated
        return is_whole and not self.undecodable_log() and not self._is_unread()

    def _is_unread(self) -> bool:
        """Whether a domain lacks something that it is to read."""
        if self._dependencies != self.pool_dependencies.version:
            self._dependencies = self.pool_dependencies.version
            self.all_unread()
        unread = self.index.unread
        return bool(unread) and _first_of(unread, self.domains, self._lacks) is not None

    def all_unread(self) -> None:
        """Note that any domain may lack something: other pools are to be read."""
        self.index.unread |= dict.fromkeys(self.domains)

    def _lacks(self, domain: SchedulingDomain) -> bool:
        position = self.facts.position
        if domain.unnamed or domain.current.facts_sequence > position:
            return True
        if self.subscriptions.has_read_all(position):
            return not (domain.read or domain.lost or domain.undecodable)
        return not self.is_caught_up(domain.name)

    def undecodable_log(self) -> str:
        """Why a domain's log can't be decoded; empty if all logs can be."""
        domains = {**self.domains, **self.unread_domains} if self.index.undecodable else {}
        found = _first_of(self.index.undecodable, domains, lambda one: bool(one.undecodable))
        return found.undecodable if found is not None else ""

    def is_caught_up(self, pool: str) -> bool:
        """Whether facts and logs of the pool and of all pools that it depends on were read.

        Only the log of a node's former pool knows an allocation that was cleared and not voided. A
        lost log does not count; its epoch is voided."""
        position = self.facts.position
        if self.undecodable_for(pool):
            return False
        if self.subscriptions.has_read_all(position):
            return self.has_read_all_logs()
        return not self.published.shared_pools and all(
            self.subscriptions.is_caught_up(one, position) and self._has_read_log(one)
            for one in self.pool_dependencies.of(pool)
        )

    def undecodable_for(self, pool: str) -> str:
        """Why this replica must not decide in the pool, although others may: it can't decode a
        message of a newer release, in this pool or in one that the pool depends on. Empty if it
        may."""
        facts = self.facts
        if not self.index.undecodable and not facts.undecodable.facts:
            return ""
        if self.published.shared_pools:
            return self.undecodable_log() or facts.undecodable.any()
        pools = self.pool_dependencies.of(pool)
        for one in pools:
            domain = self.domains.get(one) or self.unread_domains.get(one)
            if domain is not None and domain.undecodable:
                return domain.undecodable
        if not facts.undecodable.facts:
            return ""
        for one in pools:
            known, members = facts.pools.get(one), facts.members.get(one, {})
            why = facts.undecodable.stop(one, members, known.template if known else "")
            if why:
                return why
        return ""

    def reached(self, pool: str) -> int:
        """Sequence of the last fact applied on which decisions in the pool depend. It is equal in
        replicas that read different pools."""
        if self.published.shared_pools:
            return self.facts.position
        reached = self.facts.reached
        return max([reached.get(one, 0) for one in ("", *self.pool_dependencies.of(pool))])

    def has_read_all_logs(self) -> bool:
        """Whether all logs were folded to their end once, or as far as they can be."""
        if not self._is_unread():
            return True
        domains = (self.domains.get(name) for name in self.index.unread)
        return all(one is None or one.read or one.lost or one.undecodable for one in domains)

    def _has_read_log(self, pool: str) -> bool:
        domain = self.domains.get(pool)
        return domain is None or domain.read or domain.lost

    def ready(self, domain: SchedulingDomain) -> bool:
        """Whether this replica may append to the domain's log now."""
        return (
            domain.serving_since is not None
            and not domain.lost
            and domain.current.sequence >= max(1, domain.serving_since)
            and len(domain.appended) < self.options.unconfirmed_records
            and self.complete(domain)
        )

    @property
    def unfinished(self) -> bool:
        """Whether ``Continue`` has something to do."""
        return self.is_postponed or any(
            (one.queue.active or one.queue.paused or one.groups.touched or one.groups.active)
            and self.ready(one)
            for one in self.busy()
        )

    def is_decidable(self, pod: Pod) -> bool:
        """Whether dray decides the pod and knows all its claims. For a pod that can't be bound,
        it decides only the reason."""
        return self.may_be_decided(pod) and any(self.claims_to_decide(pod))

    def may_be_decided(self, pod: Pod) -> bool:
        """Whether dray decides the pod, whatever is known about its claims."""
        pool = self.facts.pools.get(pod.pool)
        return (
            pool is not None
            and pool.owner == names.OWNER_DRAY
            and not pod.other_gates
            and not pod.node
            and pod.phase == "Pending"
            and not pod.deleting
        )

    def claims_to_decide(self, pod: Pod) -> tuple[tuple[Claim, ...], tuple[Claim, ...]]:
        """The pod's open claims and those of others.

        Open claims are to be allocated together; there are none unless all are known and free.
        Claims of others are allocated for other pods, so the pod can't be bound. When dray
        allocates a claim, it reserves the claim for one pod or its PodGroup; kube-scheduler
        reserves a claim for each pod.
        """
        claims = self.facts.claims_of(pod) or ()
        opened = tuple([one for one in claims if one.allocation is None])
        for one in opened:
            if self.is_claimed(one):
                opened = ()
                break
        reserved = [one for one in claims if one.reserved_for]
        if not reserved or pod.binder != names.OWNER_DRAY:
            return opened, ()
        return opened, tuple([one for one in reserved if not self._is_reserved_for(one, pod)])

    def _is_reserved_for(self, claim: Claim, pod: Pod) -> bool:
        """Whether a claim is reserved for the pod or its PodGroup."""
        if pod.uid in claim.reserved_for:
            return True
        group = None if pod.member is None else self.facts.groups.groups.get(pod.member.group)
        return group is not None and group.uid in claim.reserved_for

    def is_claimed(self, claim: Claim) -> bool:
        """Whether an earlier attempt of the claim is not over yet."""
        return self.is_reserved(claim.uid) or (
            claim.decision > claim.void
            and (domain := self.domains.get(self.facts.pool_of(claim))) is not None
            and executed_unknown(claim, domain.current.claims.get(claim.uid))
        )

    def domains_of_claim(self, claim_uid: str) -> list[SchedulingDomain]:
        """The domains whose log has a claim, or that have an attempt of it to settle."""
        if claim_uid not in self.index.claims:
            return []
        return _those_of(self.index.claims, claim_uid, self.domains, _has_claim)

    def domains_of_pod(self, pod_uid: str) -> list[SchedulingDomain]:
        """The domains whose log has a decision on a pod."""
        if pod_uid not in self.index.pods:
            return []
        return _those_of(self.index.pods, pod_uid, self.domains, _has_pod)

    def apply(self, sequence: int, fact: Fact | UndecodableFact) -> list[Effect]:
        """Apply a fact that has no pool, or whose pool is subscribed to."""
        pool = fact.subject_pool()
        if not self.subscriptions.takes(pool):
            return []
        reached = self.facts.reached
        if sequence > reached.get(pool, 0):
            reached[pool] = sequence
        if isinstance(fact, UndecodableFact):
            self.facts.undecodable.put(fact)
            return []
        if self.facts.undecodable.facts:
            self.facts.undecodable.drop(subject_of(fact))
        if type(fact) is DomainObserved:
            return self._name_epoch(fact)
        apply = _APPLIES.get(type(fact))
        self.requeue(self.facts.apply(fact) if apply is None else apply(self, fact))
        return []

    def _claim(self, fact: ClaimObserved) -> Changes:
        changes = self.facts.put_claim(fact)
        if changes is not NOTHING or _is_moved(fact.moved_to, fact.claim.uid, self.facts.claims):
            self.pool_dependencies.claim(fact)
        return changes

    def _pod(self, fact: PodObserved) -> Changes:
        changes = self.facts.put_pod(fact)
        if changes is not NOTHING or _is_moved(fact.moved_to, fact.pod.uid, self.facts.pods):
            self.pool_dependencies.pod(fact)
        return changes

    def _node(self, fact: NodeObserved) -> Changes:
        changes = self.facts.put_node(fact)
        if changes is not NOTHING:
            self.pool_dependencies.node(fact)
        return changes

    def _slice(self, fact: SliceObserved) -> Changes:
        one = fact.slice
        return _of_cards(self.published.drop(one.name) if fact.deleted else self.published.put(one))

    def _inventory(self, fact: InventoryObserved) -> Changes:
        unhealthy = () if fact.deleted else fact.unhealthy
        is_changed = self.published.set_unhealthy(fact.node, fact.driver, unhealthy)
        return _of_cards((fact.node,)) if is_changed else NOTHING

    def _cluster(self, fact: ClusterObserved) -> Changes:
        self.facts.cluster = fact
        is_changed = self.selectors.set_environment(_stored_language(fact))
        pools = PoolChanges(is_everywhere=True, are_matches=True)
        return Changes(pools=pools) if is_changed else NOTHING

    def _taint_rule(self, fact: TaintRuleObserved) -> Changes:
        self.facts.put_taint_rule(fact)
        cards = self.published.taint(tuple(self.facts.taint_rules.values()))
        return Changes(cards=cards, pools=EVERYWHERE)

    def _tick(self, fact: Tick) -> Changes:
        """Advance the time, and let domains act on it."""
        claims, pods, nodes = self.facts.tick(fact)
        # Nothing else asks for objects that are gone: drop them from the index.
        for uid in claims:
            self.domains_of_claim(uid)
        for uid in (*pods, *map(held_node_uid, nodes)):
            self.domains_of_pod(uid)
        self.ticks += 1
        for domain in self.domains.values():
            domain.ticked = True
            self.busy_domains.add(domain)
        return NOTHING

    def _name_epoch(self, fact: DomainObserved) -> list[Effect]:
        """Follow an epoch. An epoch that is not above the known one is new only if facts and log
        are both lost: the pool was deleted and created again."""
        known = self.domains.get(fact.domain) or self.unread_domains.get(fact.domain)
        if fact.deleted:
            if known is None or fact.epoch < known.epoch:
                if known is not None:
                    known.renamed = 0
                return []
            if self.unread_domains.pop(fact.domain, None) is not None:
                return []
            self.index.appending.pop(fact.domain, None)
            self._recompute_domain(fact.domain, self.domains.pop(fact.domain))
            return [Unfollow(fact.domain)]
        if known is not None and fact.epoch <= known.epoch and not (known.unnamed and known.lost):
            known.unnamed = known.unnamed and fact.epoch < known.epoch
            known.renamed = fact.epoch if known.unnamed else 0
            if fact.epoch == known.epoch:
                known.start = fact.start
            return []
        return self.follow(fact.domain, fact.epoch, fact.start)

    def follow(self, name: str, epoch: int, start: int) -> list[Effect]:
        """Begin another epoch of a domain."""
        domain = SchedulingDomain(name, epoch, start=start)
        if not self.subscriptions.takes(name):
            self.unread_domains[name] = domain
            return []
        self.replace(domain)
        return [Follow(name, epoch, start)]

    def add(self, domain: SchedulingDomain) -> None:
        """Add a domain that is subscribed to, before its facts are read."""
        before = self.domains.get(domain.name)
        self._places += 1
        domain.place = self._places if before is None else before.place
        self.domains[domain.name] = domain
        self.index.unread[domain.name] = None
        self.busy_domains.add(domain)
        self.index.appending.pop(domain.name, None)
        self._set_topology(domain)

    def replace(self, domain: SchedulingDomain) -> None:
        """Add a domain, or another log of one."""
        before = self.domains.get(domain.name)
        self.add(domain)
        self._recompute_domain(domain.name, before)

    def _recompute_domain(self, name: str, before: SchedulingDomain | None) -> None:
        """Compute again what follows from a domain's pods and claims. ``before``: the domain whose
        log is dropped."""
        found = self.facts.objects_of(name)
        if before is not None:
            log = before.current
            claims = (*log.claims, *before.unsettled, *log.held_claims)
            pods = (*found.pods, *log.pods, *log.held_nodes)
            found = Changes((*found.claims, *claims), pods)
        self.requeue(Changes(tuple(dict.fromkeys(found.claims)), tuple(dict.fromkeys(found.pods))))

    def forget_facts(self) -> None:
        """Start again: the facts stream was re-created. The logs stay until new epochs."""
        self.facts = Facts()
        self.pool_dependencies = PoolDependencies()
        self.subscriptions.restart()
        self.published = PublishedDevices(self.options.drivers)
        self.tables.forget()
        self.patterns = None  # They have the capacity shapes of the old fleet.
        self.selectors = SelectorCache()
        for domain in (*self.domains.values(), *self.unread_domains.values()):
            domain.queue.request_full_scan()
            domain.unnamed = True
            domain.renamed = 0
            domain.node_worths = NodeWorths()  # It has the numbers of the old tables.
            domain.groups = PendingGroups()
            self.index.unread[domain.name] = None
        for domain in self.domains.values():
            self.busy_domains.add(domain)
        self.recompute_all()

    def assume(
        self, domain: SchedulingDomain, decision: PodDecision, *, is_charged: bool = False
    ) -> None:
        """Assume a decision before it is written: charge its devices, unless they are charged, and
        dequeue its pods."""
        pod_uid, node, pods_of = decision.pod_uid, decision.node, self.facts.pods_of
        latest = domain.current.take(decision, self.facts.now_unix_s)
        self._note_known(domain.name, [one.uid for one in decision.claims], (pod_uid,))
        domain.queue.remove(pod_uid)
        is_counted = self._is_counted(pod_uid, node)
        if is_counted or not (
            is_charged or self.assumed_pods.add(pod_uid, node, _resources_of(decision))
        ):
            self._recompute_assumed_pod(pod_uid)  # An earlier attempt has not ended in a log yet.
        devices: list[DeviceId] = []
        for claim in decision.claims:
            uid = claim.uid
            domain.unsettled[uid] = None
            taken = self.device_usage.set(uid, self._use(uid)).taken
            devices += taken
            self._suspect(claim.allocation.devices_in_use if is_charged else taken, uid)
            pods = pods_of.get((claim.namespace, claim.name), ()) if uid in latest else ()
            for other in pods if len(pods) > 1 else ():
                if other != pod_uid and not self._is_in_group(other, decision):
                    self._recompute_pod(other)
        if devices or not is_charged:
            self._use_changed(devices, node)

    def _note_known(self, domain: str, claims: Iterable[str], pods: Iterable[str]) -> None:
        """Note that a domain's log may know claims and pods."""
        for index, uids in ((self.index.claims, claims), (self.index.pods, pods)):
            for uid in uids:
                known = index.get(uid, ())
                if domain not in known:
                    index[uid] = (*known, domain)

    def _is_in_group(self, pod_uid: str, decision: PodDecision) -> bool:
        """Whether a pod is in the group of a joint decision. All members of the group are looked at
        again after the decision."""
        pod = self.facts.pods.get(pod_uid)
        if pod is None or pod.member is None or decision.group is None:
            return False
        return pod.member.group == decision.group.group

    def charge(self, decision: PodDecision) -> None:
        """Charge devices and node for a decision that is perhaps not made."""
        pod_uid, node = decision.pod_uid, decision.node
        devices: list[DeviceId] = []
        for claim in decision.claims:
            devices += self.device_usage.set(claim.uid, claim.allocation).taken
        self.assumed_pods.set(pod_uid, node, _resources_of(decision))
        self._use_changed(devices, node)

    def undo_charge(self, decision: PodDecision) -> None:
        """Undo ``charge``."""
        devices: list[DeviceId] = []
        for claim in decision.claims:
            devices += self.device_usage.set(claim.uid, self._use(claim.uid)).freed
        self.assumed_pods.set(decision.pod_uid, decision.node, None)
        self._use_changed(devices, decision.node)

    def leave_out(self, claims: Iterable[str]) -> None:
        """Do not count what claims use, until ``count_again``."""
        freed: list[DeviceId] = []
        for uid in claims:
            freed += self.device_usage.set(uid, None).freed
        self._use_changed(freed)

    def count_again(self, claims: Iterable[str]) -> None:
        """Undo ``leave_out``."""
        taken: list[DeviceId] = []
        for uid in claims:
            taken += self.device_usage.set(uid, self._use(uid)).taken
        self._use_changed(taken)

    def open_nodes(self, nodes: Mapping[str, str]) -> tuple[str, ...]:
        """Do not count held nodes as full, until ``close_nodes``; return the UIDs under which they
        counted. ``nodes``: by UID."""
        uids = tuple([uid for uid in nodes if self.assumed_pods.has(uid)])
        for uid in uids:
            self.tables.use_changed(self.assumed_pods.set(uid, "", None))
        return uids

    def close_nodes(self, uids: Iterable[str]) -> None:
        """Undo ``open_nodes``."""
        for uid in uids:
            self._recompute_assumed_pod(uid)

    def requeue(self, changes: Changes, log: SchedulingDomain | None = None) -> None:
        """Compute again what follows from the changed objects. ``log``: the domain whose log
        changed them."""
        if log is not None:
            self.index.unread[log.name] = None
            self.busy_domains.add(log)
            self._note_known(log.name, changes.claims, changes.pods)
        if changes is NOTHING:
            return
        facts, pods = self.facts, dict.fromkeys(changes.pods)
        for claim_uid in changes.claims:
            claim = facts.claims.get(claim_uid)
            if not self._is_untouched(claim_uid, claim):
                self._recompute_use(claim_uid, claim)
            if claim is not None:
                pods.update(facts.pods_of.get((claim.namespace, claim.name), _NO_PODS))
        for pod_uid in changes.pods:
            self._recompute_assumed_pod(pod_uid)
        for pod_uid in pods:
            self._recompute_pod(pod_uid)
        for group in changes.groups:
            self._touch_group(group)
        for pod_uid in changes.ended:
            for domain in self.domains_of_pod(pod_uid):
                if (decision := domain.current.pods.get(pod_uid)) is not None:
                    self._settle(domain, [claim.uid for claim in decision.claims])
        if changes.nodes or changes.cards:
            self._recompute_nodes(changes)
        if changes.pools is not None:
            self._recompute_pools(changes.pools)

    def _recompute_nodes(self, changes: Changes) -> None:
        for name in changes.nodes:
            self.tables.node_changed(name)
            for pod_uid in (*self.assumed_pods.pods_on(name), *changes.counted):
                self._recompute_assumed_pod(pod_uid)
        for name in changes.cards:
            if name:
                self.tables.node_changed(name, cards=True)
                self._capacity_changed_on(name)
            else:
                self.shared_version += 1
                self._capacity_changed_everywhere()

    def _recompute_pools(self, changes: PoolChanges) -> None:
        """Let queues be scanned, and reservations be settled."""
        if changes.is_everywhere or changes.are_requirements or changes.requirements:
            self.requirements_version += 1
        if changes.is_everywhere:
            self._capacity_changed_everywhere()
        for pool in changes.capacity:
            if (domain := self.domains.get(pool)) is not None:
                self._capacity_changed_in(domain)
        for pool in changes.unsettled:
            if (domain := self.domains.get(pool)) is not None:
                domain.settle = True
                self.busy_domains.add(domain)
        for pool in changes.lost:
            if (domain := self.domains.get(pool)) is not None:
                domain.queue.node_lost_unix_s = self.facts.now_unix_s
        if changes.are_requirements or changes.requirements:
            self._requirements_changed(
                tuple(self.domains) if changes.are_requirements else changes.requirements
            )
        if changes.are_matches:
            self.published.clear_eligible()
            self.tables.forget_indexes()

    def _requirements_changed(self, pools: Sequence[str]) -> None:
        if self.patterns is not None:
            self.patterns.forget()
        for pool in pools:
            if (domain := self.domains.get(pool)) is not None:
                self._set_topology(domain)

    def _set_topology(self, domain: SchedulingDomain) -> None:
        """Pods of one signature fit the same nodes only in one topology."""
        topology = self.facts.placement(domain.name)[0].topology
        if domain.queue.topology != topology:
            domain.queue.topology = topology
            domain.queue.request_full_scan()
            self.busy_domains.add(domain)

    def recompute_all(self) -> None:
        """Compute everything again, after the facts were lost."""
        claims = [uid for uid, _ in self.device_usage.claims()]
        claims += [*self.facts.claims, *(r.claim_uid for r in self.reservations())]
        pods = [*self.facts.pods, *self.assumed_pods.pods()]
        for domain in self.domains.values():
            pods += [*domain.current.pods, *domain.current.held_nodes]
        self.requeue(Changes(tuple(dict.fromkeys(claims)), tuple(dict.fromkeys(pods))))

    def reservations(self) -> Iterator[Reservation]:
        """Every reservation of every log, whatever its stage."""
        for domain in self.domains.values():
            yield from domain.current.claims.values()

    def _is_untouched(self, claim_uid: str, claim: Claim | None) -> bool:
        """Whether the claim uses nothing and is in no log, like a new claim."""
        if claim is None or claim.allocation is not None or claim.decision:
            return False
        return not self.device_usage.has(claim_uid) and not self.domains_of_claim(claim_uid)

    def _recompute_use(self, claim_uid: str, claim: Claim | None) -> None:
        change = self.device_usage.set(claim_uid, self._use(claim_uid))
        if change.taken:
            self._suspect(change.taken, claim_uid)
        if self.tables.by_pool:  # Tables read all uses when they are made.
            self._use_changed((*change.taken, *change.freed))
        for device in change.freed:
            self._capacity_freed_on(device)
        domains = self.domains_of_claim(claim_uid)
        if claim is not None and claim.decision > claim.void:
            of_claim = self.domains.get(self.facts.pool_of(claim))
            if of_claim is not None and of_claim not in domains:
                domains.append(of_claim)
        for domain in domains:
            self._recompute_unsettled(domain, claim_uid, claim)
            if claim_uid in domain.current.held_claims:
                self._capacity_changed_in(domain)  # For those who may use what is held.

    def _suspect(self, devices: Iterable[DeviceId], claim_uid: str) -> None:
        suspects, new = self.suspects, Suspect(claim_uid, self.ticks)
        for device in devices:
            before = suspects.get(device)
            suspects[device] = new if before is None else Suspect(claim_uid, before.since)

    def is_reserved(self, claim_uid: str) -> bool:
        """Whether a log that is read has an attempt of the claim that is not over."""
        for domain in self.domains_of_claim(claim_uid):
            known = domain.current.claims.get(claim_uid)
            if known is not None and known.stage is not Stage.OVER:
                return True
        return False

    def _use_changed(self, devices: Sequence[DeviceId], node: str = "") -> None:
        """The use of devices changed, and perhaps the use of a node."""
        changed: dict[str, list[Card]] = {node: []} if node else {}
        known = self.published.cards
        for device in devices:
            card = known.get(device)
            if card is not None:
                changed.setdefault(card.node, []).append(card)
            elif device.driver in self.options.drivers:
                self.shared_version += 1  # No table knows the nodes that see it.
        for name, cards in changed.items():
            self.tables.use_changed(name, cards)

    def _use(self, claim_uid: str) -> Allocation | None:
        """``status.allocation``, else what the logs reserve, else what they hold for its group."""
        used = self.use_of_claim(claim_uid)
        if used is not None:
            return used
        domains = self.domains_of_claim(claim_uid)
        return next((one for d in domains if (one := d.current.held_claims.get(claim_uid))), None)

    def use_of_claim(self, claim_uid: str) -> Allocation | None:
        """``status.allocation``, else what the logs reserve: without what they hold for a group
        that has lost the claim's pod."""
        claim = self.facts.claims.get(claim_uid)
        if claim is not None and claim.allocation is not None:
            return claim.allocation
        gone = claim_uid in self.facts.gone_claims
        used: Allocation | None = None
        for domain in self.domains_of_claim(claim_uid):
            reservation = domain.current.claims.get(claim_uid)
            if reservation is not None and counts(reservation, claim, gone):
                more = reservation.allocation
                used = more if used is None else Allocation((*used.devices, *more.devices))
        return used

    def _recompute_unsettled(
        self, domain: SchedulingDomain, claim_uid: str, claim: Claim | None
    ) -> None:
        reservation = domain.current.claims.get(claim_uid)
        if reservation is None:
            unsettled = (
                claim is not None
                and executed_unknown(claim, None)
                and self.facts.pool_of(claim) == domain.name
            )
        elif reservation.stage is Stage.RESERVED:
            unsettled = True
        elif reservation.stage is Stage.COMMITTED:
            unsettled = claim is None or claim.allocation is None
        else:
            unsettled = claim is None
        if unsettled:
            domain.unsettled[claim_uid] = None
            self._note_known(domain.name, (claim_uid,), ())
            if not merely_reserved(reservation, claim):
                self._settle(domain, (claim_uid,))
        else:
            domain.unsettled.pop(claim_uid, None)
            domain.to_settle.pop(claim_uid, None)
            domain.asked.pop(claim_uid, None)

    def _recompute_assumed_pod(self, pod_uid: str) -> None:
        """Assume the pod on its node while a log reserves it and the node's sums lack it."""
        node, assumed = "", None
        for domain in self.domains_of_pod(pod_uid):
            decision = domain.current.pods.get(pod_uid)
            if decision is not None and self._is_assumed_on(pod_uid, decision.node):
                node, assumed = decision.node, _resources_of(decision)
            elif pod_uid in domain.current.held_nodes:
                node, assumed = domain.current.held_nodes[pod_uid], FULL_NODE
        if assumed is not None or self.assumed_pods.has(pod_uid):
            self._set_assumed(pod_uid, node, assumed)

    def _set_assumed(self, pod_uid: str, node: str, assumed: AssumedResources | None) -> None:
        version = self.assumed_pods.version
        freed_on = self.assumed_pods.set(pod_uid, node, assumed)
        if version == self.assumed_pods.version:
            return
        if node:
            self.tables.use_changed(node)
        if freed_on:
            self.tables.use_changed(freed_on)
            self._capacity_changed_on(freed_on)

    def _is_assumed_on(self, pod_uid: str, node: str) -> bool:
        pod = self.facts.pods.get(pod_uid)
        if pod is None:
            return pod_uid not in self.facts.gone_pods
        runs = pod.phase in ("Pending", "Running") and pod.node in ("", node)
        return runs and not self._is_counted(pod_uid, node)

    def _is_counted(self, pod_uid: str, node: str) -> bool:
        """Whether the node's published sums contain the pod."""
        fact = self.facts.nodes.get(node)
        return fact is not None and pod_uid in fact.counted

    def _recompute_pod(self, pod_uid: str) -> None:
        """Queue the pod if a decision could help it; else dequeue it."""
        pod = self.facts.pods.get(pod_uid)
        pool = pod.pool if pod is not None and self.is_decidable(pod) else ""
        if pod is not None and pod.member is not None:
            self._touch_group(pod.member.group)  # It queues the pod if that is decided alone.
        before = self._queued_in.pop(pod_uid, "")
        if before != pool and before in self.domains:
            self.domains[before].queue.remove(pod_uid)
        if pod is None or (not pool and pod.member is None):
            return
        self._queued_in[pod_uid] = pod.pool
        if pod.member is None and (domain := self.domains.get(pool)) is not None:
            key = (-pod.priority, pod.created_unix_s, pod.uid)
            # A replica that begins to serve activates all pods.
            domain.queue.add(pod_uid, key, activate=domain.serving_since is not None)
            self.busy_domains.add(domain)

    def _touch_group(self, group: GroupKey) -> None:
        """Have a group looked at again in the domains of its pods."""
        pools = dict.fromkeys(self.facts.groups.pools(group))
        for name in self.index.groups.pop(group, {}):
            if name not in pools and (domain := self.domains.get(name)) is not None:
                domain.groups.forget(group)
                if domain.current.group_holds:
                    domain.groups.touch(group)
                    self.busy_domains.add(domain)
        for name in pools:
            if (domain := self.domains.get(name)) is not None:
                domain.groups.touch(group)
                self.busy_domains.add(domain)
        if pools:
            self.index.groups[group] = pools

    def _capacity_freed_on(self, device: DeviceId) -> None:
        """Some capacity of a device was freed."""
        card = self.published.cards.get(device)
        if card is None and device.driver in self.options.drivers:
            self._capacity_changed_everywhere()
        else:
            self._capacity_changed_on(card.node if card else device.pool)

    def _capacity_changed_on(self, node: str) -> None:
        """Some capacity of a node was freed, added or changed."""
        fact = self.facts.nodes.get(node)
        domain = self.domains.get(fact.node.pool) if fact else None
        if domain is not None:
            self._capacity_changed_in(domain)

    def _capacity_changed_everywhere(self) -> None:
        """Something changed that all domains read."""
        for domain in self.domains.values():
            self._capacity_changed_in(domain)

    def _capacity_changed_in(self, domain: SchedulingDomain) -> None:
        domain.queue.capacity_version += 1
        self.busy_domains.add(domain)

    def _settle(self, domain: SchedulingDomain, claims: Iterable[str]) -> None:
        """Have reservations of the domain checked."""
        domain.to_settle |= dict.fromkeys(claims)
        self.busy_domains.add(domain)


def _those_of(
    index: dict[str, tuple[str, ...]],
    uid: str,
    domains: dict[str, SchedulingDomain],
    has: Callable[[SchedulingDomain, str], bool],
) -> list[SchedulingDomain]:
    """The domains that have an object, in their order; the others are dropped from the index."""
    names, found = index[uid], []
    for name in names:
        domain = domains.get(name)
        if domain is not None and has(domain, uid):
            found.append(domain)
    if not found:
        del index[uid]
    elif len(found) < len(names):
        index[uid] = tuple([domain.name for domain in found])
    return sorted(found, key=_place) if len(found) > 1 else found


def _first_of(
    index: dict[str, None],
    domains: dict[str, SchedulingDomain],
    is_one: Callable[[SchedulingDomain], bool],
) -> SchedulingDomain | None:
    """The first domain of the index for which ``is_one`` is true; those before it are dropped from
    the index."""
    found, passed = None, []
    for name in index:
        domain = domains.get(name)
        if domain is not None and is_one(domain):
            found = domain
            break
        passed.append(name)
    for name in passed:
        del index[name]
    return found


def _has_claim(domain: SchedulingDomain, uid: str) -> bool:
    """Whether a domain's log, confirmed or not, has or holds a claim, or an attempt of it is to
    settle."""
    current, confirmed = domain.current, domain.confirmed
    if uid in current.claims or uid in domain.unsettled or uid in confirmed.claims:
        return True
    return uid in current.held_claims or uid in confirmed.held_claims


def _has_pod(domain: SchedulingDomain, uid: str) -> bool:
    """Whether a domain's log, confirmed or not, has a decision on a pod, or holds the node that
    counts as full under this UID."""
    current, confirmed = domain.current, domain.confirmed
    if uid in current.pods or uid in confirmed.pods:
        return True
    return uid in current.held_nodes or uid in confirmed.held_nodes


def _place(domain: SchedulingDomain) -> int:
    return domain.place


def _is_moved(moved_to: str | None, uid: str, known: Container[str]) -> bool:
    """Whether the object of a tombstone (even an old one) is known in another pool; then the pools
    depend on each other."""
    return moved_to is not None and uid in known


def _of_cards(nodes: tuple[str, ...]) -> Changes:
    """Devices of these nodes changed; an empty name: of several nodes."""
    return Changes(cards=nodes) if nodes else NOTHING


def _stored_language(cluster: ClusterObserved) -> Environment:
    """The CEL environment of the selectors of stored claims and classes."""
    return environment_of_server(
        cluster.version,
        Mode.STORED,
        consumable_capacity=cluster.consumable_capacity,
        list_attributes=cluster.list_attributes,
    )


def _resources_of(decision: PodDecision) -> AssumedResources:
    """The resources of its node that a decided pod uses."""
    cpu_milli, memory_bytes = decision.cpu_milli, decision.memory_bytes
    return AssumedResources(cpu_milli, memory_bytes, 1, decision.resources, decision.ports)


_APPLIES: Final[Mapping[type[Fact], Callable[[AllocatorState, Any], Changes]]] = {
    ClaimObserved: AllocatorState._claim,
    PodObserved: AllocatorState._pod,
    NodeObserved: AllocatorState._node,
    SliceObserved: AllocatorState._slice,
    InventoryObserved: AllocatorState._inventory,
    ClusterObserved: AllocatorState._cluster,
    TaintRuleObserved: AllocatorState._taint_rule,
    Tick: AllocatorState._tick,
}
"""By type of fact, the method that applies it, for facts that change more than ``Facts``."""
