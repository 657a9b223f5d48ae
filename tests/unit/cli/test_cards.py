"""What fails on cards, where somebody else looks at the rest of the node."""

from typing import Any

import pytest

from dray.api.names import CLAIM_REFERENCE, DEVICE_CLASS, DRIVER, GPUPOOL
from dray_cli.cards import CardOverview, reasons_on_cards

Object = dict[str, Any]
POOL: Object = {
    "metadata": {"name": "fast", "uid": "fast", "resourceVersion": "1"},
    "spec": {"owner": "kube-scheduler"},
}
NODE: Object = {
    "metadata": {"name": "n1", "uid": "n1", "resourceVersion": "1"},
    "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "0"}},
}
SLICE: Object = {
    "metadata": {"name": "s", "uid": "s", "resourceVersion": "1"},
    "spec": {
        "driver": DRIVER,
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"pool_name": {"string": "fast"}}}],
    },
}
CLASS: Object = {"metadata": {"name": DEVICE_CLASS, "uid": "c", "resourceVersion": "1"}}


def claim(expression: str) -> Object:
    selectors = [{"cel": {"expression": expression}}]
    request = {"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS, "selectors": selectors}}
    return {
        "metadata": {"name": "claim", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {"devices": {"requests": [request]}},
    }


def pod() -> Object:
    container = {
        "name": "main",
        "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {
            "requests": {"cpu": "9", "ephemeral-storage": "1Gi"},
            "limits": {"example.com/nic": "1"},
        },
    }
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "p",
            "resourceVersion": "1",
            "annotations": {GPUPOOL: "fast"},
        },
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": CLAIM_REFERENCE, "resourceClaimName": "claim"}],
        },
    }


@pytest.mark.parametrize(("expression", "kinds"), [("true", []), ("false", ["clause"])])
def test_what_else_a_node_lacks_is_for_the_scheduler_that_looks_at_it(
    expression: str, kinds: list[str]
) -> None:
    cluster = CardOverview([CLASS], [NODE], [SLICE], [claim(expression)])
    assert [reason.kind for reason in reasons_on_cards(pod(), POOL, cluster)] == kinds


def test_objects_that_can_t_be_read_hide_no_other() -> None:
    odd: Object = {"metadata": {"name": "odd", "uid": "odd", "resourceVersion": "1"}, "spec": 7}
    odd_claim: Object = {"metadata": odd["metadata"] | {"namespace": "ns"}, "spec": 7}
    cluster = CardOverview([odd, CLASS], [odd, NODE], [odd, SLICE], [odd_claim, claim("false")])
    assert [reason.kind for reason in reasons_on_cards(pod(), POOL, cluster)] == ["clause"]


def test_nodes_that_the_pool_selects_and_another_has_are_named() -> None:
    wide = {**POOL, "metadata": {**POOL["metadata"], "name": "wide"}}
    wide["spec"] = {"owner": "kube-scheduler", "nodeSelector": {}}
    asking = pod()
    asking["metadata"]["annotations"] = {GPUPOOL: "wide"}
    cluster = CardOverview([CLASS], [NODE], [SLICE], [claim("true")])

    assert [str(reason) for reason in reasons_on_cards(asking, wide, cluster)] == [
        "pool wide selects nodes that other pools have: n1 (fast)",
        "pool wide has no node to allocate on",
    ]
