"""What a replica knows: the facts and logs of its pools, and whether that is all of them.

A replica reads the pools that it serves and those that have a say in them (docs/adr/0026); it
may decide about a pool when nothing is missing of what the records of that pool were based on.
"""

from dataclasses import dataclass, field

from dray.api import names
from dray.api.claims import Claim
from dray.api.pods import Pod
from dray_allocator.devices.node_devices import PublishedDevices
from dray_allocator.state.decision_log import Reservation, Stage
from dray_allocator.state.domain import Domain
from dray_allocator.state.facts import Facts
from dray_allocator.state.pending_allocations import executed_unknown
from dray_allocator.state.pod_claims import known_claims, pool_of
from dray_allocator.state.pool_dependencies import PoolDependencies
from dray_allocator.state.subscriptions import Subscriptions
from dray_allocator.values.options import AllocatorOptions


@dataclass(slots=True)
class ObservedState:
    """Facts and logs as far as they are read, and what may be decided on them."""

    rules: AllocatorOptions = field(default_factory=AllocatorOptions)
    facts: Facts = field(default_factory=Facts)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    """Of which pools claims, pods and logs are folded."""
    ties: PoolDependencies = field(default_factory=PoolDependencies)
    published: PublishedDevices = field(init=False)
    domains: dict[str, Domain] = field(default_factory=dict)
    """Pools that are subscribed to."""
    elsewhere: dict[str, Domain] = field(default_factory=dict)
    """All others, of which no more than the epoch is known."""

    def __post_init__(self) -> None:
        self.published = PublishedDevices(self.rules.drivers)

    def complete(self, domain: Domain) -> bool:
        """Whether nothing is known to be missing of what earlier records were based on."""
        facts, needed = self.facts, domain.current.facts_sequence
        whole = facts.synced and facts.whole and facts.is_dated and not domain.unnamed
        return whole and facts.position >= needed and self.knows(domain.name)

    def knows(self, pool: str) -> bool:
        """Whether facts and logs of all pools that it depends on were read.

        A node may hold what only the log of the pool that it left knows: an allocation that
        was cleared and not voided. A log that is lost says nothing; its epoch is voided."""
        position = self.facts.position
        if self.undecodable_for(pool):
            return False
        if self.subscriptions.knows_all(position):
            return self.has_read_all_logs()
        return not self.published.spans_nodes and all(
            self.subscriptions.knows(one, position) and self._has_read_log(one)
            for one in self.ties.of(pool)
        )

    def undecodable_for(self, pool: str) -> str:
        """Why this replica must not decide upon the pool although others may: a message of a newer
        release that it can't decode, of this pool or of one that it depends on; or empty."""
        facts, spans = self.facts, self.published.spans_nodes
        pools = (*self.domains, *self.elsewhere) if spans else self.ties.of(pool)
        for one in pools:
            domain = self.domains.get(one) or self.elsewhere.get(one)
            if domain is not None and domain.undecodable:
                return domain.undecodable
        if not facts.undecodable:
            return ""
        if spans:
            return facts.undecodable.any()
        for one in pools:
            known, members = facts.pools.get(one), facts.members.get(one, {})
            why = facts.undecodable.stop(one, members, known.template if known else "")
            if why:
                return why
        return ""

    def reached(self, pool: str) -> int:
        """Sequence of the last fact applied that has a say in the pool. Replicas that read
        different pools say the same."""
        if self.published.spans_nodes:
            return self.facts.position
        reached = self.facts.reached
        return max(reached.get(one, 0) for one in ("", *self.ties.of(pool)))

    def has_read_all_logs(self) -> bool:
        """Whether all logs were folded to their end once, or as far as they can be."""
        return all(
            domain.read or domain.lost or domain.undecodable for domain in self.domains.values()
        )

    def _has_read_log(self, pool: str) -> bool:
        domain = self.domains.get(pool)
        return domain is None or domain.read or domain.lost

    def ready(self, domain: Domain) -> bool:
        """Whether this replica may append to the domain's log now."""
        return (
            domain.fence is not None
            and not domain.lost
            and domain.current.sequence >= max(1, domain.fence)
            and self.has_room(domain)
            and self.complete(domain)
        )

    def has_room(self, domain: Domain) -> bool:
        """Whether another record may be appended ahead of those not read back yet. While a ready
        domain is decided upon, nothing else of being ready changes."""
        return len(domain.appended) < self.rules.unconfirmed_records

    @property
    def unfinished(self) -> bool:
        """Whether ``Continue`` would go on with something."""
        return any(
            (one.queue.has_active or one.queue.paused) and self.ready(one)
            for one in self.domains.values()
        )

    def is_decidable(self, pod: Pod) -> bool:
        """Whether the pod is dray's to decide upon and all that it takes is known; of one that
        can't be bound only why is decided."""
        pool = self.facts.pools.get(pod.pool)
        return (
            pool is not None
            and pool.owner == names.OWNER_DRAY
            and not pod.other_gates
            and not pod.node
            and pod.phase == "Pending"
            and not pod.deleting
            and bool(self.open_claims(pod) or self.claims_of_others(pod))
        )

    def claims_of_others(self, pod: Pod) -> tuple[Claim, ...]:
        """Claims that keep the pod from being bound: they are allocated for other pods. dray
        reserves a claim for one pod, with its allocation; kube-scheduler does so for each."""
        if pod.binder != names.OWNER_DRAY:
            return ()
        claims = known_claims(self.facts, pod) or ()
        return tuple(one for one in claims if one.reserved_for and pod.uid not in one.reserved_for)

    def open_claims(self, pod: Pod) -> tuple[Claim, ...]:
        """The pod's claims to be allocated together; empty unless all are known and free."""
        found = []
        for claim in known_claims(self.facts, pod) or ():
            if claim.allocation is None:
                if self._is_taken(claim):
                    return ()
                found.append(claim)
        return tuple(found)

    def known_claims(self, pod: Pod) -> tuple[Claim, ...] | None:
        """The pod's claims that concern dray, or None while one of them is missing or ends."""
        return known_claims(self.facts, pod)

    def _is_taken(self, claim: Claim) -> bool:
        """Whether an earlier attempt of the claim is not over yet."""
        for domain in self.domains.values():
            reservation = domain.current.claims.get(claim.uid)
            if reservation is not None and reservation.stage is not Stage.OVER:
                return True
            if claim.decision > claim.void and self._is_unknown(domain, claim, reservation):
                return True
        return False

    def _is_unknown(self, domain: Domain, claim: Claim, known: Reservation | None) -> bool:
        return executed_unknown(claim, known) and pool_of(self.facts, claim) == domain.name
