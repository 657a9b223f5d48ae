"""Share ids: which of a device's shares an allocation is. Pure."""

from collections.abc import Callable
from uuid import UUID, uuid5

from msgspec.structs import replace

from dray.domain.claims import AllocatedDevice, Allocation
from dray.domain.devices import DeviceId
from dray.messages.decisions import ClaimDecision

_NAMESPACE = UUID("2d4c1a52-6a64-5f0e-8a34-6f1f0d7b9e11")


def with_shares(decision: ClaimDecision, is_shareable: Callable[[DeviceId], bool]) -> Allocation:
    """The allocation with a share id on every share.

    The id is made of claim, attempt, request, device and position, so that a repeated write
    repeats it.
    """
    devices = tuple(
        _with_share(decision, index, device, is_shareable)
        for index, device in enumerate(decision.allocation.devices)
    )
    return replace(decision.allocation, devices=devices)


def _with_share(
    decision: ClaimDecision,
    index: int,
    device: AllocatedDevice,
    is_shareable: Callable[[DeviceId], bool],
) -> AllocatedDevice:
    shares = bool(device.consumed) or is_shareable(device.id)
    if device.share_id is not None or not shares:
        return device
    text = f"{decision.uid}.{decision.attempt}/{device.request}/{device.id}/{index}"
    return replace(device, share_id=str(uuid5(_NAMESPACE, text)))
