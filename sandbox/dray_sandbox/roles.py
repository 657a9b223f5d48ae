"""RBAC on a real API server: each program may do what it needs, and no more.

What dray's services may do is the chart's to say (``deploy/helm/dray/files/roles.yaml``), and is
bound here to the users that stand for their service accounts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dray.kube.ports import CLAIMS
from dray_sandbox.access import CLAIM_CONTROLLER, KUBELET, NODE_AGENT
from dray_sandbox.objects import documents
from dray_sandbox.paths import checkout

Object = dict[str, Any]
SERVICES = (CLAIM_CONTROLLER, NODE_AGENT)
"""Users of dray's services that talk to Kubernetes; a role has its user's name. The webhook knows
the cluster from the bus alone, and has a user but no role."""
_CORE, _RESOURCE, _RBAC = "", CLAIMS.group, "rbac.authorization.k8s.io"
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete")


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


_STAND_IN = (
    _rule(_CORE, ("nodes",), (*_READ, *_WRITE)),
    _rule(_CORE, ("nodes/status", "pods/status"), ("get", "update", "patch")),
    _rule(_CORE, ("pods",), (*_READ, "update", "patch", "delete")),
    _rule(_CORE, ("namespaces",), (*_READ, "create")),
    _rule(_CORE, ("events",), ("get", "create", "patch", "update")),
    _rule(_RESOURCE, ("resourceclaims",), _READ),
    # A kubelet wipes the slices of a driver that stays away.
    _rule(_RESOURCE, ("resourceslices",), (*_READ, "delete")),
    _rule("coordination.k8s.io", ("leases",), (*_READ, *_WRITE)),
    # Projected tokens; a kubelet's are for pods of its node.
    _rule(_CORE, ("serviceaccounts/token",), ("create",)),
)
"""Of the program that plays the kubelets, which is not dray's."""


def roles_file() -> Path:
    """Where the chart says what each service may do."""
    return checkout() / "deploy" / "helm" / "dray" / "files" / "roles.yaml"


def service_roles() -> list[Object]:
    """The ClusterRoles and Roles of dray's services."""
    return documents(roles_file())


def cluster_roles() -> list[Object]:
    """All roles and their bindings, behind the namespaces that they need."""
    metadata = {"name": KUBELET}
    stand_in = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata}
    roles = [*service_roles(), stand_in | {"rules": list(_STAND_IN)}]
    names = dict.fromkeys(role["metadata"]["namespace"] for role in roles if _is_local(role))
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
    ]
    return [*namespaces, *(obj for role in roles for obj in (role, _bound(role)))]


def _is_local(role: Object) -> bool:
    return bool(role["kind"] == "Role")


def _bound(role: Object) -> Object:
    """The binding of a role to the user of its name."""
    name = role["metadata"]["name"]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": role["metadata"],
        "roleRef": {"apiGroup": _RBAC, "kind": role["kind"], "name": name},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": name}],
    }
