"""The allocator's state: facts and logs folded, and what follows from both.

``refresh_*`` recompute what follows for one object from its latest fact and the latest
records about it. They may be called at any time and any number of times: the state is a
function of the two maps, not of the order in which they were filled.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

from dray.api.claims import Allocation
from dray.api.devices import DeviceId
from dray.messages.decisions import PodDecision
from dray_allocator.devices.device_usage import DeviceUsage
from dray_allocator.devices.node_devices import Card
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.nodes.assumed_pods import AssumedPods, AssumedResources
from dray_allocator.nodes.source import Source
from dray_allocator.nodes.tables import NodeTables, Pools
from dray_allocator.state.caught_up import ObservedState
from dray_allocator.state.decision_log import Reservation, Stage, Touched
from dray_allocator.state.domain import Domain
from dray_allocator.state.facts import ClaimName
from dray_allocator.state.pending_allocations import counts, merely_held
from dray_allocator.state.pod_requirements import PodPatterns

_CACHES = ("tables", "patterns")


@dataclass(frozen=True, slots=True)
class Suspect:
    """Why a device is to be checked."""

    claim_uid: str
    """The claim that uses more of it than before."""
    ticks: int = 0
    """Ticks since."""


@dataclass(slots=True)
class AllocatorState(ObservedState):
    """Everything the decisions depend on, and what is cached of it."""

    stopwatch: Callable[[], int] = int
    """Microseconds; measured for people, never decided upon. ``int`` says 0, for replays."""
    tables: NodeTables = field(init=False)
    device_usage: DeviceUsage = field(default_factory=DeviceUsage)
    assumed_pods: AssumedPods = field(default_factory=AssumedPods)
    selectors: SelectorCache = field(default_factory=SelectorCache)
    patterns: PodPatterns = field(default_factory=PodPatterns)
    shared_version: int = 0
    """Moves when devices that many nodes see change, or what is in use of them."""
    suspects: dict[DeviceId, Suspect] = field(default_factory=dict)
    """Devices of which more is used than before; to be checked."""

    def __post_init__(self) -> None:
        ObservedState.__post_init__(self)  # "super" knows the class before its slots were made
        self._make_tables()

    def __getstate__(self) -> dict[str, object]:
        """For copies, without caches: tables read this very state, a copy's must read the copy."""
        named = [one.name for one in fields(self) if one.name not in _CACHES]
        return {name: getattr(self, name) for name in named}

    def __setstate__(self, copied: dict[str, object]) -> None:
        for name, value in copied.items():
            setattr(self, name, value)
        self.patterns = PodPatterns()
        self._make_tables()

    def _make_tables(self) -> None:
        source = Source(
            node=lambda name: self.facts.nodes[name].node,
            held=self.assumed_pods.on,
            cards=lambda name: self.published.of(name).cards,
            use=self.device_usage.of,
        )
        pools = Pools(
            nodes=lambda pool: self.facts.served_nodes(pool),
            of=lambda node: self.facts.pool_served_by(node),
        )
        self.tables = NodeTables(source, pools)

    def count(self, domain: Domain, decision: PodDecision) -> None:
        """Let a decision about open claims count, as ``touch`` would find once it is written:
        they use what they get, no earlier attempt counts, and their pods have no turn more."""
        pod_uid, node, pods_of = decision.pod_uid, decision.node, self.facts.pods_of
        domain.current.take(decision, self.facts.now_unix_s)
        domain.queue.remove(pod_uid)
        if self.assumed_pods.has(pod_uid):  # An earlier attempt has not ended in a log yet.
            self.refresh_hold(pod_uid)
        elif not self._is_counted(pod_uid, node):
            self.assumed_pods.set(pod_uid, node, _held(decision))
        devices: list[DeviceId] = []
        for claim in decision.claims:
            uid = claim.uid
            domain.unsettled[uid] = None
            for device in self.device_usage.set(uid, self._use(uid)).taken:
                self._suspect(device, uid)
                devices.append(device)
            pods = pods_of.get((claim.namespace, claim.name), ())
            for other in pods if len(pods) > 1 else ():
                if other != pod_uid:
                    self.refresh_pod(other)
        self._use_changed(devices, node)

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
        claims = [uid for uid, _ in self.device_usage.claims()]
        claims += [*self.facts.claims, *(r.claim_uid for r in self.reservations())]
        for claim_uid in dict.fromkeys(claims):
            self.refresh_claim(claim_uid)
        pods = [*self.facts.pods, *self.assumed_pods.pods()]
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
        if not self._is_untouched(claim_uid):
            self._refresh_use(claim_uid)
        for pod_uid in self._pods_of(claim_uid):
            self.refresh_pod(pod_uid)

    def _is_untouched(self, claim_uid: str) -> bool:
        """Whether the claim uses nothing and is in no log, as one that is new."""
        claim = self.facts.claims.get(claim_uid)
        if claim is None or claim.allocation is not None or claim.decision:
            return False
        if self.device_usage.has(claim_uid):
            return False
        for domain in self.domains.values():
            if claim_uid in domain.unsettled or claim_uid in domain.current.claims:
                return False
        return True

    def _refresh_use(self, claim_uid: str) -> None:
        self._set_use(claim_uid, self._use(claim_uid))
        for domain in self.domains.values():
            self._refresh_unsettled(domain, claim_uid)

    def _set_use(self, claim_uid: str, allocation: Allocation | None) -> None:
        change = self.device_usage.set(claim_uid, allocation)
        for device in change.taken:
            self._suspect(device, claim_uid)
        self._use_changed((*change.taken, *change.freed))
        for device in change.freed:
            self.capacity_freed_on(device)

    def _suspect(self, device: DeviceId, claim_uid: str) -> None:
        before = self.suspects.get(device)
        self.suspects[device] = Suspect(claim_uid, 0 if before is None else before.ticks)

    def is_reserved(self, claim_uid: str) -> bool:
        """Whether an attempt at the claim stands in a log that is read and is not over."""
        known = (domain.current.claims.get(claim_uid) for domain in self.domains.values())
        return any(one is not None and one.stage is not Stage.OVER for one in known)

    def tick(self) -> None:
        """Count a tick for devices that are to be checked."""
        for device, suspect in self.suspects.items():
            self.suspects[device] = replace(suspect, ticks=suspect.ticks + 1)

    def _use_changed(self, devices: Sequence[DeviceId], node: str = "") -> None:
        """More or less is used of devices, and maybe held on a node."""
        changed: dict[str, list[Card]] = {node: []} if node else {}
        for device in devices:
            card = self.published.card(device)
            if card is not None:
                changed.setdefault(card.node, []).append(card)
            elif device.driver in self.rules.drivers:
                self.shared_version += 1  # No table tells who sees it.
        for name, cards in changed.items():
            self.tables.use_changed(name, cards)

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
                node, held = decision.node, _held(decision)
        if held is not None or self.assumed_pods.has(pod_uid):
            self._set_hold(pod_uid, node, held)

    def _set_hold(self, pod_uid: str, node: str, held: AssumedResources | None) -> None:
        version = self.assumed_pods.version
        freed_on = self.assumed_pods.set(pod_uid, node, held)
        if version == self.assumed_pods.version:
            return
        if node:
            self.tables.use_changed(node)
        if freed_on:
            self.tables.use_changed(freed_on)
            self.capacity_changed_on_node(freed_on)

    def _is_held(self, pod_uid: str, node: str) -> bool:
        pod = self.facts.pods.get(pod_uid)
        if pod is None:
            return pod_uid not in self.facts.gone_pods
        runs = pod.phase in ("Pending", "Running") and pod.node in ("", node)
        return runs and not self._is_counted(pod_uid, node)

    def _is_counted(self, pod_uid: str, node: str) -> bool:
        """Whether the node's published sums contain the pod."""
        fact = self.facts.nodes.get(node)
        return fact is not None and pod_uid in fact.counted

    def refresh_pod(self, pod_uid: str) -> None:
        """Whether a decision could help the pod; then it is tried soon."""
        pod = self.facts.pods.get(pod_uid)
        pool = pod.pool if pod is not None and self.is_decidable(pod) else ""
        for domain in self.domains.values():
            if pod is not None and domain.name == pool:
                key = (-pod.priority, pod.created_unix_s, pod.uid)
                # A replica that begins to serve activates all pods.
                domain.queue.add(pod_uid, key, activate=domain.serving)
            else:
                domain.queue.remove(pod_uid)

    def capacity_freed_on(self, device: DeviceId) -> None:
        """Something of a device was freed."""
        card = self.published.card(device)
        if card is None and device.driver in self.rules.drivers:
            self.capacity_changed_everywhere()
        else:
            self.capacity_changed_on_node(card.node if card else device.pool)

    def capacity_changed_on_node(self, node: str) -> None:
        """Something of a node was freed, added or changed."""
        fact = self.facts.nodes.get(node)
        domain = self.domains.get(fact.node.pool) if fact else None
        if domain is not None:
            domain.queue.capacity_version += 1

    def capacity_changed_everywhere(self) -> None:
        """Something that all domains look at changed."""
        for domain in self.domains.values():
            domain.queue.capacity_version += 1


def _held(decision: PodDecision) -> AssumedResources:
    """What a pod takes of its node once it is there."""
    cpu_milli, memory_bytes = decision.cpu_milli, decision.memory_bytes
    return AssumedResources(cpu_milli, memory_bytes, 1, decision.resources, decision.ports)
