"""GPUs with running processes that no prepared claim explains. Pure.

Such a process uses memory and compute that dray counts as free: it was started on the node itself,
by another device plugin, or by a privileged pod.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot, GpuUsage, device_name

_FOREIGN: Final = "processes"
"""The value of ``used_by`` for such a GPU."""


def foreign_gpus(
    snapshot: GpuSnapshot,
    usage: Sequence[GpuUsage],
    claimed: Collection[str],
    before: frozenset[str] = frozenset(),
) -> frozenset[str]:
    """UUIDs of the GPUs with such processes. ``claimed``: devices with prepared claims. A claim
    also explains what runs on the card of its MIG instance, or on the instances of its card.
    ``before``: the result of the last check; it counts for GPUs that could not be read now."""
    explained = {gpu.uuid for gpu in snapshot.gpus if device_name(gpu.uuid) in claimed}
    explained |= {gpu.parent_uuid for gpu in snapshot.gpus if gpu.uuid in explained} - {""}
    running = {one.uuid for one in usage if one.processes} | (before - {one.uuid for one in usage})
    return frozenset(gpu.uuid for gpu in snapshot.gpus if _is_foreign(gpu, running, explained))


def _is_foreign(gpu: Gpu, running: Collection[str], explained: Collection[str]) -> bool:
    is_explained = gpu.uuid in explained or gpu.parent_uuid in explained
    return gpu.uuid in running and not is_explained


def with_users(snapshot: GpuSnapshot, foreign: Collection[str]) -> GpuSnapshot:
    """The snapshot with ``used_by`` set for the ``foreign`` GPUs."""
    if not foreign:
        return snapshot
    gpus = [
        msgspec.structs.replace(gpu, used_by=_FOREIGN) if gpu.uuid in foreign else gpu
        for gpu in snapshot.gpus
    ]
    return msgspec.structs.replace(snapshot, gpus=tuple(gpus))
