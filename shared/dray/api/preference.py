"""Preferred devices among those that fit: the annotation ``prefer`` of a pod.

Criteria are separated by ``|``, the most important first. Each is an amount with a direction
(``tflops desc``, ``vram asc``) or models in order of preference (``H100,A100``). A preference
excludes no device.
"""

from functools import lru_cache

import msgspec

from dray.api.names import TFLOPS, VRAM

_AMOUNTS = (TFLOPS, VRAM)
_DIRECTIONS = {"asc": 1, "desc": -1}
LONGEST_MODEL = 64
"""String attributes of devices are at most this long (resource.k8s.io/v1)."""
_MOST_CRITERIA = 8
_MOST_MODELS = 32


class ByAmount(msgspec.Struct, frozen=True, gc=False):
    """Smallest first if ``sign`` is 1, largest first if it is -1."""

    capacity: str
    """``tflops`` or ``vram``: the device's total capacity, regardless of use."""
    sign: int


class ByModel(msgspec.Struct, frozen=True, gc=False):
    """The models in this order. Other models come after them."""

    models: tuple[str, ...]


Preference = tuple[ByAmount | ByModel, ...]


@lru_cache(maxsize=1024)
def parse_preference(text: str) -> Preference:
    """The criteria in ``text``; none if it is empty.

    Raises:
        ValueError: a criterion is invalid; the message shows valid ones.
    """
    if not text:
        return ()
    parts = [part.strip() for part in text.split("|")]
    if len(parts) > _MOST_CRITERIA:
        raise ValueError(f"expected at most {_MOST_CRITERIA} criteria between '|'")
    return tuple(map(_criterion, parts))


def _criterion(text: str) -> ByAmount | ByModel:
    words = text.split()
    if words and (words[0].lower() in _AMOUNTS or words[-1].lower() in _DIRECTIONS):
        if len(words) != 2 or words[0] not in _AMOUNTS or words[1] not in _DIRECTIONS:
            raise ValueError(
                "expected tflops or vram, then desc for the most first or asc for the least first, "
                f'such as "tflops desc"; it has "{text}"'
            )
        return ByAmount(words[0], _DIRECTIONS[words[1]])
    models = tuple(model.strip() for model in text.split(","))
    if len(models) > _MOST_MODELS:
        raise ValueError(f"expected at most {_MOST_MODELS} models in one criterion")
    if not all(model.isprintable() and 0 < len(model) <= LONGEST_MODEL for model in models):
        raise ValueError(
            'expected criteria such as "tflops desc", "vram asc" or models in order of '
            'preference such as "H100,A100", separated by "|"'
        )
    return ByModel(models)
