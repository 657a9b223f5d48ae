"""The best node on which `structured` finds devices for all claims of a pod."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

import numpy as np

from dray.api.claims import Allocation
from dray_allocator.claim_search.node_equivalence_cache import (
    NodeEquivalence,
    NodeEquivalenceCache,
    node_of,
    prospect_of,
)
from dray_allocator.claim_search.node_trial import Feasibility, NodeTrial, Rank, tried
from dray_allocator.claim_search.pod_search import PodSearch, asked_of
from dray_allocator.claim_search.visible_devices import seen_by
from dray_allocator.claim_search.visible_pools import VisiblePools, account_of
from dray_allocator.devices.budget import NODE_LOOKS, SearchBudget
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.keys import NONE
from dray_allocator.placement.node_search import filter_node
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.schedule import Choice, candidates
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState

FIRST_LOOKS: Final = 500
"""Devices looked at on one node before others are tried first; in either search, each device
that there is may be looked at four times besides."""
HARD_NODES: Final = 4
"""Nodes that are searched so long for one pod: the best of those where the first looks were not
enough."""
STEP_LOOKS: Final = 64
"""Devices looked at before others may go on: some milliseconds."""
_EACH: Final = 4
_ONE_BY_ONE: Final = 8
_NO: Final = Feasibility()


class Pause(Enum):
    """No answer yet."""

    UNFINISHED = "unfinished"


def choose_in_full(
    state: AllocatorState, domain: Domain, wanted: PodRequest, budget: SearchBudget | None = None
) -> Choice | Pause | None:
    """The first node that fits in the order of the placement; where claims list alternatives, the
    one with the most wanted of them, then that with the devices that the pod would rather have.

    Where ``budget`` is used up before there is an answer, what was found out stays known: asking
    again goes on. The answer does not depend on how often that is.
    """
    return NodeSearch(state, domain, wanted, budget).choice()


def may_fit_in_full(state: AllocatorState, domain: Domain, wanted: PodRequest) -> bool:
    """Whether there is a node of which it isn't known that the pod doesn't fit there."""
    return NodeSearch(state, domain, wanted).is_open()


@dataclass(slots=True)
class NodeSearch:
    """One pod's way through the nodes."""

    state: AllocatorState
    domain: Domain
    wanted: PodRequest
    budget: SearchBudget | None = None
    asked: PodSearch = field(init=False)
    index: NodeIndex = field(init=False)
    prospect: NodeEquivalenceCache = field(init=False)
    hard: list[str] = field(init=False, default_factory=list)
    """Nodes on which the first looks were not enough, the best first."""
    ended_at: str = ""
    """The node that ended the attempt with an error."""
    _found: dict[str, tuple[Allocation, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.asked = asked_of(self.state, self.wanted)
        self.index, self.prospect = prospect_of(self.state, self.domain, self.wanted, self.asked)

    def kinds(self) -> Iterator[tuple[str, NodeEquivalence, VisiblePools]]:
        """All nodes where the pod may go by its own words, with their kinds, by their ties."""
        table = self.index.table
        nodes = candidates(self.state, self.domain, self.wanted)
        for node in sorted(nodes, key=lambda name: table.tie_at[table.rows[name]]):
            kind = self.prospect.look_at(self.state, self.asked, node)
            yield node, kind, self._account(kind)

    def _account(self, kind: NodeEquivalence) -> VisiblePools:
        if kind.account is None:
            self._use_up(1)
            forms = self.prospect.forms
            kind.account = account_of(kind.node, kind.seen, self.asked.rules, forms)
        return kind.account

    def is_open(self) -> bool:
        """Whether a node is left that may fit."""
        nodes = self._limits()
        if nodes is None:
            return self.index.best() >= 0
        return any(self.index.key(self.index.table.rows[name]) != NONE for name in nodes)

    def choice(self) -> Choice | Pause | None:
        """The best node, or that there is none or none yet."""
        node = self._best()
        self.index.restore()
        if node is None:
            return None if self._knows_all() else Pause.UNFINISHED
        if isinstance(node, Pause):
            return node
        results = self._found.get(node) or self._results_on(node)
        return Choice(node, (), self.index.table.cards, results=results) if results else None

    def _best(self) -> str | Pause | None:
        best: tuple[Rank, str] | None = None
        for node in self._nodes():
            verdict = self._verdict(node)
            if verdict is None:
                return Pause.UNFINISHED
            if verdict.ends_attempt:
                self.ended_at = node
                return None
            if verdict.rank is None:
                self._pass_over(node, verdict)
            elif best is None or verdict.rank < best[0]:
                best = verdict.rank, node
                if not verdict.rank[0] and not self.asked.preferences:
                    break
        return best[1] if best else self._by_patience()

    def _pass_over(self, node: str, verdict: Feasibility) -> None:
        if verdict.is_hard:
            self.hard.append(node)
        else:
            self.index.rule_out(self.index.table.rows[node])

    def _by_patience(self) -> str | Pause | None:
        """The first of the nodes that are hard to search, where no other fits."""
        for node in self.hard[:HARD_NODES]:
            kind = self.prospect.of[node]
            if kind.patient is None:
                if self._is_spent():
                    return Pause.UNFINISHED
                kind.patient = self._tried(node, NODE_LOOKS)
            if kind.patient.rank is not None:
                return node
        return None

    def _nodes(self) -> Iterator[str]:
        """Those that may fit, the best first. Those that fit are in the way of the next one only
        as long as this goes on."""
        index, table = self.index, self.index.table
        nodes = self._limits()
        if nodes is not None:
            yield from self._sorted([table.rows[name] for name in nodes])
            return
        for row in islice(iter(index.best, -1), _ONE_BY_ONE):
            yield table.names[row]
            if index.key(row) != NONE:
                index.lay_aside(row)
        yield from self._sorted()

    def _sorted(self, rows: Sequence[int] | None = None) -> Iterator[str]:
        """The nodes of these rows, or of all, that may fit."""
        table, keys = self.index.table, self.index.keys()
        among = np.arange(table.height) if rows is None else np.array(rows, np.intp)
        among = among[keys[among] != NONE]
        found = among[np.argsort(keys[among])].tolist()
        if table.ties.duplicates:
            found.sort(key=lambda row: (keys.item(row), table.uid(row)))
        for row in found:
            yield table.names[row]

    def _limits(self) -> Sequence[str] | None:
        """The only nodes that come into question; None: all of the pool. Where the node table has
        looked already, it is those with something that it does not read."""
        wanted, odd = self.wanted, self.state.published.nodes_that_say_more()
        is_limited = wanted.fixed_node or wanted.reach or wanted.excluded
        is_again = not wanted.in_full and "" not in odd
        if not is_limited and not is_again and wanted.named_nodes is None:
            return None
        nodes = candidates(self.state, self.domain, wanted)
        return [node for node in nodes if node in odd] if is_again else nodes

    def _verdict(self, node: str) -> Feasibility | None:
        """What comes of a node; None where no budget is left to find out."""
        prospect = self.prospect
        if node not in prospect.judged:
            if self._is_spent():
                return None
            self._use_up(1)
            if not filter_node(self.state, self.wanted, node):
                return _NO
            prospect.judged[node] = None
        kind = self._kind(node)
        if kind is not None and kind.verdict is None:
            if self._is_spent():
                return None
            kind.verdict = self._tried(node, FIRST_LOOKS)
        return kind.verdict if kind is not None else None

    def _kind(self, node: str) -> NodeEquivalence | None:
        known = self.prospect.of.get(node)
        if known is None and not self._is_spent():
            self._use_up(1)
            known = self.prospect.look_at(self.state, self.asked, node)
        return known

    def _tried(self, node: str, looks: int) -> Feasibility:
        found = self.trial(node, looks)
        self._use_up(max(found.looks, 1))
        self._found[node] = found.results
        return found.verdict

    def trial(self, node: str, looks: int) -> NodeTrial:
        """What comes of a node as it is now."""
        seen = seen_by(self.state, node, self.asked.rate(self.state))
        most = looks + _EACH * seen.devices
        return tried(self.state, self.asked, node_of(self.state, node), seen, most)

    def _results_on(self, node: str) -> tuple[Allocation, ...]:
        self._tried(node, NODE_LOOKS)
        return self._found[node]

    def _knows_all(self) -> bool:
        """Whether every node was looked at, those too that don't take the pod: what their devices
        lack is reported with the rest."""
        if self.ended_at:
            return True
        for node in candidates(self.state, self.domain, self.wanted):
            kind = self._kind(node)
            if kind is None or (kind.account is None and self._is_spent()):
                return False
            self._account(kind)
        return True

    def _is_spent(self) -> bool:
        return self.budget is not None and self.budget.is_spent

    def _use_up(self, looks: int) -> None:
        if self.budget is not None:
            self.budget.spend(looks)
