"""What a pod would rather have: an order of the cards that it can have, before any score.

A preference never refuses a card. Keys are tuples of whole numbers, the lowest is best; without
criteria all keys are equal, and the score alone decides.
"""

from collections.abc import Mapping
from typing import Protocol

from dray.api.claims import Claim
from dray.api.devices import Capacity
from dray.api.names import DRIVER, PREFER_FIELD
from dray.api.preference import ByAmount, ByModel, Preference, parse_preference
from dray.api.quantities import parse_quantity
from dray_allocator.devices.driver_parameters import own_parameters
from dray_allocator.devices.ordered_search import Key

MODEL = "model"


class PreferableDevice(Protocol):
    """What is read of a device."""

    @property
    def attributes(self) -> Mapping[str, object]: ...

    @property
    def capacity(self) -> Mapping[str, Capacity]: ...


def preference_of(claim: Claim, request: str) -> Preference:
    """The criteria for a request; what the webhook would not have let in counts for nothing."""
    for parameters in own_parameters(claim, request):
        try:
            return parse_preference(str(parameters.get(PREFER_FIELD, "")))
        except ValueError:
            return ()
    return ()


def card_key(preference: Preference, device: PreferableDevice) -> Key:
    """One number per criterion. A card that does not say what is asked for comes last."""
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
    """What a device says it is; empty where it does not."""
    value = device.attributes.get(MODEL, device.attributes.get(f"{DRIVER}/{MODEL}"))
    return value if isinstance(value, str) else ""


_LAST = 1 << 128
"""Above every quantity in billionths (int64 × 10⁹)."""
