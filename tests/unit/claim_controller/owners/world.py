"""One node in a pool that changes its owner, and pods and claims that use it."""

from typing import Any

from dray.api.names import DEVICE_CLASS, DRIVER, OWNER_DRAY, OWNER_TAINT, POOL_LABEL, SHAPE
from dray.kube.convert import time_to
from dray.kube.ports import NODES, POOLS, SLICES, Changed, Object
from dray.messages.facts import NodeObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.decisions import Publish
from dray_claim_controller.facts.handover import QuarantineTerms

KEY = FactKey("node", "n1")
QUARANTINE_S = 60.0
NOW = 1_700_000_000.0


class World:
    """A node in one pool, and the facts about it as a leader publishes them."""

    def __init__(self, owner: str = OWNER_DRAY) -> None:
        self.cache = ObjectCache()
        self.revision = 10
        self.fact: NodeObserved | None = None
        self.left: tuple[tuple[str, int], ...] = ()
        self.now = NOW
        self.keeps_taints = True
        self.give(owner)
        self.put(NODES, {"metadata": {"name": "n1", "uid": "n1", "labels": {POOL_LABEL: "p"}}})

    def put(self, resource: Any, obj: Object) -> None:
        self.revision += 1
        obj["metadata"] |= {"resourceVersion": str(self.revision)}
        obj["metadata"].setdefault("uid", obj["metadata"]["name"])
        self.cache.apply(resource, Changed(obj))

    def give(self, wanted: str, generation: int = 1, **status: Any) -> None:
        # Older than all others, that have no time of creation: n1 stays in it.
        metadata = {"name": "p", "uid": "0", "generation": generation}
        self.put(POOLS, {"metadata": metadata, "spec": {"owner": wanted}, "status": status})

    def publish(self, *, tainted: bool, device: str = "gpu-0") -> None:
        taints = [{"key": OWNER_TAINT, "value": "dray", "effect": "NoSchedule"}] if tainted else []
        shown = {
            "name": device,
            "taints": taints,
            "allowMultipleAllocations": True,
            "capacity": {"virtual_tflops": {"value": "100"}},
        }
        spec = {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": self.revision, "resourceSliceCount": 1},
            "devices": [shown],
        }
        self.put(SLICES, {"metadata": {"name": "s"}, "spec": spec})

    def warn(self, *, after_s: float = 0.0) -> NodeObserved:
        """The next fact of the node, or the last where there is nothing new to say."""
        self.now += after_s
        recall = QuarantineTerms(self.now, QUARANTINE_S, self.keeps_taints)
        question = Publish(
            key=KEY, revision=self.revision, before=self.fact, left=self.left, recall=recall
        )
        for fact in question.answer(self.cache):
            assert isinstance(fact, NodeObserved)
            self.fact = fact
        assert self.fact is not None
        return self.fact


def pod(name: str, *, gated: bool = False, scheduler: str = "default-scheduler") -> Object:
    gates = [{"name": "tensor-fusion.ai/allocation"}] if gated else []
    reference = {"name": "tensor-fusion-gpu-claim", "resourceClaimTemplateName": "base-0123456789"}
    statuses = [{"name": "tensor-fusion-gpu-claim", "resourceClaimName": f"{name}-claim"}]
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "annotations": {SHAPE: "{}", POOL_LABEL: "p"},
        },
        "spec": {
            "containers": [{"name": "c"}],
            "schedulerName": scheduler,
            "schedulingGates": gates,
            "resourceClaims": [reference],
        },
        "status": {"phase": "Pending", "resourceClaimStatuses": statuses},
    }


def claim(
    name: str,
    *,
    of: str = "",
    device: str = "",
    tflops: str = "60",
    at: float = NOW,
    decision: int = 0,
) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS}}
    made: Object = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {POOL_LABEL: "p"},
            "annotations": {"tensor-fusion.ai/decision": str(decision)} if decision else {},
        },
        "spec": {"devices": {"requests": [request]}},
    }
    if of:
        owner = {"kind": "Pod", "name": of, "uid": of, "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
    if device:
        result = {
            "request": "gpu",
            "driver": DRIVER,
            "pool": "n1",
            "device": device,
            "consumedCapacity": {"virtual_tflops": tflops},
            "shareID": name,
        }
        made["status"] = {
            "allocation": {"devices": {"results": [result]}, "allocationTimestamp": time_to(at)},
            "reservedFor": [{"resource": "pods", "name": of, "uid": of}] if of else [],
        }
    return made
