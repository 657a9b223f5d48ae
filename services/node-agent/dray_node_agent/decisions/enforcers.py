"""What holds a program to its limits, by the pool's ``isolation``. Pure.

An enforcer adds environment variables. None of them binds a program that changes its environment;
``docs/limits.md`` says what each guarantees.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from dray.api.quantities import NANO, Quantity

_MIB: Final = 2**20


class ShareLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one GPU in a container; None: no limit."""

    position: int | None
    """The GPU's index among the container's GPUs; None: unknown."""
    vram: Quantity | None = None
    compute_percent: Quantity | None = None
    """Percent of the physical GPU's compute."""


Enforcer = Callable[[ShareLimits], Mapping[str, str]]


def no_enforcer(limits: ShareLimits) -> Mapping[str, str]:
    """Nothing is added."""
    return {}


def limiter_library(limits: ShareLimits) -> Mapping[str, str]:
    """Variables of HAMi's ``libvgpu.so``, which the image must load."""
    env: dict[str, str] = {}
    if limits.vram is not None and limits.position is not None:
        mebibytes = max(limits.vram.nano // NANO // _MIB, 1)
        env[f"CUDA_DEVICE_MEMORY_LIMIT_{limits.position}"] = f"{mebibytes}m"
    if limits.compute_percent is not None:
        env["CUDA_DEVICE_SM_LIMIT"] = str(max(limits.compute_percent.nano // NANO, 1))
    return env


_BY_ISOLATION: Final[Mapping[str, Enforcer]] = {"soft": limiter_library}


def enforcer_of(isolation: str) -> Enforcer:
    """The enforcer of an isolation."""
    return _BY_ISOLATION.get(isolation, no_enforcer)
