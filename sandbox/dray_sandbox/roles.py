"""RBAC of dray's services on a real API server: each may do what it needs, and no more.

``resourceclaims/binding`` is the synthetic subresource that Kubernetes 1.36 asks for before
``status.allocation`` or ``status.reservedFor`` may change (feature gate
DRAResourceClaimGranularStatusAuthorization); ``resourceclaims/driver`` guards
``status.devices``.
"""

from collections.abc import Sequence
from typing import Any

from dray.domain.names import API_GROUP
from dray.kube.ports import CLAIMS
from dray_sandbox.access import CLAIM_CONTROLLER, KUBELET, NODE_AGENT, WEBHOOK

Object = dict[str, Any]
_CORE, _RESOURCE, _OURS = "", CLAIMS.group, API_GROUP
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete")


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


_EVENTS = (
    _rule(_CORE, ("events",), ("get", "create", "patch", "update")),
    _rule("events.k8s.io", ("events",), ("get", "create", "patch", "update")),
)

RULES: dict[str, tuple[Object, ...]] = {
    CLAIM_CONTROLLER: (
        _rule(_CORE, ("pods",), (*_READ, "update", "patch", "delete")),
        _rule(_CORE, ("pods/status",), ("update", "patch")),
        _rule(_CORE, ("pods/binding", "pods/eviction", "bindings"), ("create",)),
        _rule(_CORE, ("nodes",), (*_READ, "update", "patch")),
        _rule(_CORE, ("namespaces",), _READ),
        _rule(_RESOURCE, ("resourceclaims",), (*_READ, "update", "patch")),
        _rule(_RESOURCE, ("resourceclaims/status", "resourceclaims/binding"), ("update", "patch")),
        # Dry runs that ask what the server keeps; RBAC can't tell them from real ones.
        _rule(_RESOURCE, ("resourceclaims", "resourceslices"), ("create",)),
        _rule(_RESOURCE, ("resourceclaimtemplates",), (*_READ, *_WRITE)),
        _rule(_RESOURCE, ("resourceslices", "deviceclasses"), _READ),
        _rule(_OURS, ("gpupools", "schedulingconfigtemplates"), (*_READ, "update", "patch")),
        _rule(
            _OURS,
            ("gpupools/status", "schedulingconfigtemplates/status", "bindrequests/status"),
            ("get", "update", "patch"),
        ),
        _rule(_OURS, ("bindrequests",), (*_READ, *_WRITE)),
        _rule("coordination.k8s.io", ("leases",), (*_READ, *_WRITE)),
        *_EVENTS,
    ),
    NODE_AGENT: (
        _rule(_CORE, ("nodes",), _READ),
        _rule(_RESOURCE, ("resourceslices",), (*_READ, *_WRITE)),
        _rule(_RESOURCE, ("resourceclaims",), _READ),
        _rule(_RESOURCE, ("resourceclaims/status",), ("update", "patch")),
        _rule(
            _RESOURCE,
            ("resourceclaims/driver",),
            ("arbitrary-node:update", "arbitrary-node:patch"),
        ),
        *_EVENTS,
    ),
    KUBELET: (
        _rule(_CORE, ("nodes",), (*_READ, *_WRITE)),
        _rule(_CORE, ("nodes/status", "pods/status"), ("get", "update", "patch")),
        _rule(_CORE, ("pods",), (*_READ, "update", "patch", "delete")),
        _rule(_CORE, ("namespaces",), (*_READ, "create")),
        _rule(_RESOURCE, ("resourceclaims",), _READ),
        # A kubelet wipes the slices of a driver that stays away.
        _rule(_RESOURCE, ("resourceslices",), (*_READ, "delete")),
        _rule("coordination.k8s.io", ("leases",), (*_READ, *_WRITE)),
        *_EVENTS,
    ),
    WEBHOOK: (),
}
"""What each user of a service may do. The webhook knows the cluster from the bus alone."""


def cluster_roles() -> list[Object]:
    """One ClusterRole and its binding per user."""
    return [obj for user, rules in RULES.items() for obj in _role(user, rules)]


def _role(user: str, rules: Sequence[Object]) -> tuple[Object, Object]:
    metadata = {"name": user}
    group = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": list(rules),
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    return role, binding
