"""The allocator's state: facts and logs folded, and what follows from both.

``refresh_*`` recompute what follows for one object from its latest fact and the latest
records about it. They may be called at any time and any number of times: the state is a
function of the two maps, not of the order in which they were filled.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from dray.domain import names
from dray.domain.claims import Allocation, Claim
from dray.domain.devices import DeviceId
from dray.domain.pods import Pod
from dray.messages.decisions import PodDecision
from dray_allocator.board.boards import Boards, Pools
from dray_allocator.board.source import Source
from dray_allocator.domain import Domain
from dray_allocator.facts import ClaimName
from dray_allocator.fit.ledger import Ledger
from dray_allocator.fit.selectors import Selectors
from dray_allocator.known import Known
from dray_allocator.log.fold import Reservation, Stage, Touched
from dray_allocator.log.lives import counts, executed_unknown, merely_held
from dray_allocator.node.holds import Held, Holds
from dray_allocator.placement.pattern import Patterns
from dray_allocator.referring import known_claims, pool_of

_CACHES = ("boards", "patterns")


@dataclass(slots=True)
class AllocatorState(Known):
    """Everything the decisions depend on, and what is cached of it."""

    stopwatch: Callable[[], int] = int
    """Microseconds; measured for people, never decided upon. ``int`` says 0, for replays."""
    boards: Boards = field(init=False)
    ledger: Ledger = field(default_factory=Ledger)
    holds: Holds = field(default_factory=Holds)
    selectors: Selectors = field(default_factory=Selectors)
    patterns: Patterns = field(default_factory=Patterns)
    shared_version: int = 0
    """Moves when devices that many nodes see change, or what is in use of them."""
    suspects: dict[DeviceId, str] = field(default_factory=dict)
    """Devices of which more is used than before, with the claim; to be checked."""

    def __post_init__(self) -> None:
        Known.__post_init__(self)  # "super" knows the class before its slots were made
        self._make_boards()

    def __getstate__(self) -> dict[str, object]:
        """For copies, without caches: boards read this very state, a copy's must read the copy."""
        named = [one.name for one in fields(self) if one.name not in _CACHES]
        return {name: getattr(self, name) for name in named}

    def __setstate__(self, copied: dict[str, object]) -> None:
        for name, value in copied.items():
            setattr(self, name, value)
        self.patterns = Patterns()
        self._make_boards()

    def _make_boards(self) -> None:
        source = Source(
            node=lambda name: self.facts.nodes[name].node,
            held=self.holds.on,
            cards=lambda name: self.fleet.of(name).cards,
            use=self.ledger.of,
        )
        pools = Pools(
            nodes=lambda pool: self.facts.served_nodes(pool),
            of=lambda node: self.facts.pool_served_by(node),
            card=lambda device: self.fleet.card(device),
        )
        self.boards = Boards(source, pools)

    def count(self, domain: Domain, decision: PodDecision) -> None:
        """Let a decision about open claims count, as ``touch`` would find once it is written:
        they use what they get, no earlier attempt counts, and their pods have no turn more."""
        domain.current.count((decision,), self.facts.now_unix_s)
        domain.pending.pop(decision.pod_uid, None)
        domain.late.pop(decision.pod_uid, None)
        self.refresh_hold(decision.pod_uid)
        for claim in decision.claims:
            self._set_use(claim.uid, self._use(claim.uid))
            domain.unsettled[claim.uid] = None
            for pod_uid in self.facts.pods_named((claim.namespace, claim.name)):
                if pod_uid != decision.pod_uid:
                    self.refresh_pod(pod_uid)

    def touch(self, touched: Touched) -> None:
        """Recompute what a record was about."""
        pods = dict.fromkeys(touched.pods)
        for claim_uid in touched.claims:
            self._refresh_use(claim_uid)
            pods.update(dict.fromkeys(self._pods_of(claim_uid)))
        for pod_uid in touched.pods:
            self.refresh_hold(pod_uid)
        for pod_uid in pods:
            self.refresh_pod(pod_uid)

    def refresh_all(self) -> None:
        """Recompute everything, after facts or a log were lost."""
        claims = [uid for uid, _ in self.ledger.claims()]
        claims += [*self.facts.claims, *(r.claim_uid for r in self.reservations())]
        for claim_uid in dict.fromkeys(claims):
            self.refresh_claim(claim_uid)
        pods = [*self.facts.pods, *self.holds.pods()]
        pods += [uid for domain in self.domains.values() for uid in domain.current.pods]
        for pod_uid in dict.fromkeys(pods):
            self.refresh_hold(pod_uid)
            self.refresh_pod(pod_uid)

    def reservations(self) -> Iterator[Reservation]:
        """Every reservation of every log, whatever its stage."""
        for domain in self.domains.values():
            yield from domain.current.claims.values()

    def refresh_claim(self, claim_uid: str) -> None:
        """What the claim uses, whether a reservation of it must end, and its pods' turns."""
        self._refresh_use(claim_uid)
        for pod_uid in self._pods_of(claim_uid):
            self.refresh_pod(pod_uid)

    def _refresh_use(self, claim_uid: str) -> None:
        self._set_use(claim_uid, self._use(claim_uid))
        for domain in self.domains.values():
            self._refresh_unsettled(domain, claim_uid)

    def _set_use(self, claim_uid: str, allocation: Allocation | None) -> None:
        change = self.ledger.set(claim_uid, allocation)
        for device in change.taken:
            self._use_changed(device)
            self.suspects[device] = claim_uid
        for device in change.freed:
            self._use_changed(device)
            self.supply_on(device)

    def _use_changed(self, device: DeviceId) -> None:
        self.boards.card_changed(device)
        if self.fleet.card(device) is None and device.driver in self.rules.drivers:
            self.shared_version += 1  # No board tells who sees it.

    def _pods_of(self, claim_uid: str) -> tuple[str, ...]:
        """The pods that refer to a claim, while it is known."""
        claim = self.facts.claims.get(claim_uid)
        return () if claim is None else self.facts.pods_named((claim.namespace, claim.name))

    def refresh_pods_of(self, claim: ClaimName) -> None:
        """The turns of the pods that refer to a claim, which may be gone."""
        for pod_uid in self.facts.pods_named(claim):
            self.refresh_pod(pod_uid)

    def _use(self, claim_uid: str) -> Allocation | None:
        """``status.allocation``, else what is reserved in whichever log."""
        claim = self.facts.claims.get(claim_uid)
        if claim is not None and claim.allocation is not None:
            return claim.allocation
        gone = claim_uid in self.facts.gone_claims
        used: Allocation | None = None
        for domain in self.domains.values():
            reservation = domain.current.claims.get(claim_uid)
            if reservation is not None and counts(reservation, claim, gone):
                more = reservation.allocation
                used = more if used is None else Allocation((*used.devices, *more.devices))
        return used

    def _refresh_unsettled(self, domain: Domain, claim_uid: str) -> None:
        claim = self.facts.claims.get(claim_uid)
        reservation = domain.current.claims.get(claim_uid)
        if reservation is None:
            unsettled = claim is not None and self._is_unknown(domain, claim, None)
        elif reservation.stage is Stage.HELD:
            unsettled = True
        elif reservation.stage is Stage.COMMITTED:
            unsettled = claim is None or claim.allocation is None
        else:
            unsettled = claim is None
        if unsettled:
            domain.unsettled[claim_uid] = None
            if not merely_held(reservation, claim):
                domain.settle = True
        else:
            domain.unsettled.pop(claim_uid, None)
            domain.asked.pop(claim_uid, None)

    def refresh_hold(self, pod_uid: str) -> None:
        """Whether the log must hold what the pod takes of its node, whose sum lacks it."""
        node, held = "", None
        for domain in self.domains.values():
            decision = domain.current.pods.get(pod_uid)
            if decision is not None and self._is_held(pod_uid, decision.node):
                node = decision.node
                held = Held(
                    decision.cpu_milli,
                    decision.memory_bytes,
                    1,
                    decision.resources,
                    decision.ports,
                )
        if held is None and not self.holds.has(pod_uid):
            return
        version = self.holds.version
        freed_on = self.holds.set(pod_uid, node, held)
        if version == self.holds.version:
            return
        if node:
            self.boards.hold_changed(node)
        if freed_on:
            self.boards.hold_changed(freed_on)
            self.supply_of_node(freed_on)

    def _is_held(self, pod_uid: str, node: str) -> bool:
        pod = self.facts.pods.get(pod_uid)
        if pod is None:
            return pod_uid not in self.facts.gone_pods
        fact = self.facts.nodes.get(node)
        counted = fact is not None and pod_uid in fact.counted
        return pod.phase in ("Pending", "Running") and pod.node in ("", node) and not counted

    def refresh_pod(self, pod_uid: str) -> None:
        """Whether a decision could help the pod; then it is tried soon."""
        pod = self.facts.pods.get(pod_uid)
        for domain in self.domains.values():
            if pod is not None and domain.name == pod.pool and self.is_decidable(pod):
                turn = (-pod.priority, pod.created_unix_s, pod.uid)
                domain.pending[pod_uid] = turn
                if domain.serving:  # whoever begins to serve puts all up for trial
                    heapq.heappush(domain.due, turn)
            elif domain.pending.pop(pod_uid, None) is not None:
                domain.late.pop(pod_uid, None)

    def is_decidable(self, pod: Pod) -> bool:
        """Whether the pod is dray's to decide upon and all that it takes is known."""
        pool = self.facts.pools.get(pod.pool)
        return (
            pool is not None
            and pool.owner == names.OWNER_DRAY
            and not pod.other_gates
            and not pod.node
            and pod.phase == "Pending"
            and not pod.deleting
            and bool(self.open_claims(pod))
        )

    def open_claims(self, pod: Pod) -> tuple[Claim, ...]:
        """The pod's claims to be allocated together; empty unless all are known and free."""
        found = []
        for claim in self.known_claims(pod) or ():
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
            if claim.decision and self._is_unknown(domain, claim, reservation):
                return True
        return False

    def _is_unknown(self, domain: Domain, claim: Claim, known: Reservation | None) -> bool:
        return executed_unknown(claim, known) and pool_of(self.facts, claim) == domain.name

    def supply_on(self, device: DeviceId) -> None:
        """Something of a device was freed."""
        card = self.fleet.card(device)
        if card is None and device.driver in self.rules.drivers:
            self.supply_everywhere()
        else:
            self.supply_of_node(card.node if card else device.pool)

    def supply_of_node(self, node: str) -> None:
        """Something of a node was freed, added or changed."""
        fact = self.facts.nodes.get(node)
        domain = self.domains.get(fact.node.pool) if fact else None
        if domain is not None:
            domain.more_supply()

    def supply_everywhere(self) -> None:
        """Something that all domains look at changed."""
        for domain in self.domains.values():
            domain.more_supply()
