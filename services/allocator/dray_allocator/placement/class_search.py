"""Schedules a pod by all devices that the nodes see: one search per class of nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dray.api.claims import Allocation
from dray_allocator.devices.budget import (
    MAX_FIRST_TRIES_BY_SEARCH,
    MAX_TRIES_PER_NODE,
    SearchBudget,
)
from dray_allocator.devices.visible_devices import visible_devices
from dray_allocator.devices.visible_pools import VisiblePools, count_pools
from dray_allocator.nodes.index import NONE, NodeIndex
from dray_allocator.placement.choice import CONNECTED_NODES, Choice, Outcome, Pause, best_choice
from dray_allocator.placement.node_equivalence_cache import (
    NodeEquivalence,
    NodeEquivalenceCache,
    index_of_classes,
    node_of,
)
from dray_allocator.placement.node_filter import candidates, passes
from dray_allocator.placement.node_trial import Feasibility, NodeProblem, NodeTrial, evaluate_node
from dray_allocator.placement.pod_claims import PodClaims, pod_claims
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

STEP_LOOKS: Final = 64
"""Devices tried before other pods may continue: some milliseconds."""
_LOOKS_PER_DEVICE: Final = 4
_INFEASIBLE: Final = Feasibility()


@dataclass(slots=True)
class ClassSearch:
    """One pod's search over the nodes (``CandidateNodes``).

    If ``budget`` is used up before there is a result, the results of classes are kept, and the same
    search continues later. The result does not depend on the number of pauses.
    """

    state: AllocatorState
    domain: SchedulingDomain
    wanted: PodRequest
    budget: SearchBudget | None = None
    best: Choice | None = field(init=False, default=None)
    compared: int | None = field(init=False, default=None)
    pod: PodClaims = field(init=False)
    index: NodeIndex = field(init=False)
    classes: NodeEquivalenceCache = field(init=False)
    slow_nodes: list[str] = field(init=False, default_factory=list)
    """Slow nodes: the first search did not end. The best score first."""
    ended_at: str = ""
    """The node that ended the attempt with an error."""
    is_paused: bool = False
    """Whether the budget was used up before there was a result."""
    _results: dict[str, tuple[Allocation, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.pod = pod_claims(self.state, self.wanted)
        self.index, self.classes = index_of_classes(self.state, self.domain, self.wanted, self.pod)
        if not self.pod.prefers:
            is_linked = self.pod.connects and self.index.table.linked
            self.compared = CONNECTED_NODES if is_linked else 1

    def nodes_by_class(self) -> Iterator[tuple[str, NodeEquivalence, VisiblePools]]:
        """All nodes that the pod's node name or selector allows, with their classes, in the
        order of tie-breaks."""
        table = self.index.table
        nodes = candidates(self.state, self.domain, self.wanted)
        for node in sorted(nodes, key=lambda name: table.tie_at[table.rows[name]]):
            equivalence = self.classes.of(self.state, node)
            yield node, equivalence, self._pools(equivalence)

    def _pools(self, equivalence: NodeEquivalence) -> VisiblePools:
        if equivalence.pools is None:
            self._use_up(1)
            equivalence.pools = count_pools(
                equivalence.node, equivalence.visible, self.pod.version, self.classes.devices
            )
        return equivalence.pools

    def is_open(self) -> bool:
        """Whether a node is left that may fit."""
        nodes = self._limits()
        if nodes is None:
            return self.index.best() >= 0
        return any(self.index.key(self.index.table.rows[name]) != NONE for name in nodes)

    def choice(self) -> Choice | Pause | None:
        """The best node, None if none fits, or a pause."""
        best = best_choice(self)
        self.index.restore_skipped()
        if self.is_paused:
            return Pause.UNFINISHED
        if best is None or self.ended_at:
            return None if self._knows_all() else Pause.UNFINISHED
        results = self._results.get(best.node) or self._results_on(best.node)
        return msgspec.structs.replace(best, results=results) if results else None

    def rows(self) -> Iterator[int]:
        """See ``CandidateNodes``."""
        nodes, rows = self._limits(), self.index.table.rows
        return self.index.in_order(None if nodes is None else [rows[name] for name in nodes])

    def evaluate(self, row: int, *, longer: bool = False) -> Choice | Outcome:
        """See ``CandidateNodes``. Nodes of one class share the result."""
        node = self.index.table.names[row]
        result = self._long_result(node) if longer else self._result(node)
        if result is None:
            self.is_paused = True
            return Outcome.STOPPED
        if result.ends_attempt:
            self.ended_at = node
            return Outcome.STOPPED
        if result.is_feasible:
            cards = self.index.table.cards
            return Choice(
                node,
                (),
                cards,
                result.link_level,
                (),
                result.preference_keys,
                result.skipped_alternatives,
            )
        if longer:
            return Outcome.SLOW
        if result.is_slow:
            self.slow_nodes.append(node)
            return Outcome.SLOW
        return Outcome.UNFIT

    def exclude(self, row: int) -> None:
        """See ``CandidateNodes``."""
        self.index.exclude(row)

    def _limits(self) -> Sequence[str] | None:
        """The only candidate nodes; None: all nodes of the pool. For a pod in the scope of the node
        table, these are the nodes with devices outside that scope."""
        wanted, beyond_table = self.wanted, self.state.published.nodes_beyond_table()
        is_limited = wanted.fixed_node or wanted.reach or wanted.excluded
        is_second_search = not wanted.pattern.in_full and "" not in beyond_table
        if not is_limited and not is_second_search and wanted.pattern.named_nodes is None:
            return None
        nodes = candidates(self.state, self.domain, wanted)
        return [node for node in nodes if node in beyond_table] if is_second_search else nodes

    def _result(self, node: str) -> Feasibility | None:
        """The result on a node; None if no budget is left to compute it."""
        classes = self.classes
        if node not in classes.accepting:
            if self._is_spent():
                return None
            self._use_up(1)
            if not passes(self.state, self.wanted, node):
                return _INFEASIBLE
            classes.accepting[node] = None
        equivalence = self._class(node)
        if equivalence is not None and equivalence.result is None:
            if self._is_spent():
                return None
            equivalence.result = self._search(node, MAX_FIRST_TRIES_BY_SEARCH)
        return equivalence.result if equivalence is not None else None

    def _long_result(self, node: str) -> Feasibility | None:
        equivalence = self.classes.of(self.state, node)
        if equivalence.long_result is None:
            if self._is_spent():
                return None
            equivalence.long_result = self._search(node, MAX_TRIES_PER_NODE)
        return equivalence.long_result

    def _class(self, node: str) -> NodeEquivalence | None:
        known = self.classes.known(node)
        if known is None and not self._is_spent():
            self._use_up(1)
            known = self.classes.of(self.state, node)
        return known

    def _search(self, node: str, looks: int) -> Feasibility:
        found = self.trial(node, looks)
        self._use_up(max(found.looks, 1))
        self._results[node] = found.results
        return found.feasibility

    def trial(self, node: str, looks: int) -> NodeTrial:
        """The result on a node as it is now."""
        state, index = self.state, self.index
        visible = visible_devices(state.published, state.device_usage, node)
        problem = NodeProblem(
            state, self.wanted, self.pod, index.table, index.score, node_of(state, node), visible
        )
        return evaluate_node(problem, looks + _LOOKS_PER_DEVICE * visible.devices)

    def _results_on(self, node: str) -> tuple[Allocation, ...]:
        self._search(node, MAX_TRIES_PER_NODE)
        return self._results[node]

    def _knows_all(self) -> bool:
        """Whether every node was searched, even nodes that fail a predicate: the reasons name what
        their devices lack."""
        if self.ended_at:
            return True
        for node in candidates(self.state, self.domain, self.wanted):
            equivalence = self._class(node)
            if equivalence is None or (equivalence.pools is None and self._is_spent()):
                return False
            self._pools(equivalence)
        return True

    def _is_spent(self) -> bool:
        return self.budget is not None and self.budget.is_spent

    def _use_up(self, looks: int) -> None:
        if self.budget is not None:
            self.budget.spend(looks)
