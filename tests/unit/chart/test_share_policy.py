"""Which pods may ask the kubelet for shares of GPUs, which dray's webhook alone writes."""

from typing import Any

import pytest
import yaml

from dray.api.names import DRA_ENABLED, GPU_SHARE_RESOURCE, SHAPE
from dray_sandbox.apiserver.policies import denials
from dray_sandbox.chart import policies_file

SHARES = {"name": "c", "resources": {"limits": {GPU_SHARE_RESOURCE: "64"}}}
PLAIN = {"name": "c", "resources": {"limits": {"cpu": "1"}}}


def refusals(annotations: dict[str, str] | None, **spec: Any) -> list[str]:
    """Of a new pod."""
    policies = yaml.safe_load_all(policies_file().read_text("utf-8"))
    name = "dray-gpu-shares"
    (policy, _) = (one for one in policies if one["metadata"]["name"] == name)
    metadata = {"name": "p"} | ({} if annotations is None else {"annotations": annotations})
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "main"}], **spec}}
    user = {"userInfo": {"username": "tenant"}}
    return [
        message
        for message, _, _ in denials(policy, {"object": pod, "oldObject": None, "request": user})
    ]


@pytest.mark.parametrize("annotations", [None, {SHAPE: "{}"}, {SHAPE: "{}", DRA_ENABLED: "true"}])
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_pod_that_dray_did_not_admit_takes_no_shares(annotations: Any, where: str) -> None:
    (message,) = refusals(annotations, **{where: [PLAIN, SHARES]})
    assert "gpu-share is written by dray alone" in message


def test_pods_that_dray_admitted_and_others_are_admitted() -> None:
    assert refusals({SHAPE: "{}", DRA_ENABLED: "false"}, containers=[SHARES]) == []
    assert refusals(None, containers=[PLAIN]) == []
    assert refusals(None) == []
