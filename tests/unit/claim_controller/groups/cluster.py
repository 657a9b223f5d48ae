"""PodGroups, queues and pods as the claim-controller's cache has them."""

from typing import Any

from dray.api.groups import KUBERNETES, VOLCANO
from dray.api.names import (
    ALLOCATION_GATE,
    DEFAULT_SCHEDULER,
    DEVICE_CLASS,
    DRAY_SCHEDULER,
    DRIVER,
    GPUPOOL,
    REQUEST_ID,
    SHAPE,
)
from dray.api.pods import GroupKey
from dray.kube.ports import CLAIMS, NATIVE_POD_GROUPS, POD_GROUPS, PODS, QUEUES, Changed, Object
from dray.messages.facts import GroupObserved
from dray_claim_controller.cache.group_members import fact_key
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of

KEY = GroupKey(VOLCANO, "team", "train")
NATIVE = GroupKey(KUBERNETES, "team", "train")


class Cluster:
    def __init__(self) -> None:
        self.cache = ObjectCache()
        self.revision = 0

    def put(self, resource: Any, name: str, namespace: str = "", **parts: Any) -> Object:
        self.revision += 1
        metadata = {
            "name": name,
            "uid": f"{resource.plural}-{name}",
            "resourceVersion": str(self.revision),
            **({"namespace": namespace} if namespace else {}),
            **parts.pop("metadata", {}),
        }
        obj = {"apiVersion": resource.api_version, "metadata": metadata, **parts}
        self.cache.apply(resource, Changed(obj))
        return obj

    def put_again(self, obj: Object) -> None:
        """A native group that was edited."""
        self.revision += 1
        metadata = obj["metadata"] | {"resourceVersion": str(self.revision)}
        self.cache.apply(NATIVE_POD_GROUPS, Changed(obj | {"metadata": metadata}))

    def queue(self, name: str = "default", state: str = "Open") -> None:
        self.put(QUEUES, name, status={"state": state})

    def group(self, **spec: Any) -> Object:
        parts = {name: spec.pop(name) for name in ("metadata", "status") if name in spec}
        return self.put(POD_GROUPS, "train", "team", spec={"minMember": 2, **spec}, **parts)

    def native(self, least: int = 2, **parts: Any) -> Object:
        policy = {"schedulingPolicy": {"gang": {"minCount": least}}}
        return self.put(NATIVE_POD_GROUPS, "train", "team", spec=policy, **parts)

    def pod(self, name: str, **fields: Any) -> Object:
        """A pod of the group with a claim; ``held``: whether that is allocated, ``gated``: whether
        kube-scheduler is to bind the pod, and its gate is not removed."""
        annotations = {
            GPUPOOL: fields.pop("pool", "a"),
            REQUEST_ID: "r",
            SHAPE: "{}",
            "scheduling.k8s.io/group-name": "train",
            **fields.pop("annotations", {}),
        }
        for absent in fields.pop("without", ()):
            del annotations[absent]
        metadata = {"annotations": annotations, **fields.pop("metadata", {})}
        status: dict[str, Any] = {"phase": fields.pop("phase", "Pending")}
        held = fields.pop("held", None)
        if (gated := fields.pop("gated", None)) is not None:
            gates = [{"name": ALLOCATION_GATE}] if gated else []
            fields = {"schedulerName": DEFAULT_SCHEDULER, "schedulingGates": gates, **fields}
        spec = {"schedulerName": DRAY_SCHEDULER, "containers": [], **fields}
        if held is not None:
            self.claim(f"{name}-gpu", allocated=held)
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
            status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
        return self.put(PODS, name, "team", metadata=metadata, spec=spec, status=status)

    def claim(self, name: str, *, allocated: bool) -> Object:
        device = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [device]}}} if allocated else {}
        exactly = {"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS}}
        spec = {"devices": {"requests": [exactly]}}
        return self.put(CLAIMS, name, "team", spec=spec, status=status)

    def fact(self, key: GroupKey = KEY) -> GroupObserved:
        found = fact_of(self.cache, fact_key(key), NodeHistory())
        assert isinstance(found, GroupObserved)
        return found

    def blocked(self, key: GroupKey = KEY) -> str:
        return self.fact(key).group.blocked
