"""GPUPools and SchedulingConfigTemplates (tensor-fusion.ai/v1) as domain values."""

from dray.domain.names import BASE_TEMPLATE, DEFAULT_PLACEMENT, DEFAULT_QOS, OWNER_DRAY
from dray.domain.pods import Policy, Pool
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
    )


def policy_from(obj: Object) -> Policy:
    """A SchedulingConfigTemplate; ``version`` is its generation."""
    spec = obj.get("spec") or {}
    dra = spec.get("dra") or {}
    return Policy(
        name=obj["metadata"]["name"],
        uid=obj["metadata"].get("uid", ""),
        dra_enabled=bool(dra.get("enable")),
        claim_template=dra.get("resourceClaimTemplateName") or BASE_TEMPLATE,
        placement=(spec.get("placement") or {}).get("mode") or DEFAULT_PLACEMENT,
        version=int(obj["metadata"].get("generation") or 0),
    )
