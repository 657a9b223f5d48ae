"""One request of a base template, completed to what a pod or one of its containers asks for."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from dray.cel.environment import Environment, Mode
from dray.domain.names import (
    API_VERSION,
    CONTAINER_FIELD,
    LIMITS_KIND,
    PERCENT_FIELDS,
    PLACEMENT_FIELD,
    PREFER_FIELD,
    TFLOPS,
    TOPOLOGY_FIELD,
    VIRTUAL_TFLOPS,
    VIRTUAL_VRAM,
    VRAM,
    qualified,
)
from dray.domain.pods import Pool
from dray_webhook.annotations import Asked

Object = dict[str, Any]
PLACEHOLDER = "true"
"""The seed's "default value" of a selector, which the generated ones replace."""
LONGEST_NAME = 63
"""Of a request (DNS label)."""
_DIGITS = 8
DEFAULT_LANGUAGE = Environment(mode=Mode.NEW)


@dataclass(frozen=True, slots=True)
class Form:
    """What the server keeps, and so which form the shape takes."""

    shares_devices: bool = True
    """Capacity requests are kept; otherwise every claim takes whole cards."""
    counts_shareable_devices: bool = True
    """Otherwise N GPUs are N requests of one, told apart by their uuid."""
    language: Environment = DEFAULT_LANGUAGE
    """What the server reads in the template that is about to be made."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request that the base's is completed to."""

    asked: Asked
    selectors: tuple[str, ...]
    container: str = ""
    """Whose it is alone; empty: of all containers that refer to it."""


def completed(request: Object, wanted: Wanted, form: Form, taken: Collection[str]) -> list[Object]:
    """The request as ``wanted``, once for each GPU where the server can't count them.

    Their names are none of those ``taken``.
    """
    asked = wanted.asked
    exactly = dict(request["exactly"])
    kept = [
        selector
        for selector in exactly.get("selectors") or ()
        if (selector.get("cel") or {}).get("expression", "").strip() != PLACEHOLDER
    ]
    exactly["selectors"] = [*({"cel": {"expression": text}} for text in wanted.selectors), *kept]
    exactly["allocationMode"] = "ExactCount"
    many = asked.count > 1 and not form.counts_shareable_devices
    exactly["count"] = 1 if many else asked.count
    amounts = _capacity(exactly, asked) if form.shares_devices else {}
    exactly.pop("capacity", None)
    if amounts:
        exactly["capacity"] = {"requests": amounts}
    names = _names(request["name"], wanted.container, asked.count if many else 0, taken)
    return [{**request, "name": name, "exactly": exactly} for name in names]


def parameters(wanted: Wanted, pool: Pool, form: Form) -> Object:
    """The driver's configuration: limits, which the node reads, and what Kubernetes has no words
    for, percentages, preferences and placement, which dray's allocator reads.

    Limits never affect placement (seed 001 §4.3).
    """
    asked = wanted.asked
    percents = {VIRTUAL_TFLOPS: asked.compute_percent, VIRTUAL_VRAM: asked.vram_percent}
    fields = {
        "tflopsLimit": str(asked.tflops_limit) if asked.tflops_limit else "",
        "vramLimit": str(asked.vram_limit) if asked.vram_limit else "",
        "computePercentLimit": str(asked.compute_percent_limit or ""),
        "qos": asked.qos,
        "isolation": pool.isolation,
        CONTAINER_FIELD: wanted.container,
        PREFER_FIELD: asked.prefer,
        PLACEMENT_FIELD: asked.placement,
        TOPOLOGY_FIELD: asked.topology,
        **{
            PERCENT_FIELDS[name]: str(percent) if percent and form.shares_devices else ""
            for name, percent in percents.items()
        },
    }
    stated = {name: value for name, value in fields.items() if value}
    return {"apiVersion": API_VERSION, "kind": LIMITS_KIND, **stated} if stated else {}


def _capacity(exactly: Object, asked: Asked) -> dict[str, str]:
    """The base's own capacity requests, and of the virtual pair what is known already.

    What is not stated is taken as a whole: of whole cards that is meant, and of a percentage
    dray's allocator makes an amount when it knows the card; any other would take all of it.
    """
    ours = {
        spelling
        for name in (TFLOPS, VRAM, VIRTUAL_TFLOPS, VIRTUAL_VRAM)
        for spelling in (name, qualified(name))
    }
    base = (exactly.get("capacity") or {}).get("requests") or {}
    kept = {name: str(amount) for name, amount in base.items() if name not in ours}
    amounts = {VIRTUAL_TFLOPS: asked.tflops, VIRTUAL_VRAM: asked.vram}
    return {**kept, **{name: str(amount) for name, amount in amounts.items() if amount}}


def _names(original: str, container: str, copies: int, taken: Collection[str]) -> list[str]:
    """The base's name, with the container's; shortened or told apart by a hash where need be."""
    name = f"{original}-{container}" if container else original
    names = [f"{name}-{number}" for number in range(copies)] or [name]
    if container and (len(names[-1]) > LONGEST_NAME or any(one in taken for one in names)):
        digest = hashlib.sha256(f"{original}/{container}".encode()).hexdigest()[:_DIGITS]
        return _names(name[: LONGEST_NAME - _DIGITS - 4], digest, copies, ())
    return names
