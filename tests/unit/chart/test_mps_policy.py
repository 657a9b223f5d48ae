"""What a node-agent that was taken over can't put in the pod of an MPS daemon."""

import copy
from typing import Any

import pytest
import yaml

from dray.api.enforcement import MPS, Enforcement
from dray.api.names import DRAY_NAMESPACE
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.decisions.mps_daemons import daemon_pod
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_sandbox.apiserver.policies import denials
from dray_sandbox.chart import chart_directory

SPEC = {
    "automountServiceAccountToken": False,
    "serviceAccountName": "default",
    "containers": [{"name": "mps", "image": "i", "env": [{"name": "A", "value": "b"}]}],
}
SECRET = {"name": "dray-nats", "key": "issuer"}
USER = {
    "username": f"system:serviceaccount:{DRAY_NAMESPACE}:dray-node-agent",
    "extra": {"authentication.kubernetes.io/node-name": ["n1"]},
}


def refusals(**spec: Any) -> list[str]:
    """Of a daemon's pod with these fields."""
    text = (chart_directory() / "files" / "mps.yaml").read_text("utf-8")
    (policy,) = (
        one for one in yaml.safe_load_all(text) if one["kind"] == "ValidatingAdmissionPolicy"
    )
    template = {"spec": copy.deepcopy(SPEC)}
    (gpu,) = SimulatedGpus("n1", "A100", 1).read().gpus
    state = NodeState("n1", "uid", "pool", enforcement=Enforcement(enforcer=MPS))
    pod = daemon_pod(template, gpu, state, DRAY_NAMESPACE)
    pod["spec"] |= spec
    given = {"object": pod, "oldObject": None, "request": {"userInfo": USER}}
    return [message for message, _, _ in denials(policy, given)]


def test_the_daemon_of_the_own_node_is_admitted() -> None:
    assert refusals() == []


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "mps", "envFrom": [{"secretRef": {"name": "dray-nats"}}]}]},
        {
            "containers": [
                {"name": "mps", "env": [{"name": "A", "valueFrom": {"secretKeyRef": SECRET}}]}
            ]
        },
        {"initContainers": [{"name": "first", "image": "i"}]},
        {"imagePullSecrets": [{"name": "dray-nats"}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_no_secret_of_another_service_comes_with_it(spec: dict[str, Any]) -> None:
    (message,) = refusals(**spec)
    assert message.startswith("an MPS daemon has no init containers, no variables from Secrets")


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n2"},
        {"serviceAccountName": "dray-claim-controller"},
        {"automountServiceAccountToken": True},
        {"volumes": [{"name": "a", "secret": {"secretName": "dray-nats"}}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_no_other_node_and_no_rights_come_with_it(spec: dict[str, Any]) -> None:
    assert len(refusals(**spec)) == 1
