"""Builds the device requests of a derived template from the base template's request."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from dray.api.names import (
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
from dray.api.pods import Pool
from dray.api.share_config import PERCENT_LIMIT_FIELD, TFLOPS_LIMIT_FIELD, VRAM_LIMIT_FIELD
from dray.cel.environment import Environment, Mode
from dray_webhook.decisions.annotations import GpuRequest

Object = dict[str, Any]
_PLACEHOLDER = "true"
"""The default selector of a base template, which the generated ones replace."""
_MAX_REQUEST_NAME_LENGTH = 63
"""The limit of a DNS label."""
_DIGITS = 8
DEFAULT_LANGUAGE = Environment(mode=Mode.NEW)


@dataclass(frozen=True, slots=True)
class ApiFeatures:
    """Features of the API server that the derived template depends on."""

    shares_devices: bool = True
    """DRAConsumableCapacity: capacity requests are kept; otherwise claims take whole devices."""
    counts_shareable_devices: bool = True
    """Whether one request can ask for N shareable devices. Otherwise N GPUs are N requests of one
    device each, with a distinctAttribute on uuid."""
    language: Environment = DEFAULT_LANGUAGE
    """The CEL environment for new objects."""


@dataclass(frozen=True, slots=True)
class RequestInput:
    """What one device request is built from."""

    asked: GpuRequest
    selectors: tuple[str, ...]
    container: str = ""
    """The only container that uses it; empty: shared by the containers that refer to it."""


def build_requests(
    request: Object, wanted: RequestInput, form: ApiFeatures, taken: Collection[str]
) -> list[Object]:
    """The base's request completed by ``wanted``: one, or one per GPU if the server can't count.

    Their names differ from those ``taken``.
    """
    asked = wanted.asked
    exactly = dict(request["exactly"])
    kept = [
        selector
        for selector in exactly.get("selectors") or ()
        if (selector.get("cel") or {}).get("expression", "").strip() != _PLACEHOLDER
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


def build_parameters(wanted: RequestInput, pool: Pool, form: ApiFeatures) -> Object:
    """The driver's opaque parameters.

    The node reads the limits, which never affect placement. The allocator reads percentages,
    preferences and placement, which have no field in the API.
    """
    asked = wanted.asked
    percents = {VIRTUAL_TFLOPS: asked.compute_percent, VIRTUAL_VRAM: asked.vram_percent}
    fields = {
        TFLOPS_LIMIT_FIELD: str(asked.tflops_limit) if asked.tflops_limit else "",
        VRAM_LIMIT_FIELD: str(asked.vram_limit) if asked.vram_limit else "",
        PERCENT_LIMIT_FIELD: str(asked.compute_percent_limit or ""),
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


def _capacity(exactly: Object, asked: GpuRequest) -> dict[str, str]:
    """The capacity requests of the base, with the virtual capacities that are known.

    Kubernetes allocates all of a capacity that is not requested. For a percentage, the allocator
    computes the amount once it knows the device.
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
    """The base's name and the container's; shortened, with a hash, if too long or taken."""
    name = f"{original}-{container}" if container else original
    names = [f"{name}-{number}" for number in range(copies)] or [name]
    if container and (
        len(names[-1]) > _MAX_REQUEST_NAME_LENGTH or any(one in taken for one in names)
    ):
        digest = hashlib.sha256(f"{original}/{container}".encode()).hexdigest()[:_DIGITS]
        return _names(name[: _MAX_REQUEST_NAME_LENGTH - _DIGITS - 4], digest, copies, ())
    return names
