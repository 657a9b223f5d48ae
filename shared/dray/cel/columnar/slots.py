"""Which device has which slot, and which slice holds it."""

from collections.abc import Hashable, Iterable


class Slots:
    """Devices by slot. Slots of devices that went are given to others, the lowest first."""

    def __init__(self) -> None:
        self._slot_of: dict[Hashable, int] = {}
        self._devices: list[Hashable | None] = []
        self._holders: list[Hashable | None] = []
        self._free: list[int] = []
        self._slices: dict[Hashable, tuple[Hashable, ...]] = {}

    @property
    def count(self) -> int:
        """How many slots there are, free ones included."""
        return len(self._devices)

    def __len__(self) -> int:
        return len(self._slot_of)

    def of(self, device: Hashable) -> int | None:
        """The slot of a device; None where it has none."""
        return self._slot_of.get(device)

    def device_at(self, slot: int) -> Hashable | None:
        """The device in a slot; None where it is free."""
        return self._devices[slot]

    def take(self, device: Hashable) -> int:
        """The slot of a device, a new one where it has none."""
        slot = self._slot_of.get(device)
        if slot is not None:
            return slot
        if self._free:
            slot = self._free.pop()
            self._devices[slot] = device
        else:
            slot = len(self._devices)
            self._devices.append(device)
            self._holders.append(None)
        self._slot_of[device] = slot
        return slot

    def release(self, devices: Iterable[Hashable]) -> list[int]:
        """Free the slots of devices; those that have none are passed over."""
        freed = [self._slot_of.pop(device) for device in devices if device in self._slot_of]
        for slot in freed:
            self._devices[slot] = self._holders[slot] = None
        self._free += sorted(freed, reverse=True)
        return freed

    def held_by(self, name: Hashable) -> list[Hashable]:
        """The devices that a slice holds, without those that moved to another one."""
        slots = [(device, self.of(device)) for device in self._slices.get(name, ())]
        return [one for one, at in slots if at is not None and self._holders[at] == name]

    def hold(self, name: Hashable, devices: Iterable[Hashable]) -> None:
        """Let a slice hold ``devices``, which have slots, and no others."""
        self._slices[name] = tuple(devices)
        for device in self._slices[name]:
            self._holders[self._slot_of[device]] = name

    def forget_slice(self, name: Hashable) -> None:
        """Let a slice hold nothing."""
        self._slices.pop(name, None)
