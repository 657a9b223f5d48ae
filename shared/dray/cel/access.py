"""Reading fields and elements: of the device, of maps and lists, of optional ones."""

from collections.abc import Callable
from typing import Final

from dray.cel.device import DeviceView, Domains
from dray.cel.errors import CelEvaluationError
from dray.cel.frame import Closure, Frame
from dray.cel.operators import find, index
from dray.cel.values import NONE, Optional, Value

_READ: Final[dict[str, Callable[[DeviceView], Value]]] = {
    "driver": lambda device: device.driver,
    "attributes": lambda device: device.attributes_by_domain,
    "capacity": lambda device: device.capacity_by_domain,
    "allowMultipleAllocations": lambda device: device.allow_multiple_allocations,
}
DEVICE_FIELDS: Final[dict[str, Closure]] = {
    "driver": lambda frame: frame.device.driver,
    "attributes": lambda frame: frame.device.attributes_by_domain,
    "capacity": lambda frame: frame.device.capacity_by_domain,
    "allowMultipleAllocations": lambda frame: frame.device.allow_multiple_allocations,
}
"""``device.x``, directly: what almost every selector reads."""


def field(operand: Closure, name: str) -> Closure:
    """``operand.name`` and ``operand["name"]``."""

    def read(frame: Frame) -> Value:
        value = operand(frame)
        if isinstance(value, dict):
            try:
                return value[name]
            except KeyError:
                raise CelEvaluationError(f"no such key: {name}") from None
        if isinstance(value, DeviceView):
            return _READ[name](value)
        return _item(value, name)

    return read


def optional_field(operand: Closure, name: str) -> Closure:
    """``operand.?name``."""

    def read(frame: Frame) -> Optional:
        value = operand(frame)
        return Optional(_READ[name](value)) if isinstance(value, DeviceView) else find(value, name)

    return read


def has(operand: Closure, name: str) -> Closure:
    """``has(operand.name)``. Of domains every one is found, though empty, as in Kubernetes."""

    def test(frame: Frame) -> bool:
        value = operand(frame)
        if isinstance(value, dict):
            return name in value or isinstance(value, Domains)
        return isinstance(value, DeviceView) or find(value, name) is not NONE

    return test


def item(operand: Closure, key: Closure) -> Closure:
    """``operand[key]``."""
    return lambda frame: _item(operand(frame), key(frame))


def optional_item(operand: Closure, key: Closure) -> Closure:
    """``operand[?key]``."""
    return lambda frame: find(operand(frame), key(frame))


def _item(value: Value, key: Value) -> Value:
    return find(value, key) if type(value) is Optional else index(value, key)
