"""What an enforcer adds to a container that has a share of a GPU. Pure.

The pool chooses the enforcer, or the claim's ``isolation`` if the pool names none.
``docs/limits.md`` says what each one guarantees: tenants can change variables.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from dray.api.enforcement import ENV, MPS
from dray.api.quantities import NANO, Quantity
from dray_node_agent.decisions.cdi import Spec
from dray_node_agent.decisions.mps_folders import PIPES, pipes_of, shared_memory_of

_MIB: Final = 2**20


class ShareLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one GPU in a container; None: no limit."""

    device: str
    position: int | None
    """The GPU's index among the container's GPUs; None: unknown."""
    vram: Quantity | None = None
    compute_percent: Quantity | None = None
    """Percent of the physical GPU's compute."""


class Additions(msgspec.Struct, frozen=True):
    """What a container gets besides its GPU."""

    env: dict[str, str] = {}
    mounts: tuple[Spec, ...] = ()
    """As in a CDI specification."""


Enforcer = Callable[[ShareLimits], Additions]


def _no_enforcer(limits: ShareLimits) -> Additions:
    """Adds nothing: nothing is enforced, or not in the container (``timeslice``, ``mig``)."""
    return Additions()


def _limiter_library(limits: ShareLimits) -> Additions:
    """Variables of HAMi's ``libvgpu.so``, which the image must load."""
    env: dict[str, str] = {}
    if limits.vram is not None and limits.position is not None:
        env[f"CUDA_DEVICE_MEMORY_LIMIT_{limits.position}"] = f"{_mebibytes(limits.vram)}m"
    if limits.compute_percent is not None:
        env["CUDA_DEVICE_SM_LIMIT"] = _percent(limits.compute_percent)
    return Additions(env)


def _mps_client(limits: ShareLimits) -> Additions:
    """The path to the GPU's MPS daemon, and the limits of its clients, which can only be lower than
    the daemon's (NVIDIA's MPS documentation, 4.2). The container has no other GPU."""
    env = {"CUDA_MPS_PIPE_DIRECTORY": PIPES}
    if limits.vram is not None:
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={_mebibytes(limits.vram)}M"
    if limits.compute_percent is not None:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = _percent(limits.compute_percent)
    return Additions(
        env,
        (
            _mount(pipes_of(limits.device), PIPES),
            _mount(shared_memory_of(limits.device), "/dev/shm"),
        ),
    )


def _mount(host_path: str, path: str) -> Spec:
    return {
        "hostPath": host_path,
        "containerPath": path,
        "options": ["rw", "nosuid", "nodev", "bind"],
    }


def _mebibytes(amount: Quantity) -> int:
    return max(amount.nano // NANO // _MIB, 1)


def _percent(amount: Quantity) -> str:
    return str(max(amount.nano // NANO, 1))


_BY_NAME: Final[Mapping[str, Enforcer]] = {ENV: _limiter_library, MPS: _mps_client}


def enforcer_of(name: str) -> Enforcer:
    """The enforcer of this name."""
    return _BY_NAME.get(name, _no_enforcer)
