"""GPUPools and SchedulingConfigTemplates (tensor-fusion.ai/v1) as domain values."""

from dray.api.enforcement import Enforcement
from dray.api.names import BASE_TEMPLATE, DEFAULT_QOS, OWNER_DRAY
from dray.api.pods import Policy, Pool
from dray.kube.ports import Object


def pool_from(obj: Object) -> Pool:
    """A GPUPool."""
    spec = obj.get("spec") or {}
    oversubscription = (spec.get("capacityConfig") or {}).get("oversubscription") or {}
    selector = spec.get("nodeSelector")
    return Pool(
        name=obj["metadata"]["name"],
        uid=obj["metadata"].get("uid", ""),
        owner=spec.get("owner") or OWNER_DRAY,
        dedicated=bool(spec.get("dedicated")),
        default=bool(spec.get("default")),
        template=spec.get("schedulingConfigTemplate") or "",
        node_selector=None if selector is None else dict(selector),
        default_qos=(spec.get("qosConfig") or {}).get("defaultQoS") or DEFAULT_QOS,
        tflops_ratio=str(oversubscription.get("tflopsRatio") or "1"),
        vram_ratio=str(oversubscription.get("vramRatio") or "1"),
        isolation=spec.get("isolation") or "",
        allowed_namespaces=tuple(spec.get("allowedNamespaces") or ()),
        deleting=bool(obj["metadata"].get("deletionTimestamp")),
        enforcement=_enforcement(spec),
        unhealthy_effect=spec.get("unhealthyTaintEffect") or "NoSchedule",
    )


def _enforcement(spec: Object) -> Enforcement:
    mps = spec.get("mps") or {}
    return Enforcement(
        enforcer=spec.get("enforcer") or "",
        time_slice=spec.get("timeSlice") or "",
        mps_threads_percent=int(mps.get("defaultActiveThreadPercentage") or 0),
        mps_memory=str(mps.get("defaultPinnedDeviceMemoryLimit") or ""),
    )


def policy_from(obj: Object) -> Policy:
    """A SchedulingConfigTemplate; ``version`` is its generation."""
    spec = obj.get("spec") or {}
    dra, placement = spec.get("dra") or {}, spec.get("placement") or {}
    return Policy(
        name=obj["metadata"]["name"],
        uid=obj["metadata"].get("uid", ""),
        dra_enabled=bool(dra.get("enable")),
        claim_template=dra.get("resourceClaimTemplateName") or BASE_TEMPLATE,
        placement=placement.get("mode") or "",
        version=int(obj["metadata"].get("generation") or 0),
        placement_node=placement.get("node") or "",
        placement_gpu=placement.get("gpu") or "",
        placement_weights={
            name: int(one) for name, one in (placement.get("weights") or {}).items()
        },
        placement_topology=placement.get("topology") or "",
    )
