"""Allocations being written, held against all that the claims say. Nothing here awaits."""

from collections.abc import Iterable

from dray.domain.devices import Device, DeviceId
from dray_claim_controller.execute.defence import Holding, double_sale
from dray_claim_controller.observe.picture import Picture


class InFlight:
    """Own writes whose outcome is not seen yet, by claim UID."""

    def __init__(self, picture: Picture, writes: Iterable[Holding] = ()) -> None:
        self._picture = picture
        self._writes = {holding.claim_uid: holding for holding in writes}

    @property
    def writes(self) -> tuple[Holding, ...]:
        """The allocations being written."""
        return tuple(self._writes.values())

    def enter(self, holding: Holding) -> None:
        """The allocation is being written, or was with unknown outcome."""
        self._writes[holding.claim_uid] = holding

    def leave(self, claim_uid: str) -> None:
        """The claim's status tells by now, or the write surely did not happen."""
        self._writes.pop(claim_uid, None)

    def problem(self, holding: Holding) -> str | None:
        """Why the allocation must not be written: see ``defence.double_sale``."""
        return double_sale(holding, self._others(holding), self._devices(holding))

    def is_shareable(self, device_id: DeviceId) -> bool:
        """Whether the device is published as one that several claims may use."""
        device = self._picture.cards.device(device_id)
        return device is not None and device.allow_multiple_allocations

    def _others(self, holding: Holding) -> list[Holding]:
        others: list[Holding] = []
        for device in holding.allocation.devices:
            for uid in self._picture.cards.holders.get(device.id, ()):
                held = self._picture.claims[uid].claim.allocation
                if held is not None:
                    others.append(Holding(uid, held))
        return [*others, *self._writes.values()]

    def _devices(self, holding: Holding) -> dict[DeviceId, Device]:
        ids = [device.id for device in holding.allocation.devices]
        found = {device_id: self._picture.cards.device(device_id) for device_id in ids}
        return {name: device for name, device in found.items() if device is not None}
