"""Objects as the scheduler stand-in sees them."""

from typing import Any

from dray.api.pods import Pod
from dray_sandbox.scheduler.cache import SchedulerCache

Object = dict[str, Any]


def node(name: str, *, cpu: str = "4", pods: str = "10", **spec: Any) -> Object:
    labels = {"kubernetes.io/hostname": name} | spec.pop("labels", {})
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": pods}
    return {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(name: str, *, claims: tuple[str, ...] = (), cpu: str = "1", **spec: Any) -> Object:
    """A pod; each of ``claims`` is generated from a template of the same name."""
    references = [{"name": claim, "resourceClaimTemplateName": claim} for claim in claims]
    statuses = [{"name": claim, "resourceClaimName": f"{name}-{claim}"} for claim in claims]
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
        },
        "spec": {"containers": [container], "resourceClaims": references, **spec},
        "status": {"phase": "Pending", "resourceClaimStatuses": statuses},
    }


def claim(
    name: str, owner: str, *, node: str = "", stamped: bool = True, used_by: tuple[str, ...] = ()
) -> Object:
    status: Object = {}
    if node:
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
        status["allocation"] = {"devices": {"results": []}, "nodeSelector": selector}
        if stamped:
            status["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
        users = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in used_by]
        status["reservedFor"] = users
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "ownerReferences": [{"kind": "Pod", "uid": f"uid-{owner}", "controller": True}],
        },
        "status": status,
    }


def cluster(*nodes: Object, claims: tuple[Object, ...] = ()) -> SchedulerCache:
    made = SchedulerCache()
    for one in nodes:
        made.update_node(one)
    for one in claims:
        made.update_claim(one)
    return made


def seen(made: SchedulerCache, obj: Object) -> Pod:
    return made.update_pod(obj)[1]
