"""GPUPools that select nodes of other pools: they are stored, with a warning. Pure."""

from dray.messages.rpc import Lookup
from dray_webhook.review import Answer, Request
from dray_webhook.view import View


def validate_pool(request: Request, view: View) -> Answer:
    """The answer of /validate-pools. Where the nodes are not known, nobody is warned: the pool's
    own conditions tell the same a moment later."""
    pool = request.object or {}
    selector = (pool.get("spec") or {}).get("nodeSelector")
    question = Lookup(
        kind="overlap",
        name=request.name,
        selector=None if selector is None else tuple(sorted(selector.items())),
    )
    if question not in view.asked:
        return Answer(doubts=(question,))
    overlap = view.overlaps.get(question)
    if overlap is None or not overlap.count:
        return Answer()
    nodes = [f"{node} ({owner})" for node, owner in overlap.nodes]
    more = overlap.count - len(nodes)
    named = ", ".join(nodes) + (f" and {more} more" if more else "")
    return Answer(
        warnings=(
            f"GPUPool {request.name} selects nodes that other pools have, and does not get them: "
            f"{named}",
        )
    )
