"""Pods that have their devices and whose decision is in no log."""

from typing import Any

import pytest

from dray.api.names import DECISION, DEVICE_CLASS, DRAY_SCHEDULER, DRIVER, OWNER_DRAY, VOID
from dray.kube.ports import CLAIMS, PODS, Changed, Object
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions.adoption import adopted
from dray_claim_controller.execution.decisions.next_step import BindPod, NextStep

ATTEMPT = 1_000_001


def metadata(name: str, **fields: Any) -> Object:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "5", **fields}


def cluster(**claim: Any) -> ObjectCache:
    """A pod that dray binds, and its allocated and reserved claim."""
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    share = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    allocation = {
        "devices": {"results": [share]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    request = {"name": "r", "exactly": {"deviceClassName": DEVICE_CLASS}}
    owned = {
        "metadata": metadata("c", **claim),
        "spec": {"devices": {"requests": [request]}},
        "status": {
            "allocation": allocation,
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
        },
    }
    pod = {
        "metadata": metadata("p"),
        "spec": {
            "schedulerName": DRAY_SCHEDULER,
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
        },
    }
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(owned))
    cache.apply(PODS, Changed(pod))
    return cache


@pytest.mark.parametrize("deleted", [{}, {"deletionTimestamp": "2023-11-14T22:13:40Z"}])
def test_a_pod_whose_claim_is_reserved_for_it_is_bound_even_if_the_claim_was_deleted(
    deleted: dict[str, str],
) -> None:
    """Such a claim stays until the pod has ended: nothing else would ever free the pod."""
    cache = cluster(annotations={DECISION: str(ATTEMPT)}, **deleted)
    execution = adopted(cache, cache.pods["uid-p"])
    assert execution is not None
    assert (execution.decision.node, execution.decision.binder) == ("n1", OWNER_DRAY)
    assert NextStep(decision=execution.decision, epoch=2).answer(cache) == BindPod()


def test_a_pod_whose_claim_is_void_is_not_bound() -> None:
    cache = cluster(annotations={DECISION: str(ATTEMPT), VOID: str(ATTEMPT)})
    assert adopted(cache, cache.pods["uid-p"]) is None
