"""Cards of a driver, selectors of them, and which of a fleet match or fail."""

import numpy as np

from dray.cel.columnar import Fleet
from dray.cel.device import DeviceView
from dray.domain.devices import AttributeValue
from dray.domain.quantities import parse_quantity

D = "gpu.example.com"
IS_A100 = f'device.attributes["{D}"].model == "A100"'
HAS_16GI = f'device.capacity["{D}"].memory.compareTo(quantity("16Gi")) >= 0'


def view(
    memory: str | None = None, *, broken: str = "", **attributes: AttributeValue
) -> DeviceView:
    capacity = {} if memory is None else {"memory": parse_quantity(memory)}
    return DeviceView(D, attributes, capacity, False, broken)


def matching(fleet: Fleet, expression: str) -> list[object]:
    return [fleet.device_at(slot) for slot in np.flatnonzero(fleet.masks(expression).match)]


def failing(fleet: Fleet, expression: str) -> list[object]:
    return [fleet.device_at(slot) for slot in np.flatnonzero(fleet.masks(expression).errors)]
