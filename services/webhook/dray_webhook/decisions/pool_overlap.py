"""Warns of GPUPools that select nodes of other pools, and of deletions of objects in use; it
refuses nothing."""

from dray.kube.ports import POLICIES
from dray.messages.rpc import Lookup
from dray.reasons import name_list
from dray_webhook.decisions.review import AdmissionAnswer, AdmissionRequest
from dray_webhook.decisions.view import View


def validate_pool(request: AdmissionRequest, view: View) -> AdmissionAnswer:
    """The answer of /validate-pools.

    No warning if the nodes are not known: the pool's conditions report the same later.
    """
    if request.operation == "DELETE":
        return _deletion(request, view)
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


def _deletion(request: AdmissionRequest, view: View) -> AdmissionAnswer:
    if request.kind.kind == POLICIES.kind:
        pools = sorted(p.name for p in view.pools.values() if p.template == request.name)
        text = f"GPUPools use it, and it stays until no GPUPool uses it: {name_list(pools)}"
        return _warned(request, text) if pools else AdmissionAnswer()
    question = Lookup(kind="use", name=request.name)
    if question not in view.asked:
        return AdmissionAnswer(unresolved=(question,))
    count = view.uses.get(question, 0)
    if not count:
        return AdmissionAnswer()
    pods = "1 pod holds" if count == 1 else f"{count} pods hold"
    text = (
        f"{pods} GPUs of it: they keep running, no new pod is admitted, and the pool goes once "
        "they have ended"
    )
    return _warned(request, text)


def _warned(request: AdmissionRequest, text: str) -> AdmissionAnswer:
    return AdmissionAnswer(warnings=(f"{request.kind.kind} {request.name}: {text}",))
