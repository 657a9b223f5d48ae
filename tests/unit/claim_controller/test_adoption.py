"""Pods that have their devices and whose decision is in no log."""

from typing import Any

import pytest

from dray.api.names import (
    ALLOCATION_GATE,
    DECISION,
    DEVICE_CLASS,
    DRAY_SCHEDULER,
    DRIVER,
    OWNER_DRAY,
    VOID,
)
from dray.kube.ports import CLAIMS, PODS, Changed, Object
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions.adoption import adopted
from dray_claim_controller.execution.decisions.next_step import BindPod, NextStep

ATTEMPT = 1_000_001


def metadata(name: str, **fields: Any) -> Object:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "5", **fields}


def cluster(*, reserved: bool = True, pod: Object | None = None, **claim: Any) -> ObjectCache:
    """A pod that dray binds, and its allocated and reserved claim; ``pod``: fields of its spec."""
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
    if not reserved:
        del owned["status"]["reservedFor"]
    user = {
        "metadata": metadata("p"),
        "spec": {
            "schedulerName": DRAY_SCHEDULER,
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
            **(pod or {}),
        },
    }
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(owned))
    cache.apply(PODS, Changed(user))
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


def test_a_gated_pod_keeps_its_gate_if_its_claim_was_deleted_before_it_was_reserved() -> None:
    """Kubernetes removes that claim, and dray decides about the next one."""
    gated = {"schedulerName": "default-scheduler", "schedulingGates": [{"name": ALLOCATION_GATE}]}
    decided = {"annotations": {DECISION: str(ATTEMPT)}, "reserved": False, "pod": gated}
    cache = cluster(**decided)
    assert adopted(cache, cache.pods["uid-p"]) is not None
    cache = cluster(**decided, deletionTimestamp="2023-11-14T22:13:40Z")
    assert adopted(cache, cache.pods["uid-p"]) is None


def test_a_pod_whose_claim_is_void_is_not_bound() -> None:
    cache = cluster(annotations={DECISION: str(ATTEMPT), VOID: str(ATTEMPT)})
    assert adopted(cache, cache.pods["uid-p"]) is None
