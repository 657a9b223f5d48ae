"""Why a node can't run its pods, in words. Pure."""

from typing import Final

from dray.kube.ports import Object

NODE_LOST: Final = "NodeLost"
NODE_NOT_READY: Final = "NodeNotReady"


def node_problem(node: Object | None) -> tuple[str, str] | None:
    """The reason as one word and as a clause about the node; None if it is ready. ``node`` is None
    if it does not exist. A node whose status can't be read has no known problem."""
    if node is None:
        return NODE_LOST, "is gone, and its devices with it: delete the pod if nothing else does"
    status = node.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for condition in conditions if isinstance(conditions, list) else ():
        if not isinstance(condition, dict):
            continue
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            changed = condition.get("lastTransitionTime")
            since = f" since {changed}" if changed else ""
            text = condition.get("message") or condition.get("reason") or "no reason is given"
            return NODE_NOT_READY, f"is not ready{since}: {text}"
    return None
