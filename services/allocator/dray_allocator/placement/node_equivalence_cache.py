"""Results of the search per class of nodes, for pods of one signature.

The node table's index has the nodes that may fit, in the order of the placement. A node that does
not fit is ruled out in the index until it changes, so that a pending pod is searched again only if
a node changed. Nodes of one class share a result.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dray.api import names
from dray.api.pods import Node
from dray_allocator.devices.device_equivalence import (
    AttributeName,
    DeviceEquivalence,
    attributes_read,
)
from dray_allocator.devices.node_equivalence import node_key
from dray_allocator.devices.visible_devices import VisibleDevices, visible_devices
from dray_allocator.devices.visible_pools import VisiblePools
from dray_allocator.nodes.columns import Flags, Whole
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.plan import CardNeed, FilterPlan, filter_plan
from dray_allocator.nodes.ratings import NodeBatch, NodeScore, Rank, Scoring
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.node_trial import Feasibility
from dray_allocator.placement.pod_claims import PodClaims
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.preference import MODEL
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

_CLASSES_KEPT: Final = 1024
"""How many classes without a node are kept, in addition to one class per node."""
_PREFERRED: Final[tuple[AttributeName, ...]] = ((names.DRIVER, MODEL), ("", MODEL))
"""The attributes that a preference reads."""


@dataclass(slots=True, eq=False)
class NodeEquivalence:
    """A class of nodes, with one of them as a representative."""

    node: Node
    visible: VisibleDevices
    result: Feasibility | None = None
    """None: not searched yet."""
    long_result: Feasibility | None = None
    """Result of the long search, if the short one did not end."""
    pools: VisiblePools | None = None
    """None: not counted yet."""


@dataclass(slots=True)
class NodeEquivalenceCache:
    """The nodes of a pool, for pods of one signature."""

    devices: DeviceEquivalence
    accepting: dict[str, None] = field(default_factory=dict)
    """Nodes that pass the predicates."""
    _of: dict[str, NodeEquivalence] = field(default_factory=dict)
    """Per node, its class since its last change."""
    _classes: dict[Hashable, NodeEquivalence] = field(default_factory=dict)
    _position: int = 0
    _shared_version: int = -1

    def catch_up(self, table: NodeTable, shared_version: int) -> None:
        """Forget the nodes that changed; all nodes, if devices that many nodes see changed
        (``shared_version``)."""
        changed = table.changed_since(self._position)
        if self._shared_version != shared_version or changed is None:
            self._of.clear()
            self.accepting.clear()
            self._classes.clear()
        else:
            for row in changed.tolist():
                self._of.pop(table.names[row], None)
                self.accepting.pop(table.names[row], None)
        self._position, self._shared_version = table.version, shared_version
        if len(self._classes) > 2 * table.height + _CLASSES_KEPT:
            self._classes.clear()

    def known(self, name: str) -> NodeEquivalence | None:
        """The class of a node, if it was computed since the node changed."""
        return self._of.get(name)

    def of(self, state: AllocatorState, name: str) -> NodeEquivalence:
        """The class of a node, as it is now."""
        known = self._of.get(name)
        if known is None:
            node = node_of(state, name)
            visible = visible_devices(state.published, state.device_usage, name)
            known = self._of[name] = self._classes.setdefault(
                node_key(node, visible, self.devices), NodeEquivalence(node, visible)
            )
        return known


class ClassScore:
    """The score of a placement, with the results per class of nodes. Without a score all nodes
    are equal, as in kube-scheduler's allocator."""

    def __init__(
        self, state: AllocatorState, score: NodeScore, pod: PodClaims, *, scores_nodes: bool
    ) -> None:
        self._state = state
        self._score = score
        self._scores_nodes = scores_nodes
        attributes = attributes_read(pod.claims, state.facts.classes, pod.version)
        if attributes is not None and pod.prefers:
            attributes = (*attributes, *_PREFERRED)
        self.results = NodeEquivalenceCache(DeviceEquivalence(attributes, reads_links=pod.connects))

    @property
    def version(self) -> int:
        """Increases if devices that many nodes see change: a node that was ruled out may fit."""
        return self._state.shared_version

    def of(self, table: NodeTable, row: int, fitting: Sequence[Flags]) -> int:
        """The score of one node."""
        return self._score.of(table, row, fitting) if self._scores_nodes else 0

    def of_many(self, table: NodeTable, batch: NodeBatch) -> Whole:
        """The same for many nodes."""
        found = self._score.of_many(table, batch)
        return found if self._scores_nodes else np.zeros_like(found)

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """Cards in the order of the score."""
        return self._score.order(table, row, cards)

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The rating of a node's cards."""
        return self._score.rank(table, row)


def index_of_classes(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, pod: PodClaims
) -> tuple[NodeIndex, NodeEquivalenceCache]:
    """The nodes for pods of this signature, as they are now."""
    scoring = wanted.pattern.scoring
    scores_nodes = not (pod.is_compatible and wanted.pattern.needs_devices)

    def score_of(table: NodeTable, plan: FilterPlan) -> ClassScore:
        weighed = tuple(CardNeed(ask, (), False) for ask in wanted.pattern.weighed)
        score = scoring.make(table, replace(plan, cards=weighed))
        return ClassScore(state, score, pod, scores_nodes=scores_nodes)

    index = state.tables.index(
        domain.name,
        wanted.pattern.signature,
        scoring=Scoring(
            ("classes", scoring.key, pod.key),
            score_of,
        ),
        plan=lambda table: filter_plan(
            table, state.selectors, (), wanted.pod.needs, alone=wanted.pattern.alone
        ),
        selectors=state.selectors,
    )
    score = index.score
    assert isinstance(score, ClassScore)
    score.results.catch_up(index.table, score.version)
    return index, score.results


def node_of(state: AllocatorState, name: str) -> Node:
    """The node as slices see it."""
    return state.facts.nodes[name].node
