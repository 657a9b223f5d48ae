"""The types of the variable ``device`` and of a selector, by environment."""

from functools import lru_cache

from dray.cel.environment import Environment
from dray.cel.types import types
from dray.cel.types.types import Type


def result_types(environment: Environment) -> tuple[Type, ...]:
    """Types that the result of a selector may have: bool, and the type of an attribute."""
    attribute = types.DYN if environment.dyn_attributes else types.ANY
    if environment.minor >= 37:
        return types.BOOL, types.wrapper_of(types.BOOL), attribute
    return types.BOOL, types.ANY, attribute


def device_fields(environment: Environment) -> dict[str, Type]:
    """Types of the fields of ``device``."""
    return _device_fields(environment.dyn_attributes, environment.knows_sharing)


@lru_cache(maxsize=4)
def _device_fields(dyn_attributes: bool, knows_sharing: bool) -> dict[str, Type]:
    attribute = types.DYN if dyn_attributes else types.ANY
    fields = {
        "driver": types.STRING,
        "attributes": types.map_of(types.STRING, types.map_of(types.STRING, attribute)),
        "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
    }
    if knows_sharing:
        fields["allowMultipleAllocations"] = types.BOOL
    return fields
