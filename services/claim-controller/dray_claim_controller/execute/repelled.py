"""Whether a pod that dray is about to bind is kept away by one that is there already. Pure."""

from collections.abc import Mapping

from dray.kube.ports import NODES
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.repulsion import same_place
from dray_claim_controller.observe.seen import SeenPod


def repelled_by(picture: Picture, seen: SeenPod, node: str) -> str:
    """The pod that keeps ``seen`` away from ``node``, as ``namespace/name``; or nothing."""
    if not picture.repelling or seen.pod is None:
        return ""
    labels = seen.object["metadata"].get("labels") or {}
    here = _labels(picture, node)
    for other in map(picture.pods.__getitem__, picture.repelling):
        if other.uid == seen.uid or other.terminal or not other.node:
            continue
        there = _labels(picture, other.node)
        for term in other.repels:
            if same_place(term.topology, there, here) and term.concerns(seen.pod.namespace, labels):
                return term.by
    return ""


def _labels(picture: Picture, node: str) -> Mapping[str, str]:
    known = picture.plain[NODES.plural].get(node) or {"metadata": {}}
    return known["metadata"].get("labels") or {}
