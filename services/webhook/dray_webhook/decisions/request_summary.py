"""Summary of a pod's request, for events and timelines."""

from collections.abc import Sequence

from dray.api.names import (
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
)
from dray.api.quantities import Quantity, readable
from dray_webhook.decisions.annotations import GpuRequest
from dray_webhook.decisions.containers import ContainerRequest
from dray_webhook.decisions.injection import (
    dray_binds,
    is_allocated_by_kube_scheduler,
)
from dray_webhook.decisions.pools import PoolResolution


def summarize_request(
    asked: GpuRequest, found: PoolResolution, parts: Sequence[ContainerRequest], *, gated: bool
) -> dict[str, str]:
    """The request as parsed and resolved, by field; empty fields are left out."""
    pool = found.pool.name if found.pool else ""
    shared = next((part.asked for part in parts if not part.container), GpuRequest(count=0))
    own = [f"{part.container}: {_amounts_text(part.asked)}" for part in parts if part.container]
    summary = {
        "gpus": str(sum(part.asked.count for part in parts)),
        "tflops": _amount_text(shared.tflops, shared.compute_percent),
        "vram": _amount_text(shared.vram, shared.vram_percent),
        "whole": "true" if shared.whole else "",
        "containers": "; ".join(own),
        "prefer": asked.prefer,
        "placement": asked.placement,
        "gpu-topology": asked.topology,
        "pool": pool if asked.pool else f"{pool} (default)",
        "model": asked.model,
        "qos": asked.qos,
        "tflops-limit": _amount_text(asked.tflops_limit),
        "vram-limit": _amount_text(asked.vram_limit),
        "selector": "custom" if asked.expression else "generated",
        "dra": found.dra_from,
        "base": f"{found.base.namespace}/{found.base.name}" if found.base else "",
        "binder": OWNER_DRAY
        if found.pool and dray_binds(found.pool, gated)
        else OWNER_KUBE_SCHEDULER,
        "allocator": OWNER_KUBE_SCHEDULER
        if found.pool and is_allocated_by_kube_scheduler(found.pool)
        else "",
    }
    return {name: value for name, value in summary.items() if value}


def _amounts_text(asked: GpuRequest) -> str:
    """Such as ``2 × 100 tflops, 16Gi vram``."""
    compute = _amount_text(asked.tflops, asked.compute_percent)
    vram = _amount_text(asked.vram, asked.vram_percent)
    each = "whole card" if asked.whole else f"{compute} tflops, {vram} vram"
    return f"{asked.count} × {each}"


def _amount_text(amount: Quantity | None, percent: Quantity | None = None) -> str:
    if amount:
        return readable(amount.nano, binary=amount.binary)
    return f"{readable(percent.nano)} %" if percent else ""
