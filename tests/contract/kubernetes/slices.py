"""ResourceSlices and their devices as tests write them, and what a server keeps of them."""

import copy
from typing import Any

import pytest

from dray.messages.facts import ClusterObserved


def slice_of(api: Any, *devices: Any, **spec: Any) -> dict[str, Any]:
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": api.unique("slice")},
        "spec": {
            "driver": "gpus.example.com",
            "nodeName": "node-1",
            "pool": pool,
            "devices": list(devices),
            **spec,
        },
    }


def device(**more: Any) -> dict[str, Any]:
    return {"name": "gpu-0", **more}


def shared(policy: Any, value: str = "80Gi") -> dict[str, Any]:
    capacity = {"vram": {"value": value, "requestPolicy": policy}}
    return device(allowMultipleAllocations=True, capacity=capacity)


def as_kept(card: dict[str, Any], keeps: ClusterObserved) -> dict[str, Any]:
    """The device without the fields that a server drops unseen, each with its feature gate."""
    kept = copy.deepcopy(card)
    if not keeps.consumable_capacity:
        kept.pop("allowMultipleAllocations", None)
        for capacity in kept.get("capacity", {}).values():
            capacity.pop("requestPolicy", None)
    if not keeps.device_taints:
        kept.pop("taints", None)
    if not keeps.partitionable_devices:
        kept.pop("nodeName", None)
    return kept


async def causes_of(api: Any, refused: Any, body: Any) -> list[tuple[str, str]]:
    with pytest.raises(refused) as caught:
        await api.create("resourceslices", body)
    assert caught.value.code == 422
    return list(caught.value.causes())
