"""The health of the node's devices, as pods show it. Pure."""

from typing import Final

import msgspec

from dray_node_agent.decisions.gpus import GpuSnapshot, device_name

_LONGEST_MESSAGE: Final = 1024
"""The kubelet's limit; it cuts longer messages."""


class GpuHealth(msgspec.Struct, frozen=True):
    """The health of one device."""

    pool: str
    device: str
    is_healthy: bool | None
    """None: unknown."""
    message: str = ""


def device_health(
    snapshot: GpuSnapshot | None, node: str, problem: str = ""
) -> tuple[GpuHealth, ...]:
    """The health of every device of the last snapshot. ``problem``: why the GPUs can't be read
    now; then the health of GPUs that were healthy is unknown."""
    return tuple(
        GpuHealth(
            node,
            device_name(gpu.uuid),
            False if gpu.health_error else (None if problem else True),
            (gpu.health_error or problem)[:_LONGEST_MESSAGE],
        )
        for gpu in (snapshot.gpus if snapshot is not None else ())
    )
