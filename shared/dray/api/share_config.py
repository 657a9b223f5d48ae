"""dray's opaque configuration in claims: ``GPUShareConfig`` of ``tensor-fusion.ai/v1``.

The node reads limits, quality of service and isolation; the allocator reads the rest.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from dray.api.names import (
    API_VERSION,
    CONTAINER_FIELD,
    PERCENT_FIELDS,
    PLACEMENT_FIELD,
    PREFER_FIELD,
    QOS_LEVELS,
    SHARE_CONFIG_KIND,
    SHARE_CONFIG_KINDS,
    TOPOLOGY_FIELD,
)
from dray.api.quantities import NANO, InvalidQuantityError, parse_quantity

TFLOPS_LIMIT_FIELD: Final = "tflopsLimit"
VRAM_LIMIT_FIELD: Final = "vramLimit"
PERCENT_LIMIT_FIELD: Final = "computePercentLimit"
_ISOLATIONS: Final = ("shared", "soft", "hard", "partitioned")
_CONTAINER: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def config_problems(parameters: Mapping[str, object], *, strict: bool = False) -> Iterator[str]:
    """The problems of the parameters. ``strict``: also unknown fields, which a later version may
    know."""
    version = parameters.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        yield f"apiVersion is {_shown(version)}: expected {API_VERSION}"
    if parameters.get("kind") not in SHARE_CONFIG_KINDS:
        yield f"kind is {_shown(parameters.get('kind'))}: expected {SHARE_CONFIG_KIND}"
        return
    for name, (is_valid, expected) in _FIELDS.items():
        if parameters.get(name) not in (None, "") and not is_valid(str(parameters[name])):
            yield f"{name} is {_shown(parameters[name])}: expected {expected}"
    if strict and parameters.get(TFLOPS_LIMIT_FIELD) and parameters.get(PERCENT_LIMIT_FIELD):
        yield f"{TFLOPS_LIMIT_FIELD} and {PERCENT_LIMIT_FIELD} both limit compute: expected one"
    for name in parameters if strict else ():
        if name not in _KNOWN:
            yield f"{_shown(name)} is not known: expected {', '.join(_KNOWN)}"


def _quantity(text: str, at_most: int | None = None) -> bool:
    try:
        nano = parse_quantity(text).nano
    except InvalidQuantityError:
        return False
    return nano > 0 and (at_most is None or nano <= at_most * NANO)


def _one_of(names: Sequence[str]) -> tuple[Callable[[str], bool], str]:
    return names.__contains__, f"one of {', '.join(names)}"


_FIELDS: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    TFLOPS_LIMIT_FIELD: (_quantity, "TFLOPS as a quantity above zero"),
    VRAM_LIMIT_FIELD: (_quantity, "bytes as a quantity above zero, such as 8Gi"),
    PERCENT_LIMIT_FIELD: (
        lambda text: _quantity(text, at_most=100),
        "a number above 0 and at most 100",
    ),
    "qos": _one_of(QOS_LEVELS),
    "isolation": _one_of(_ISOLATIONS),
    CONTAINER_FIELD: (
        lambda text: _CONTAINER.fullmatch(text) is not None,
        "the name of a container",
    ),
}
_KNOWN: Final = (
    "apiVersion",
    "kind",
    *_FIELDS,
    PREFER_FIELD,
    PLACEMENT_FIELD,
    TOPOLOGY_FIELD,
    *PERCENT_FIELDS.values(),
)


def _shown(value: object) -> str:
    return ascii(str(value)[:80])
