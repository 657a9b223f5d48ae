"""The scores of nodes for a pod, and their parts, for people. No decision reads them.

The scores of a decision are kept for ``dray explain --scores``. Pure.
"""

from typing import Final

import msgspec

from dray.messages.rpc import PodScores, ScoredNode, Scores, ScoresReply
from dray_allocator.devices.usage import FULL
from dray_allocator.nodes.ratings import LoadScore, NodeScore
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.fast_path.table_choice import index_of
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.weighted import WeightedScore
from dray_allocator.scoring.without_devices import ScoreWithoutDevices
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.kept_scores import MOST_BYTES
from dray_allocator.state.state import AllocatorState

BEST: Final = 5
"""How many nodes are shown."""


def scores_of(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest
) -> PodScores | None:
    """The best nodes for a pod that holds no devices.

    None if no order of scores exists: the pod's node is fixed or named, or every device that the
    nodes see is searched.
    """
    if not wanted.ordinary or wanted.pattern.named_nodes is not None or wanted.pattern.in_full:
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


def keep_scores(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, node: str
) -> None:
    """Keep the scores by which ``node`` was chosen, before the decision is assumed."""
    if not state.kept_scores.is_due(state.ticks):
        return
    scores = scores_of(state, domain, wanted)
    if scores is not None:
        uid, now_unix_s = wanted.pod.uid, state.facts.now_unix_s
        reply = ScoresReply(
            instance=state.options.writer, node=node, decided_unix_s=now_unix_s, scores=scores
        )
        state.kept_scores.keep(uid, _encoded(reply, scores))


def reply_with_scores(state: AllocatorState, request: bytes) -> bytes | None:
    """The encoded ScoresReply to encoded Scores; None if this replica has no scores of the pod."""
    try:
        asked = msgspec.json.decode(request, type=Scores)
    except msgspec.MsgspecError as error:
        return msgspec.json.encode(ScoresReply(error=f"the request can't be read: {error}"))
    return state.kept_scores.of(asked.pod_uid)


def _encoded(reply: ScoresReply, scores: PodScores) -> bytes:
    """The encoded reply with as many of the best nodes as fit into ``MOST_BYTES``."""
    made = msgspec.json.encode(reply)
    while len(made) > MOST_BYTES and scores.nodes:
        scores = msgspec.structs.replace(scores, nodes=scores.nodes[:-1])
        made = msgspec.json.encode(msgspec.structs.replace(reply, scores=scores))
    return made


def _policy(score: NodeScore) -> str:
    if isinstance(score, LoadScore | WeightedScore):
        return "the highest load first" if score.node_fills else "the lowest load first"
    if isinstance(score, ScoreWithoutDevices):
        return "nodes without GPUs first, then the highest load"
    return "the node first that loses the least capacity useful to the pool's pods"


def _parts(score: NodeScore, table: NodeTable, row: int, rating: int) -> dict[str, float]:
    """Rounded to a ten-thousandth."""
    load = table.load_sum_at[row] / (table.count_at[row] or 1) / FULL
    parts = {"load": load}
    if isinstance(score, WeightedScore):
        parts |= score.parts(table, row)
    elif not isinstance(score, LoadScore | ScoreWithoutDevices):
        parts["loss"] = float(rating)
    return {name: round(part, 4) for name, part in parts.items()}


def _first(wanted: PodRequest) -> str:
    if wanted.pattern.prefers:
        return "the GPUs that the pod prefers"
    if wanted.pattern.connects:
        return "connected GPUs"
    return ""
