"""Keeps the scores of a decision for ``dray explain --scores``, and answers it. Pure."""

import msgspec

from dray.messages.rpc import PodScores, Scores, ScoresReply
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.scores import scores_of
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.kept_scores import MOST_BYTES
from dray_allocator.state.state import AllocatorState


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


def kept_scores(state: AllocatorState, request: bytes) -> bytes | None:
    """The encoded ScoresReply to encoded Scores; None if this replica has none of the pod."""
    try:
        asked = msgspec.json.decode(request, type=Scores)
    except msgspec.MsgspecError as error:
        return msgspec.json.encode(ScoresReply(error=f"the request can't be read: {error}"))
    return state.kept_scores.of(asked.pod_uid)


def _encoded(reply: ScoresReply, scores: PodScores) -> bytes:
    """With as many of the best nodes as ``MOST_BYTES`` hold."""
    made = msgspec.json.encode(reply)
    while len(made) > MOST_BYTES and scores.nodes:
        scores = msgspec.structs.replace(scores, nodes=scores.nodes[:-1])
        made = msgspec.json.encode(msgspec.structs.replace(reply, scores=scores))
    return made
