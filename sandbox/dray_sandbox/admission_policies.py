"""The chart's ValidatingAdmissionPolicies, where services are users and no service accounts."""

from pathlib import Path
from typing import Any

import yaml

from dray.api.names import DECISION, DRAY_NAMESPACE
from dray_sandbox.access import CLAIM_CONTROLLER
from dray_sandbox.paths import checkout

Object = dict[str, Any]
SERVICE_ACCOUNT = f"system:serviceaccount:{DRAY_NAMESPACE}:{CLAIM_CONTROLLER}"
"""Who writes dray's annotations, by the file."""


def policies_file() -> Path:
    """Where the chart says what stays as it was created."""
    return checkout() / "deploy" / "helm" / "dray" / "files" / "policies.yaml"


def admission_policies(user: str = CLAIM_CONTROLLER) -> list[Object]:
    """Policies and their bindings; ``user`` stands for the claim-controller's service account."""
    text = policies_file().read_text(encoding="utf-8").replace(SERVICE_ACCOUNT, user)
    return list(yaml.safe_load_all(text))


def refused_claim(namespace: str = "default") -> Object:
    """A ResourceClaim that a policy denies: who makes one in a dry run learns whether the API
    server follows the policies."""
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
