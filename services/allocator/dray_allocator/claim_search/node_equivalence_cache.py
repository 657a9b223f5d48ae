"""What is remembered of the nodes for pods of one signature, and the order in which they come.

The node table's index holds the nodes that may fit, in the order of the placement. A node on which
the claims don't fit is ruled out there until it changes, as the nodes of other pods are: who waits
is tried again only once a node came back. Nodes that are alike share a verdict, so that a search
costs what differs and not what there is.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dray.api.pods import Node
from dray_allocator.claim_search.device_equivalence import DeviceEquivalence, questions_of
from dray_allocator.claim_search.node_equivalence import key_of
from dray_allocator.claim_search.node_trial import Feasibility
from dray_allocator.claim_search.pod_search import PodSearch
from dray_allocator.claim_search.visible_devices import VisibleDevices, seen_by
from dray_allocator.claim_search.visible_pools import VisiblePools
from dray_allocator.nodes.columns import Flags, Whole
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.plan import plan_of
from dray_allocator.nodes.ratings import LoadScore, Look, Rank, Scoring
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState

_KINDS_KEPT: Final = 1024
"""Classes without a node, allowed besides as many as there are nodes."""
_BY_LOAD: Final = LoadScore(node_fills=True, card_fills=True)


@dataclass(slots=True, eq=False)
class NodeEquivalence:
    """Nodes that are alike, and one of them as it was."""

    node: Node
    seen: VisibleDevices
    verdict: Feasibility | None = None
    """None: not tried yet."""
    patient: Feasibility | None = None
    """Of the long search, where the short one did not end."""
    account: VisiblePools | None = None
    """None: not counted yet."""


@dataclass(slots=True)
class NodeEquivalenceCache:
    """The nodes of a pool as the pods of one signature find them."""

    forms: DeviceEquivalence
    of: dict[str, NodeEquivalence] = field(default_factory=dict)
    """Per node that was looked at since it changed."""
    judged: dict[str, None] = field(default_factory=dict)
    """Those of them that take the pod, its devices aside."""
    kinds: dict[Hashable, NodeEquivalence] = field(default_factory=dict)
    _position: int = 0
    _shared: int = -1

    def catch_up(self, table: NodeTable, shared: int) -> None:
        """Forget the nodes that changed; all, where what many nodes see did (``shared``)."""
        if self._shared != shared or self._position < table.log_start:
            self.of.clear()
            self.judged.clear()
            self.kinds.clear()
        else:
            for row in table.log[self._position - table.log_start :]:
                self.of.pop(table.names[row], None)
                self.judged.pop(table.names[row], None)
        self._position, self._shared = table.version, shared
        if len(self.kinds) > 2 * table.height + _KINDS_KEPT:
            self.kinds.clear()

    def look_at(self, state: AllocatorState, asked: PodSearch, name: str) -> NodeEquivalence:
        """The kind of a node, as things are now."""
        known = self.of.get(name)
        if known is None:
            node, seen = node_of(state, name), seen_by(state, name, asked.rate(state))
            known = self.kinds.setdefault(
                key_of(node, seen, self.forms), NodeEquivalence(node, seen)
            )
            self.of[name] = known
        return known


class SearchScore:
    """Nodes by the share in use of their cards; as kube-scheduler decides, all are alike."""

    def __init__(self, state: AllocatorState, asked: PodSearch) -> None:
        self._state = state
        self._load = asked.load
        questions = questions_of(asked.claims, state.facts.classes, asked.rules)
        self.prospect = NodeEquivalenceCache(DeviceEquivalence(questions))

    @property
    def version(self) -> int:
        """Changes with what many nodes see: a node that it ruled out may fit."""
        return self._state.shared_version

    def of(self, table: NodeTable, row: int, suiting: Sequence[Flags]) -> int:
        """By load, or nothing."""
        return self._load.of(table, row, suiting) if self._load else 0

    def of_many(self, table: NodeTable, look: Look) -> Whole:
        """The same of many nodes."""
        found = (self._load or _BY_LOAD).of_many(table, look)
        return found if self._load else np.zeros_like(found)

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """Cards by load; the search has an order of its own."""
        return (self._load or _BY_LOAD).order(table, row, cards)

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The same."""
        return (self._load or _BY_LOAD).rank(table, row)


def prospect_of(
    state: AllocatorState, domain: Domain, wanted: PodRequest, asked: PodSearch
) -> tuple[NodeIndex, NodeEquivalenceCache]:
    """The nodes for pods like this one, as things are now."""
    index = state.tables.index(
        domain.name,
        wanted.signature,
        scoring=Scoring(("lane", asked.key), lambda table, plan: SearchScore(state, asked)),
        plan=lambda table: plan_of(
            table, state.selectors, (), wanted.pod.needs, alone=wanted.alone
        ),
        selectors=state.selectors,
    )
    score = index.score
    assert isinstance(score, SearchScore)
    score.prospect.catch_up(index.table, score.version)
    return index, score.prospect


def node_of(state: AllocatorState, name: str) -> Node:
    """The node as slices see it."""
    return state.facts.nodes[name].node
