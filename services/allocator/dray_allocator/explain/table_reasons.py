"""Why a pod fits on no node, from the node table."""

from collections.abc import Hashable, Sequence

import numpy as np

from dray.api.claims import Claim
from dray.reasons import Reason
from dray_allocator.devices.budget import MAX_TRIES_PER_NODE, MAX_TRIES_PER_POD, SearchBudget
from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.node_search import DeviceSearch
from dray_allocator.devices.ordered_search import Rating
from dray_allocator.devices.published_devices import Card
from dray_allocator.explain.affected_requests import each_once, named
from dray_allocator.explain.card_reasons import CardReasons
from dray_allocator.nodes.columns import expand_ranges
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.placement.fast_path.table_choice import index_of
from dray_allocator.placement.node_filter import candidates
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.topology import CONNECTED, must_be_connected
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

TOO_MANY = (
    "a choice may exist, but there are too many to try them all: request fewer devices, or use "
    "fewer constraints"
)
_NOT_CONNECTABLE = (
    "only devices that a node publishes for itself, and no partitions, can be connected"
)


class TableReasons:
    """The reasons of one pod, from the node table's columns."""

    def __init__(self, state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> None:
        self.index = index_of(state, domain, wanted)
        self._state = state
        self._domain = domain
        self._wanted = wanted
        unhealthy = state.published.unhealthy_counts.items()
        self._unhealthy = sum(
            count for node, count in unhealthy if state.facts.serves(node, domain.name)
        )

    @property
    def devices(self) -> int:
        """The number of devices on the nodes."""
        return self.index.table.cards + self._unhealthy

    def of_devices(self) -> list[Reason]:
        """What fails on the devices, by request."""
        found: list[Reason] = []
        wanted, table = self._wanted, self.index.table
        if self._unhealthy:
            found.append(Reason("in-use", "unhealthy", self._unhealthy, self.devices))
        if table.cards:
            cards = CardReasons(self._state, table)
            alike: dict[Hashable, list[DeviceRequirements]] = {}
            for ask in wanted.pattern.asks:
                alike.setdefault(_same(ask), []).append(ask)
            found += each_once(
                [
                    (
                        [named(ask.request.name, ask.claim, wanted.claims) for ask in asks],
                        cards.reasons(asks[0]),
                    )
                    for asks in alike.values()
                ]
            )
            self.index.catch_up(self._state.selectors)  # Cards may have more kinds now.
        return found

    def of_nodes(self) -> list[Reason]:
        """On how many nodes the requests don't fit together."""
        return together(self._state, self._domain, self._wanted)


def _same(ask: DeviceRequirements) -> Hashable:
    """Equal for requests with equal results on every card."""
    return (
        ask.signature,
        str(sorted(ask.request.capacity.items())),
        str(sorted(ask.percents.items())),
    )


def together(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> list[Reason]:
    """On how many nodes the requests don't fit together, if they need several devices or have
    constraints."""
    count = sum(ask.request.count for ask in wanted.pattern.asks)
    if count <= 1 and not any(ask.constraints for ask in wanted.pattern.asks):
        return []
    domain_nodes = state.facts.served_nodes(domain.name)
    total = len(domain_nodes)
    enough = unsure = 0
    budget, index = SearchBudget(MAX_TRIES_PER_POD), index_of(state, domain, wanted)
    must = must_be_connected(wanted.pattern.asks, wanted.pattern.placement)
    for node in _with_enough(index, candidates(state, domain, wanted)):
        on_node = budget.part(MAX_TRIES_PER_NODE)
        search = DeviceSearch(
            wanted.pattern.asks,
            wanted.pattern.plan,
            state.device_usage,
            state.selectors,
            _equal_rating,
            on_node,
        )
        is_placed = search.best(state.published.of(node), connects=must, must=must) is not None
        enough += is_placed
        unsure += not is_placed and on_node.ran_out
    fewer = "no matching device" if count == 1 else f"fewer than {count} matching devices"
    what = f"{fewer} with room on one node"
    most = max((len(state.published.of(name).cards) for name in domain_nodes), default=0)
    detail = f"no node has more than {most}" if count > most > 0 else ""
    if must:
        what, detail = (
            f"{what}, {CONNECTED}",
            _NOT_CONNECTABLE if state.published.beyond_table else detail,
        )
    reasons = {f"{what}{constrained(wanted.claims)}": (total - enough - unsure, detail)}
    reasons[f"no choice of {count} devices among the first {MAX_TRIES_PER_NODE} tried"] = (
        unsure,
        TOO_MANY,
    )
    return [
        Reason("count", what, failed, total, "node", detail)
        for what, (failed, detail) in reasons.items()
        if failed
    ]


def _with_enough(index: NodeIndex, nodes: Sequence[str]) -> list[str]:
    """The nodes on which every request has enough cards, if it is considered alone."""
    table = index.table
    rows = np.array([table.rows[name] for name in nodes], np.intp)
    places, owner = expand_ranges(table.first[rows], table.count[rows])
    enough = np.ones(len(rows), np.bool_)
    for need in index.plan.cards:
        found = owner[need.fitting(table, places)]
        enough &= np.bincount(found, minlength=len(rows)) >= need.count
    return [nodes[at] for at in enough.nonzero()[0].tolist()]


def _equal_rating(ask: DeviceRequirements, card: Card) -> Rating:
    """Equal ratings: whether devices exist does not depend on their order."""
    return (), 0, 0


def constrained(claims: Sequence[Claim]) -> str:
    """The text for the claims' constraints."""
    found: dict[str, None] = {}
    for constraint in (one for claim in claims for one in claim.spec.constraints):
        for rule, name in (
            ("matchAttribute", constraint.match_attribute),
            ("distinctAttribute", constraint.distinct_attribute),
        ):
            if name is not None:
                found[f"{rule} {name}"] = None
    return f" that meet {' and '.join(found)}" if found else ""
