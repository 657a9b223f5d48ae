"""An auto selector in celpy. celpy has no quantities: they are added as functions."""

from collections.abc import Callable

import celpy
from celpy import celtypes

from dray.api.quantities import Quantity, parse_quantity
from dray.cel.view import DeviceView
from dray_sandbox.celpy_environment import celpy_environment


def program(expression: str) -> Callable[[celtypes.Value], bool]:
    """The selector as a function of a device that was made ``ready``."""
    environment = celpy_environment()
    runner = environment.program(
        environment.compile(expression), functions={"quantity": _quantity, "compareTo": _compare}
    )
    return lambda device: bool(runner.evaluate({"device": device}))


def ready(view: DeviceView) -> celtypes.Value:
    """A device as celpy's values; the conversion is not measured."""
    fields = {
        "driver": view.driver,
        "attributes": {view.driver: dict(view.attributes)},
        "capacity": {view.driver: {k: str(amount) for k, amount in view.capacity.items()}},
    }
    return celpy.json_to_cel(fields)


def _quantity(text: celtypes.StringType) -> celtypes.StringType:
    parse_quantity(str(text))
    return text


def _compare(left: celtypes.StringType, right: celtypes.StringType) -> celtypes.IntType:
    first, second = _parsed(left), _parsed(right)
    return celtypes.IntType((first > second) - (first < second))


def _parsed(text: celtypes.StringType) -> Quantity:
    return parse_quantity(str(text))
