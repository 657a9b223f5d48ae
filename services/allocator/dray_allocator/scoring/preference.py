"""Preferences of pods: an order of the devices that fit, before any score.

A preference refuses no device. Keys are tuples of whole numbers, the lowest is best; without
criteria all keys are equal, and the score decides.
"""

from collections.abc import Mapping
from typing import Protocol

from dray.api.claims import Claim
from dray.api.devices import Capacity
from dray.api.names import DRIVER, PREFER_FIELD
from dray.api.preference import ByAmount, ByModel, Preference, parse_preference
from dray.api.quantities import parse_quantity
from dray_allocator.devices.driver_parameters import own_parameters
from dray_allocator.devices.ordered_search import PreferenceKey

MODEL = "model"


class PreferableDevice(Protocol):
    """The fields of a device that preferences read."""

    @property
    def attributes(self) -> Mapping[str, object]: ...

    @property
    def capacity(self) -> Mapping[str, Capacity]: ...


def preference_of(claim: Claim, request: str) -> Preference:
    """The criteria of a request; values that the webhook refuses are ignored."""
    for parameters in own_parameters(claim, request):
        try:
            return parse_preference(str(parameters.get(PREFER_FIELD, "")))
        except ValueError:
            return ()
    return ()


def card_key(preference: Preference, device: PreferableDevice) -> PreferenceKey:
    """One number per criterion. A device without the attribute or capacity comes last."""
    return tuple(_number(criterion, device) for criterion in preference)


def _number(criterion: ByAmount | ByModel, device: PreferableDevice) -> int:
    if isinstance(criterion, ByModel):
        model = model_of(device)
        models = criterion.models
        return models.index(model) if model in models else len(models)
    capacity = device.capacity.get(criterion.capacity)
    if capacity is None:
        return _LAST
    return criterion.sign * parse_quantity(capacity.value).nano


def model_of(device: PreferableDevice) -> str:
    """The model attribute of a device, or empty."""
    value = device.attributes.get(MODEL, device.attributes.get(f"{DRIVER}/{MODEL}"))
    return value if isinstance(value, str) else ""


_LAST = 1 << 128
"""Above every quantity in billionths (int64 × 10⁹)."""
