"""Required anti-affinity of existing pods: which pods they keep away. Pure.

kube-scheduler's plugin InterPodAffinity applies it to every new pod, whatever that pod itself asks
for. If dray binds the pod, kube-scheduler does not check it, so dray does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dray.api.pods import NodeExpression
from dray.kube.ports import Object

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class AntiAffinityTerm:
    """One required anti-affinity term of a pod."""

    by: str
    """``namespace/name`` of the pod."""
    topology: str
    """Label of nodes: the pod keeps others away from all nodes with its own node's value."""
    namespaces: tuple[str, ...]
    """Namespaces of the excluded pods; empty: every namespace."""
    labels: tuple[NodeExpression, ...]
    """Labels of the excluded pods."""

    def concerns(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod of that namespace, with these labels, is kept away."""
        if self.namespaces and namespace not in self.namespaces:
            return False
        return all(one.holds(labels) for one in self.labels)


def anti_affinity_terms(pod: Object) -> tuple[AntiAffinityTerm, ...]:
    """The terms of a pod.

    A namespace selector other than the empty one is taken to select every namespace: the labels
    of namespaces are not observed.
    """
    affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    metadata = pod["metadata"]
    return tuple(
        AntiAffinityTerm(
            by=f"{metadata.get('namespace', '')}/{metadata['name']}",
            topology=term.get("topologyKey") or "",
            namespaces=_namespaces(term, metadata.get("namespace", "")),
            labels=tuple(_expressions(term.get("labelSelector"))),
        )
        for term in affinity.get(_REQUIRED) or ()
        # Without a selector a term selects no pod at all.
        if term.get("labelSelector") is not None
    )


def same_topology(topology: str, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether nodes with these labels have the same value of the label ``topology``."""
    return topology in one and one[topology] == other.get(topology)


def _namespaces(term: Object, own: str) -> tuple[str, ...]:
    if term.get("namespaceSelector") is not None:
        return ()
    return tuple(term.get("namespaces") or (own,))


def _expressions(selector: Object | None) -> Iterable[NodeExpression]:
    for key, value in ((selector or {}).get("matchLabels") or {}).items():
        yield NodeExpression(key, "In", (value,))
    for entry in (selector or {}).get("matchExpressions") or ():
        yield NodeExpression(entry["key"], entry["operator"], tuple(entry.get("values") or ()))
