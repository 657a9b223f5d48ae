"""Warns of GPUPools that select nodes of other pools; nothing is refused."""

from dray.messages.rpc import Lookup
from dray_webhook.decisions.review import AdmissionAnswer, AdmissionRequest
from dray_webhook.decisions.view import View


def validate_pool(request: AdmissionRequest, view: View) -> AdmissionAnswer:
    """The answer of /validate-pools.

    No warning if the nodes are not known: the pool's conditions report the same later.
    """
    pool = request.object or {}
    selector = (pool.get("spec") or {}).get("nodeSelector")
    question = Lookup(
        kind="overlap",
        name=request.name,
        selector=None if selector is None else tuple(sorted(selector.items())),
    )
    if question not in view.asked:
        return AdmissionAnswer(unresolved=(question,))
    overlap = view.overlaps.get(question)
    if overlap is None or not overlap.count:
        return AdmissionAnswer()
    nodes = [f"{node} ({owner})" for node, owner in overlap.nodes]
    more = overlap.count - len(nodes)
    named = ", ".join(nodes) + (f" and {more} more" if more else "")
    return AdmissionAnswer(
        warnings=(
            f"GPUPool {request.name} selects nodes that other pools have, and does not get them: "
            f"{named}",
        )
    )
