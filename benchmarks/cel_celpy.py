"""An auto selector in celpy, which knows no quantities: they are given to it as functions."""

from collections.abc import Callable

import celpy
from celpy import celtypes

from dray.cel.device import DeviceView
from dray.domain.quantities import Quantity, parse_quantity


def program(expression: str) -> Callable[[DeviceView], bool]:
    """The selector as a function of a device, its conversion to celpy's values included."""
    environment = celpy.Environment()
    runner = environment.program(
        environment.compile(expression), functions={"quantity": _quantity, "compareTo": _compare}
    )

    def matches(view: DeviceView) -> bool:
        fields = {
            "driver": view.driver,
            "attributes": {view.driver: dict(view.attributes)},
            "capacity": {view.driver: {k: str(amount) for k, amount in view.capacity.items()}},
        }
        return bool(runner.evaluate({"device": celpy.json_to_cel(fields)}))

    return matches


def _quantity(text: celtypes.StringType) -> celtypes.StringType:
    parse_quantity(str(text))
    return text


def _compare(left: celtypes.StringType, right: celtypes.StringType) -> celtypes.IntType:
    first, second = _parsed(left), _parsed(right)
    return celtypes.IntType((first > second) - (first < second))


def _parsed(text: celtypes.StringType) -> Quantity:
    return parse_quantity(str(text))
