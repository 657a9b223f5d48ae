"""Which cards each container of a pod got: the annotation ``container-gpu-ids``. Pure."""

import json
from collections.abc import Callable, Sequence

from dray.api.claims import AllocatedDevice, Claim
from dray.api.devices import Device, DeviceId
from dray.api.names import (
    CLAIM_REFERENCE,
    CONTAINER_GPU_COUNT,
    CONTAINER_GPU_IDS,
    CONTAINER_GPUS,
    DRIVER,
    INJECT_CONTAINER,
)
from dray.kube.convert_pods import claim_names, claim_uses
from dray.kube.ports import Object
from dray_claim_controller.cache.devices import uuid_of

_ASKED_BY = (CONTAINER_GPUS, CONTAINER_GPU_COUNT, INJECT_CONTAINER)
Published = Callable[[DeviceId], Device | None]


def asks_by_container(pod: Object) -> bool:
    """Whether the pod says which of its containers get GPUs."""
    return any(name in _ASKED_BY for name in pod["metadata"].get("annotations") or ())


def container_gpus(pod: Object, claims: Sequence[Claim], published: Published) -> str:
    """JSON of every container's cards, by uuid; an empty list for one that got none.

    A card that is not published (any more) is named by its device name.
    """
    named = claim_names(pod).get(CLAIM_REFERENCE, "")
    held = [
        device
        for claim in claims
        if claim.name == named and claim.allocation is not None
        for device in claim.allocation.devices
        if device.id.driver == DRIVER
    ]
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    found = {
        container["name"]: [
            uuid_of(device.id, published(device.id)) for device in _of(pod, container, held)
        ]
        for container in containers
    }
    return json.dumps(found, separators=(",", ":"))


def says(pod: Object, text: str) -> bool:
    """Whether the pod's annotation is ``text`` already."""
    annotations = pod["metadata"].get("annotations") or {}
    return bool(annotations.get(CONTAINER_GPU_IDS, "") == text)


def _of(pod: Object, container: Object, held: Sequence[AllocatedDevice]) -> list[AllocatedDevice]:
    """The devices of the claim that a container refers to, each card once."""
    found: dict[DeviceId, AllocatedDevice] = {}
    for use in claim_uses(pod, container):
        for device in held if use.get("name") == CLAIM_REFERENCE else ():
            request = use.get("request")
            if not request or request == device.request.split("/", 1)[0]:
                found[device.id] = device
    return list(found.values())
