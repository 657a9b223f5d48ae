"""Why no node has devices for the claims of a pod: what fails, on how many devices or nodes.

All of it is known from the search already: the nodes are in kinds, and each kind has its verdict.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from dray.api.claims import DeviceRequest
from dray.reasons import Reason
from dray_allocator.claim_search.node_equivalence_cache import NodeEquivalence, node_of
from dray_allocator.claim_search.schedule import FIRST_LOOKS, HARD_NODES, NodeSearch
from dray_allocator.claim_search.visible_devices import seen_by
from dray_allocator.claim_search.visible_pools import VisiblePools, is_bad, pools_of
from dray_allocator.devices.budget import NODE_LOOKS
from dray_allocator.devices.percentages import Share
from dray_allocator.explain.device_failures import Devices
from dray_allocator.explain.nodes import of_the_pool, on_nodes
from dray_allocator.explain.pods import TOO_MANY, constrained, together
from dray_allocator.explain.representative_devices import RepresentativeDevices
from dray_allocator.placement.affected_requests import each_once
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.topology import must_be_connected
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState

_MOST_REASONS = 24
_NO_DEVICES = "no slice with devices, or not all slices of its pool's newest generation"


def explain_in_full(
    state: AllocatorState, domain: Domain, wanted: PodRequest
) -> tuple[Reason, ...]:
    """The reasons, ordered from the claims' own words to the state of the nodes."""
    nodes = state.facts.served_nodes(domain.name)
    of_pool = of_the_pool(state, domain.name)
    if not nodes:
        return tuple(of_pool)
    walk = NodeSearch(state, domain, wanted)
    if must_be_connected(wanted.asks, wanted.placement):  # Then the node table decides.
        found = _NodeClasses(walk, len(nodes)).reasons(nodes)
        return (*of_pool, *found, *together(state, domain, wanted))
    walk.choice()
    if walk.ended_at:
        return (*of_pool, *_of_error(walk, walk.ended_at, len(nodes), len(nodes)))
    return (*of_pool, *_NodeClasses(walk, len(nodes)).reasons(nodes))


@dataclass(slots=True)
class _NodeClasses:
    """The nodes in kinds, and how many there are of each."""

    walk: NodeSearch
    nodes: int
    kinds: dict[int, tuple[NodeEquivalence, VisiblePools]] = field(default_factory=dict)
    """By identity."""
    counts: dict[int, int] = field(default_factory=dict)
    first: dict[int, str] = field(default_factory=dict)
    """The first node of each, by its tie: what names things names this one's."""
    unfit: int = 0
    errors: int = 0
    hard: int = 0
    untried: int = 0
    error_at: str = ""

    def __post_init__(self) -> None:
        judged, hard = self.walk.prospect.judged, self.walk.hard
        patient = dict.fromkeys(hard[:HARD_NODES])
        for node, kind, account in self.walk.kinds():
            self.kinds[id(kind)] = kind, account
            self.counts[id(kind)] = self.counts.get(id(kind), 0) + 1
            self.first.setdefault(id(kind), node)
            if node in judged:
                self._count(node, kind, is_patient=node in patient)

    def _count(self, node: str, kind: NodeEquivalence, *, is_patient: bool) -> None:
        verdict = kind.verdict
        if verdict is None:
            return
        if verdict.is_error:
            self.errors += 1
            self.error_at = self.error_at or node
        elif not verdict.is_hard:
            self.unfit += verdict.rank is None
        elif not is_patient:
            self.untried += 1
        elif kind.patient is not None and kind.patient.is_hard:
            self.hard += 1
        else:
            self.unfit += 1

    def reasons(self, nodes: list[str]) -> tuple[Reason, ...]:
        """All of them, each once."""
        walk, rules = self.walk, self.walk.asked.rules
        naming = RepresentativeDevices(walk.state, rules, walk.prospect.forms)
        devices = Devices(walk.state, walk.asked, naming)
        for key, (_, account) in self.kinds.items():
            devices.see(account, self.first[key], self.counts[key])
        found = [*self._pools(), *self._unread(devices.found)]
        alike: dict[Hashable, list[tuple[str, DeviceRequest, Share]]] = {}
        for one in walk.asked.named():
            alike.setdefault(_same(*one[1:]), []).append(one)
        found += each_once(
            [
                ([name for name, _, _ in some], devices.reasons(*some[0][1:]))
                for some in alike.values()
            ]
        )
        found += on_nodes(walk.state, walk.wanted, nodes, walk.index)
        found += self._outcomes()
        if not devices.groups:
            found.append(Reason("count", "no devices", len(nodes), len(nodes), "node", _NO_DEVICES))
        return tuple(dict.fromkeys(found))[:_MOST_REASONS]

    def _pools(self) -> Iterator[Reason]:
        """Pools that can't be used."""
        count = failed = 0
        bad_at: list[str] = []
        shared: dict[str, bool] = {}
        for key, (_, account) in self.kinds.items():
            count += account.own_pools * self.counts[key]
            failed += account.bad_pools * self.counts[key]
            shared.update(account.shared_pools)
            if account.bad_pools or any(account.shared_pools.values()):
                bad_at.append(self.first[key])
        if bad_at:
            what, worst = "incomplete or invalid", self._fault_on(bad_at[0])
            failed, count = failed + sum(shared.values()), count + len(shared)
            yield Reason("count", what, failed, count, "pool", worst)

    def _fault_on(self, node: str) -> str:
        """The first pool that can't be used there, and why."""
        state = self.walk.state
        pools = pools_of(node_of(state, node), seen_by(state, node, None), self.walk.asked.rules)
        pool = min(filter(is_bad, pools), key=str)
        return f"{pool}: {pool.invalid or 'not all slices of its newest generation are there'}"

    def _unread(self, devices: int) -> Iterator[Reason]:
        """Devices that can't be read."""
        faults = [
            (fault, self.counts[key])
            for key, (kind, _) in self.kinds.items()
            for _, fault in kind.seen.unread
        ]
        if faults:
            failed = sum(count for _, count in faults)
            yield Reason(
                "unsupported", "unparsable", failed, devices + failed, detail=min(faults)[0]
            )

    def _outcomes(self) -> Iterator[Reason]:
        """What came of the nodes that take the pod, its devices aside."""
        if self.error_at:
            yield from _of_error(self.walk, self.error_at, self.errors, self.nodes)
        meeting = constrained(self.walk.wanted.claims)
        what = f"not enough devices for all its requests together{meeting}"
        for failed, text, detail in (
            (self.unfit, what, ""),
            (self.hard, f"no choice of devices among the first {NODE_LOOKS} tried", TOO_MANY),
            (self.untried, f"no choice of devices among the first {FIRST_LOOKS} tried", TOO_MANY),
        ):
            if failed:
                yield Reason("count", text, failed, self.nodes, "node", detail)


def _of_error(walk: NodeSearch, node: str, failed: int, nodes: int) -> Iterator[Reason]:
    """Why it can't be decided on a node, in the allocator's words; pods that ask for the same share
    them, so that no claim is named."""
    trial = walk.trial(node, FIRST_LOOKS)
    error = f"on {node}: {trial.error}"
    for claim in walk.asked.claims:
        error = error.replace(f"claim {claim}", "the claim")
    if trial.verdict.ends_attempt:
        error = f"{error}; as in kube-scheduler, that ends the attempt for all nodes"
    yield Reason("count", "the search for devices failed", failed, nodes, "node", error)


def _same(ask: DeviceRequest, share: Share) -> Hashable:
    """Equal for requests that fail alike on every device."""
    amounts = str(ask.capacity)
    return ask.device_class, ask.selectors, amounts, ask.tolerations, ask.admin_access, share
