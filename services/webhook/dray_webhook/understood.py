"""What was understood of a pod's request, in words for timelines. Pure."""

from collections.abc import Sequence

from dray.domain.names import (
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
)
from dray.domain.quantities import Quantity
from dray_webhook.annotations import Asked
from dray_webhook.containers import Part
from dray_webhook.injection import (
    dray_binds,
    is_kube_schedulers,
)
from dray_webhook.pools import Resolution


def understood(
    asked: Asked, found: Resolution, parts: Sequence[Part], *, gated: bool
) -> dict[str, str]:
    """What was read, in words for timelines."""
    pool = found.pool.name if found.pool else ""
    shared = next((part.asked for part in parts if not part.container), Asked(count=0))
    own = [f"{part.container}: {_how_much(part.asked)}" for part in parts if part.container]
    words = {
        "gpus": str(sum(part.asked.count for part in parts)),
        "tflops": _in_words(shared.tflops, shared.compute_percent),
        "vram": _in_words(shared.vram, shared.vram_percent),
        "whole": "true" if shared.whole else "",
        "containers": "; ".join(own),
        "prefer": asked.prefer,
        "placement": asked.placement,
        "gpu-topology": asked.topology,
        "pool": pool if asked.pool else f"{pool} (default)",
        "model": asked.model,
        "qos": asked.qos,
        "tflops-limit": str(asked.tflops_limit) if asked.tflops_limit else "",
        "vram-limit": str(asked.vram_limit) if asked.vram_limit else "",
        "selector": "custom" if asked.expression else "generated",
        "dra": found.dra_from,
        "base": f"{found.base.namespace}/{found.base.name}" if found.base else "",
        "binder": OWNER_DRAY
        if found.pool and dray_binds(found.pool, gated)
        else OWNER_KUBE_SCHEDULER,
        "allocator": OWNER_KUBE_SCHEDULER if found.pool and is_kube_schedulers(found.pool) else "",
    }
    return {name: value for name, value in words.items() if value}


def _how_much(asked: Asked) -> str:
    """Such as ``2 × 100 tflops, 16Gi vram``."""
    compute = _in_words(asked.tflops, asked.compute_percent)
    vram = _in_words(asked.vram, asked.vram_percent)
    each = "whole card" if asked.whole else f"{compute} tflops, {vram} vram"
    return f"{asked.count} × {each}"


def _in_words(amount: Quantity | None, percent: Quantity | None) -> str:
    return str(amount) if amount else f"{percent} %" if percent else ""
