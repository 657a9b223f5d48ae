"""Decisions of the node lifecycle controller and of the pod garbage collector. Pure.

Follows kube-controller-manager 1.36: node_lifecycle_controller.go, taint_eviction.go and
gc_controller.go, with shorter periods. A node that never had a lease has no kubelet and is left
alone.
"""

from collections.abc import Iterable, Mapping

from dray.api.devices import Taint
from dray.kube.convert_metadata import taints_from, tolerations_from
from dray.kube.ports import Object

_LEASE_DURATION_S = 40
"""A kubelet's default; also assumed for a lease without a duration."""
_LONGEST_DURATION_S = 600
_GRACE = 0.5
"""A node is not ready if its lease is not renewed for this share of the lease duration: 20 s for a
kubelet's 40 s. A cluster waits 50 s."""
TOLERATION_S = 20.0
"""The longest that a pod stays on a node that is not ready; in a cluster 300 s by default."""
QUARANTINE_S = 10.0
"""How long the pods of a node that does not exist are kept; in a cluster 40 s."""
_TAINT_OF: Mapping[str, str] = {
    "False": "node.kubernetes.io/not-ready",
    "Unknown": "node.kubernetes.io/unreachable",
}
"""The taint's key by the status of the Ready condition."""
_EFFECTS = ("NoSchedule", "NoExecute")


def grace_s(lease: Object) -> float:
    """How long a node's lease may stay unchanged before the node is not ready."""
    spec = lease.get("spec")
    duration_s = spec.get("leaseDurationSeconds") if isinstance(spec, dict) else None
    if not isinstance(duration_s, int) or duration_s <= 0:
        duration_s = _LEASE_DURATION_S
    return _GRACE * min(duration_s, _LONGEST_DURATION_S)


def unknown_status(node: Object, now: str) -> Object | None:
    """The status of a node whose kubelet is silent, or None if the node has it already."""
    conditions, ready = _conditions(node), _ready(node)
    if ready.get("status") == "Unknown":
        return None
    changed = ready | {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": now,
    }
    return {"conditions": [*(one for one in conditions if one["type"] != "Ready"), changed]}


def is_ready(node: Object) -> bool:
    """Whether the node's Ready condition is True or absent; without it, the node has no kubelet."""
    return bool(_ready(node).get("status", "True") == "True")


def wanted_taints(node: Object, now: str, *, evicts: bool = True) -> list[Object] | None:
    """The taints that the node needs for its Ready condition, or None if they do not change.

    Without ``evicts``, new pods are kept away and existing pods stay.
    """
    present: list[Object] = (node.get("spec") or {}).get("taints") or []
    key = _TAINT_OF.get(_ready(node).get("status", "True"))
    effects = _EFFECTS if evicts else _EFFECTS[:1]
    wanted = {(key, effect) for effect in effects if key}
    found = {(one["key"], one["effect"]) for one in present}
    kept = [
        one
        for one in present
        if one["key"] not in _TAINT_OF.values() or (one["key"], one["effect"]) in wanted
    ]
    added = [
        {"key": key, "effect": effect, "timeAdded": now}
        for effect in effects
        if (key, effect) in wanted - found
    ]
    taints = [*kept, *added]
    return None if taints == present else taints


def eviction_delay_s(pod: Object, node: Object) -> float | None:
    """How long the pod tolerates the node's NoExecute taints; None: for ever."""
    delays: list[float] = []
    for taint in taints_from((node.get("spec") or {}).get("taints")):
        if taint.effect == "NoExecute":
            tolerated_s = _tolerated_s(pod, taint)
            if tolerated_s is not None:
                delays.append(tolerated_s)
    return min(delays, default=None)


def _conditions(node: Object) -> list[Object]:
    return (node.get("status") or {}).get("conditions") or []


def _ready(node: Object) -> Object:
    return next((one for one in _conditions(node) if one["type"] == "Ready"), {})


def _tolerated_s(pod: Object, taint: Taint) -> float | None:
    entries: Iterable[Object] = pod["spec"].get("tolerations") or ()
    matching = [one for one in entries if tolerations_from([one])[0].tolerates(taint)]
    if not matching:
        return 0.0
    periods = [float(one["tolerationSeconds"]) for one in matching if "tolerationSeconds" in one]
    if not periods:
        return None
    longest_s = TOLERATION_S if taint.key in _TAINT_OF.values() else float("inf")
    return max(0.0, min(*periods, longest_s))
