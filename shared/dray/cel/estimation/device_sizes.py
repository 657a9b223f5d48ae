"""How large the parts of a device may be: what DRA declares to cel-go's estimate."""

from dataclasses import dataclass
from typing import Final

from dray.cel.estimation.spans import Span

_DRIVER_LENGTH: Final = 63
_DOMAIN_LENGTH: Final = 63
_NAME_LENGTH: Final = 32
_MOST_ENTRIES: Final = 32
"""``ResourceSliceMaxAttributesAndCapacitiesPerDevice``."""
_VALUE_LENGTH: Final = 64
"""``DeviceAttributeMaxValueLength``, also where attributes may be lists of up to 48 values."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A value's largest size, and the parts below it by the steps of a path."""

    most: int
    steps: "dict[str, _Part]"
    names: "_Part | None" = None
    """What any other name leads to."""


_VALUE: Final = _Part(_VALUE_LENGTH, {})
_NAMES: Final = {"@keys": _Part(_NAME_LENGTH, {})}
_OF_DOMAIN: Final = _Part(_MOST_ENTRIES, {**_NAMES, "@values": _VALUE, "@items": _VALUE}, _VALUE)
_AMOUNT: Final = _Part(0, {})
_AMOUNTS: Final = _Part(_MOST_ENTRIES, {**_NAMES, "@values": _AMOUNT, "@items": _AMOUNT})
_DOMAINS: Final = {"@keys": _Part(_DOMAIN_LENGTH, {})}
_DEVICE: Final = _Part(
    0,
    {
        "driver": _Part(_DRIVER_LENGTH, {}),
        "attributes": _Part(
            _MOST_ENTRIES, {**_DOMAINS, "@values": _OF_DOMAIN, "@items": _OF_DOMAIN}
        ),
        "capacity": _Part(_MOST_ENTRIES, {**_DOMAINS, "@values": _AMOUNTS, "@items": _AMOUNTS}),
        "allowMultipleAllocations": _Part(1, {}),
    },
)


def size_of(path: list[str]) -> Span | None:
    """The size of what ``path`` leads to from a variable; None where that is not declared.

    Steps are names of fields, ``@keys``, ``@values``, ``@items`` and ``@indices``.
    """
    if not path or path[0] != "device":
        return None
    part: _Part | None = _DEVICE
    for step in path[1:]:
        if part is None:
            return None
        known = part.steps.get(step)
        part = known if known or step in ("@keys", "@values", "@items") else part.names
    return None if part is None else Span(0, part.most)
