"""The scores of nodes for a pod, and what they are made of: for people. No decision reads this."""

from typing import Final

from dray.messages.rpc import PodScores, ScoredNode
from dray_allocator.devices.usage import FULL
from dray_allocator.nodes.ratings import LoadScore, NodeScore
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.fast_path.table_choice import index_of
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.topology import concerns
from dray_allocator.scoring.weighted import WeightedScore
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

BEST: Final = 5
"""Nodes that are shown."""


def scores_of(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest
) -> PodScores | None:
    """The best nodes for a pod that holds no devices.

    None where no order of scores exists: the pod's node is fixed or named, or every device that the
    nodes see is searched.
    """
    if not wanted.ordinary or wanted.named_nodes is not None or wanted.in_full:
        return None
    index = index_of(state, domain, wanted)
    table, score = index.table, index.score
    for node in wanted.excluded:
        if node in table.rows:
            index.skip(table.rows[node])
    return PodScores(
        policy=_policy(score),
        nodes=tuple(
            ScoredNode(table.names[row], rating, _parts(score, table, row, rating))
            for row, rating in index.first(BEST)
        ),
        of_nodes=len(table.rows),
        first=_first(wanted),
    )


def _policy(score: NodeScore) -> str:
    if isinstance(score, LoadScore | WeightedScore):
        return "the highest load first" if score.node_fills else "the lowest load first"
    return "first the node that loses least for the pods of the pool"


def _parts(score: NodeScore, table: NodeTable, row: int, rating: int) -> dict[str, float]:
    """Rounded to a ten-thousandth."""
    load = table.load_sum_at[row] / (table.count_at[row] or 1) / FULL
    parts = {"load": load}
    if isinstance(score, WeightedScore):
        parts |= score.parts(table, row)
    elif not isinstance(score, LoadScore):
        parts["loss"] = float(rating)
    return {name: round(part, 4) for name, part in parts.items()}


def _first(wanted: PodRequest) -> str:
    if wanted.prefers:
        return "the GPUs that the pod prefers"
    if concerns(wanted.asks, wanted.placement.topology):
        return "connected GPUs"
    return ""
