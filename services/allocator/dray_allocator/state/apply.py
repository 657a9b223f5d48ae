"""Applies facts and records to the state; decides nothing."""

from collections.abc import Callable, Container, Mapping
from typing import Any

from dray.messages.base import subject_of
from dray.messages.decisions import AnyRecord, Decided, Released, Waiting
from dray.messages.facts import (
    ClaimObserved,
    DomainObserved,
    Fact,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    SliceObserved,
    Synced,
    Tick,
)
from dray_allocator.devices.published_devices import PublishedDevices
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.scoring.fragmentation.score import NodeWorths
from dray_allocator.state.configuration import configure
from dray_allocator.state.decision_log import AffectedObjects
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.facts import Facts, NodeFact
from dray_allocator.state.pod_requirements import PodPatterns
from dray_allocator.state.state import AllocatorState
from dray_allocator.state.subscriptions import PoolDependencies
from dray_allocator.values.events import (
    Effect,
    FactSeen,
    Follow,
    LogLost,
    LogShortened,
    RecordSeen,
    RecordUndecodable,
    StopServing,
    Unfollow,
)
from dray_allocator.values.undecodable import UndecodableFact


def fold_fact(state: AllocatorState, event: FactSeen) -> list[Effect]:
    """Apply a fact, unless it was applied before."""
    if event.sequence <= state.facts.position:
        return []
    state.facts.position = event.sequence
    state.facts.whole = event.whole
    return apply(state, event.sequence, event.fact)


def forget_facts(state: AllocatorState) -> None:
    """Start again: the facts stream was re-created. The logs stay until new epochs."""
    state.facts = Facts()
    state.pool_dependencies = PoolDependencies()
    state.subscriptions.restart()
    state.published = PublishedDevices(state.rules.drivers)
    state.tables.forget()
    state.patterns = PodPatterns()  # The old patterns have the capacity shapes of the old fleet.
    state.selectors = SelectorCache()
    for domain in (*state.domains.values(), *state.unread_domains.values()):
        domain.queue.request_full_scan()
        domain.unnamed = True
        domain.renamed = 0
        domain.node_worths = NodeWorths()  # It has the numbers of the old tables.
    state.recompute_all()


def forget_log(state: AllocatorState, event: LogShortened) -> None:
    """The log lost its newest records; the facts show what was executed."""
    known = state.domains.get(event.domain)
    if known is None or known.epoch != event.epoch:
        return
    _begin_log_again(state, known)


def lose_log(state: AllocatorState, event: LogLost) -> list[Effect]:
    """Mark the log's stream as missing. The facts may have named the next epoch already."""
    domain = state.domains.get(event.domain)
    if domain is None or domain.epoch != event.epoch:
        return []
    forget_appended(state, domain)
    domain.lost = True
    return _follow(state, domain.name, domain.renamed, 1) if domain.renamed else []


def fold_record(state: AllocatorState, event: RecordSeen) -> list[Effect]:
    """Apply a record of the followed epoch, unless it was applied before."""
    domain = state.domains.get(event.domain)
    if domain is None or domain.epoch != event.epoch:
        return []
    effects: list[Effect] = []
    if 0 < domain.confirmed.sequence < event.sequence - 1:
        # The records between were trimmed: the log begins with a checkpoint now.
        domain = _begin_log_again(state, domain)
        effects.append(StopServing(domain.name))
    if event.sequence > domain.confirmed.sequence:
        _fold_next(state, domain, event.sequence, event.record)
    domain.read = (domain.read or not event.more) and domain.confirmed.is_whole
    return effects


def _fold_next(
    state: AllocatorState, domain: SchedulingDomain, sequence: int, record: AnyRecord
) -> None:
    if domain.appended and domain.appended[0] == (sequence, record):
        domain.appended.popleft()
        domain.confirmed.fold(sequence, record)
        return
    forget_appended(state, domain)
    domain.confirmed.fold(sequence, record)
    state.recompute(domain.current.fold(sequence, record))


def _begin_log_again(state: AllocatorState, known: SchedulingDomain) -> SchedulingDomain:
    """Forget what was read of a log; its epoch is the same."""
    domain = SchedulingDomain(
        known.name, known.epoch, unnamed=known.unnamed, renamed=known.renamed, start=known.start
    )
    state.domains[known.name] = domain
    state.recompute_all()
    return domain


def stop_log(state: AllocatorState, event: RecordUndecodable) -> None:
    """Decide nothing more in this epoch: a record of the log can't be decoded."""
    domain = state.domains.get(event.domain)
    if domain is None or domain.epoch != event.epoch:
        return
    forget_appended(state, domain)
    domain.fence = None
    domain.undecodable = event.why


def forget_appended(state: AllocatorState, domain: SchedulingDomain) -> None:
    """Return to the confirmed log: another replica may have appended."""
    forgotten = domain.forget_appended() if domain.appended else []
    for record in forgotten:
        state.recompute(subjects(record))
        if isinstance(record, Released):  # Its reservations are assumed again.
            for release in record.releases:
                if (again := domain.current.claims.get(release.claim_uid)) is not None:
                    state.recompute_assumed_pod(again.pod_uid)


def subjects(record: AnyRecord) -> AffectedObjects:
    """The claims and pods that a record is about."""
    match record:
        case Decided(pods=pods):
            claims = tuple(claim.uid for pod in pods for claim in pod.claims)
            return AffectedObjects(claims, tuple(pod.pod_uid for pod in pods))
        case Released(releases=releases):
            return AffectedObjects(tuple(release.claim_uid for release in releases))
        case Waiting(pod_uid=pod_uid):
            return AffectedObjects(pods=(pod_uid,))
        case _:
            return AffectedObjects()


def apply(state: AllocatorState, sequence: int, fact: Fact | UndecodableFact) -> list[Effect]:
    """Apply a fact that has no pool, or whose pool is subscribed to."""
    pool = fact.subject_pool()
    if not state.subscriptions.takes(pool):
        return []
    reached = state.facts.reached
    if sequence > reached.get(pool, 0):
        reached[pool] = sequence
    if isinstance(fact, UndecodableFact):
        state.facts.undecodable.put(fact)
        return []
    if state.facts.undecodable:
        state.facts.undecodable.drop(subject_of(fact))
    fold = _FOLDS.get(type(fact))
    if fold is None:
        configure(state, fact)
    elif effects := fold(state, fact):
        return effects
    return []


def _claim(state: AllocatorState, fact: ClaimObserved) -> None:
    claim, given_up = fact.claim, state.facts.given_up.get(fact.claim.uid)
    is_news = state.facts.put_claim(fact)
    if given_up != state.facts.given_up.get(claim.uid):
        state.capacity_changed_everywhere()  # Reasons may name the claims that have the devices.
    if is_news or _was_moved(fact, claim.uid, state.facts.claims):
        state.pool_dependencies.claim(fact)
    if is_news:
        state.recompute_claim(claim.uid)
        if claim.uid not in state.facts.claims:
            state.recompute_pods_of((claim.namespace, claim.name))


def _was_moved(fact: ClaimObserved | PodObserved, uid: str, known: Container[str]) -> bool:
    """Whether a tombstone is about an object that is known in another pool: then the pools
    depend on each other."""
    return fact.moved_to is not None and uid in known


def _pod(state: AllocatorState, fact: PodObserved) -> None:
    pod, is_news = fact.pod, state.facts.put_pod(fact)
    if is_news or _was_moved(fact, pod.uid, state.facts.pods):
        state.pool_dependencies.pod(fact)
    if not is_news:
        return
    state.recompute_assumed_pod(pod.uid)
    for domain in state.domains.values():
        if pod.uid in domain.current.pods and not state.facts.pod_wants(pod.uid):
            domain.settle = True
    for reference in pod.claims:
        uid = state.facts.claim_uids.get((pod.namespace, reference.claim), "")
        claim = state.facts.claims.get(uid)
        if (
            claim is not None and not claim.pool
        ):  # Its pool is the pool of the pods that refer to it.
            state.recompute_claim(uid)
    state.recompute_pod(pod.uid)


def _node(state: AllocatorState, fact: NodeObserved) -> None:
    name = fact.node.name
    before = state.facts.put_node(fact)
    after = state.facts.nodes.get(name)
    if after is None or after.revision == fact.revision:
        state.pool_dependencies.node(fact)
    state.tables.node_changed(name)
    for pod_uid in state.assumed_pods.pods_on(name):
        state.recompute_assumed_pod(pod_uid)
    elsewhere = _also(before) ^ _also(after)
    for domain in state.domains.values():
        if domain.name in (_pool(before), _pool(after), after.node.leaving if after else ""):
            domain.settle = True
            if after is None or _may_fit_more(before, after):
                domain.queue.capacity_version += 1  # Also lost capacity: reasons change.
            if before is not None and before.node.ready and (after is None or not after.node.ready):
                domain.queue.node_lost_unix_s = state.facts.now_unix_s
        elif domain.name in elsewhere:
            domain.queue.capacity_version += 1  # No further pod fits, but reasons may change.
    # Pods that left the sums, too: who folds their decision now assumes them until they end.
    for pod_uid in sorted(_counted(before) ^ _counted(after)):
        state.recompute_assumed_pod(pod_uid)


def _counted(fact: NodeFact | None) -> frozenset[str]:
    return fact.counted if fact else frozenset()


def _also(fact: NodeFact | None) -> frozenset[str]:
    return frozenset(fact.also_selected_by) if fact else frozenset()


def _pool(fact: NodeFact | None) -> str:
    return fact.node.pool if fact else ""


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
    return frees or _described(before) != _described(after)


def _described(fact: NodeFact) -> tuple[object, ...]:
    node = fact.node
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


def _slice(state: AllocatorState, fact: SliceObserved) -> None:
    published, one = state.published, fact.slice
    for node in published.drop(one.name) if fact.deleted else published.put(one):
        if node:
            state.tables.node_changed(node, cards=True)
            state.capacity_changed_on_node(node)
        else:
            state.shared_version += 1
            state.capacity_changed_everywhere()


def _inventory(state: AllocatorState, fact: InventoryObserved) -> None:
    unhealthy = () if fact.deleted else fact.unhealthy
    if state.published.set_unhealthy(fact.node, fact.driver, unhealthy):
        state.tables.node_changed(fact.node, cards=True)
        state.capacity_changed_on_node(fact.node)


def _synced(state: AllocatorState, fact: Synced) -> None:
    state.facts.synced = not fact.deleted


def _tick(state: AllocatorState, fact: Tick) -> None:
    state.facts.tick(fact)
    state.tick()
    for domain in state.domains.values():
        domain.ticked = True


def _domain(state: AllocatorState, fact: DomainObserved) -> list[Effect]:
    """Follow an epoch. An epoch that is not above the known one is new only if facts and log are
    both lost: the pool was deleted and created again."""
    known = state.domains.get(fact.domain) or state.unread_domains.get(fact.domain)
    if fact.deleted:
        if known is None or fact.epoch < known.epoch:
            if known is not None:
                known.renamed = 0
            return []
        if state.unread_domains.pop(fact.domain, None) is not None:
            return []
        del state.domains[fact.domain]
        state.recompute_all()
        return [Unfollow(fact.domain)]
    if known is not None and fact.epoch <= known.epoch and not (known.unnamed and known.lost):
        known.unnamed = known.unnamed and fact.epoch < known.epoch
        known.renamed = fact.epoch if known.unnamed else 0
        if fact.epoch == known.epoch:
            known.start = fact.start
        return []
    return _follow(state, fact.domain, fact.epoch, fact.start)


def _follow(state: AllocatorState, name: str, epoch: int, start: int) -> list[Effect]:
    domain = SchedulingDomain(name, epoch, start=start)
    if not state.subscriptions.takes(name):
        state.unread_domains[name] = domain
        return []
    state.domains[name] = domain
    state.recompute_all()
    return [Follow(name, epoch, start)]


_FOLDS: Mapping[type[Fact], Callable[[AllocatorState, Any], list[Effect] | None]] = {
    ClaimObserved: _claim,
    PodObserved: _pod,
    NodeObserved: _node,
    SliceObserved: _slice,
    InventoryObserved: _inventory,
    Synced: _synced,
    Tick: _tick,
    DomainObserved: _domain,
}
"""Functions that apply facts, by type. Facts of other types are configuration."""
