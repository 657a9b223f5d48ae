"""The Helm chart's CRDs, device class, roles and admission policies, bound to a stack's users.

Here dray's services are users instead of service accounts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from dray.api.names import DECISION, DRAY_NAMESPACE
from dray.kube.ports import CLAIMS
from dray_sandbox.access import CLAIM_CONTROLLER, KUBELET, NODE_AGENT
from dray_sandbox.objects import documents
from dray_sandbox.paths import checkout

Object = dict[str, Any]
SERVICES = (CLAIM_CONTROLLER, NODE_AGENT)
"""Users of the dray services that call Kubernetes; each role has the name of its user. The webhook
only reads the bus: it has a user but no role."""
_SERVICE_ACCOUNT = f"system:serviceaccount:{DRAY_NAMESPACE}:{CLAIM_CONTROLLER}"
"""The writer of dray's annotations, as the chart's policies name it."""
_CORE, _RESOURCE, _RBAC = "", CLAIMS.group, "rbac.authorization.k8s.io"
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete")


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


_KUBELET_RULES = (
    _rule(_CORE, ("nodes",), (*_READ, *_WRITE)),
    _rule(_CORE, ("nodes/status", "pods/status"), ("get", "update", "patch")),
    _rule(_CORE, ("pods",), (*_READ, "update", "patch", "delete")),
    _rule(_CORE, ("namespaces",), (*_READ, "create")),
    _rule(_CORE, ("events",), ("get", "create", "patch", "update")),
    _rule(_RESOURCE, ("resourceclaims",), _READ),
    # A kubelet deletes the slices of a driver that is disconnected for too long.
    _rule(_RESOURCE, ("resourceslices",), (*_READ, "delete")),
    _rule("coordination.k8s.io", ("leases",), (*_READ, *_WRITE)),
    # Projected tokens. A kubelet requests them for the pods of its node.
    _rule(_CORE, ("serviceaccounts/token",), ("create",)),
)
"""Rights of the stand-in kubelets."""


def chart_directory() -> Path:
    """The Helm chart of this checkout."""
    return checkout() / "deploy" / "helm" / "dray"


def classes() -> list[Object]:
    """The DeviceClass and the PriorityClasses."""
    files = chart_directory() / "files"
    names = ("deviceclass.yaml", "priorityclasses.yaml")
    return [obj for name in names for obj in documents(files / name)]


def _roles_file() -> Path:
    """The chart's roles of each service."""
    return chart_directory() / "files" / "roles.yaml"


def policies_file() -> Path:
    """The chart's ValidatingAdmissionPolicies."""
    return chart_directory() / "files" / "policies.yaml"


def service_roles() -> list[Object]:
    """The ClusterRoles and Roles of dray's services."""
    return documents(_roles_file())


def cluster_roles() -> list[Object]:
    """The namespaces of the roles, then the roles, each with its binding."""
    metadata = {"name": KUBELET}
    stand_in = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata}
    roles = [*service_roles(), stand_in | {"rules": list(_KUBELET_RULES)}]
    names = dict.fromkeys(role["metadata"]["namespace"] for role in roles if role["kind"] == "Role")
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
    ]
    return [*namespaces, *(obj for role in roles for obj in (role, _binding_of(role)))]


def admission_policies(user: str = CLAIM_CONTROLLER) -> list[Object]:
    """Policies and bindings; ``user`` replaces the claim-controller's service account."""
    text = policies_file().read_text(encoding="utf-8").replace(_SERVICE_ACCOUNT, user)
    return list(yaml.safe_load_all(text))


def refused_claim(namespace: str = "default") -> Object:
    """A ResourceClaim that a policy denies; its dry run shows whether the policies are in force."""
    exactly = {"deviceClassName": "probe.dray.dev"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "dray-probe",
            "namespace": namespace,
            "annotations": {DECISION: "1"},
        },
        "spec": {"devices": {"requests": [{"name": "probe", "exactly": exactly}]}},
    }


def _binding_of(role: Object) -> Object:
    """Binds a role to the user of the same name."""
    name = role["metadata"]["name"]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": role["metadata"],
        "roleRef": {"apiGroup": _RBAC, "kind": role["kind"], "name": name},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": name}],
    }
