"""The use of GPUs, which node-agents publish on the bus."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import click
from msgspec.structs import replace

from dray.bus.ports import Bus, StreamMissingError
from dray.bus.topology import USAGE_STREAM
from dray.messages.base import UndecodableMessageError, decode, subject_of
from dray.messages.usage import GpusUsed, UsedGpu
from dray_cli.cluster_bus import open_bus
from dray_cli.streams import read_whole
from dray_cli.tables import Cell

TITLES = ("BUSY", "MEMORY", "TEMP", "POWER", "ERRORS")
_GIB = 2**30
_MOST: Final = {
    "memory_used_bytes": 2**60,
    "gpu_percent": 100,
    "memory_percent": 100,
    "temperature_c": 1000,
    "power_w": 1e6,
    "xid": 2**32,
    "ecc_corrected": 2**60,
    "ecc_uncorrected": 2**60,
}
"""The highest plausible value of each field; the lowest is 0."""
N = TypeVar("N", int, float)
_UNKNOWN: Final = UsedGpu(uuid="")
GpuUses = Mapping[tuple[str, str], UsedGpu]
"""By node and UUID: a node-agent reports only the GPUs of its own node."""

usage_option = click.option(
    "--usage",
    "with_usage",
    is_flag=True,
    help="Also show how busy each GPU is, from the bus: memory, temperature, power, errors.",
)


@asynccontextmanager
async def usage_bus(kubeconfig: str | None, *, with_usage: bool) -> AsyncIterator[Bus | None]:
    """The bus; None if the use of GPUs is not wanted. Raises BusUnavailableError."""
    if not with_usage:
        yield None
        return
    async with open_bus(kubeconfig, None) as bus:
        yield bus


async def read_usage(bus: Bus | None) -> GpuUses:
    """The last reports of node-agents; empty without a bus, or if dray's services are of an earlier
    release. Raises BusUnavailableError."""
    found: dict[tuple[str, str], UsedGpu] = {}
    if bus is None:
        return found
    try:
        async with aclosing(read_whole(bus, USAGE_STREAM)) as messages:
            async for delivered in messages:
                with suppress(UndecodableMessageError):  # of a later release
                    used = decode(delivered, GpusUsed)
                    # The bus lets an agent publish only under its own node's subject.
                    if delivered.subject == subject_of(used):
                        found |= {(used.node, gpu.uuid): _plausible(gpu) for gpu in used.gpus}
    except StreamMissingError:
        pass
    return found


def _plausible(used: UsedGpu) -> UsedGpu:
    """Without implausible values: a driver that does not know a value returns -1 or the highest
    number, which would make a node's sums wrong, too."""
    odd = [name for name, most in _MOST.items() if not 0 <= (getattr(used, name) or 0) <= most]
    return replace(used, **{name: getattr(_UNKNOWN, name) for name in odd}) if odd else used


def usage_cells(used: UsedGpu | None) -> list[Cell | str]:
    """The columns of ``TITLES``; ``-``: not known."""
    if used is None:
        return ["-"] * len(TITLES)
    memory = used.memory_used_bytes
    return [
        _shown(used.gpu_percent, "%"),
        "-" if memory is None else f"{memory / _GIB:.1f}Gi",
        _shown(used.temperature_c, "°C"),
        "-" if used.power_w is None else f"{used.power_w:.0f}W",
        _errors(used),
    ]


def sum_of(gpus: Sequence[UsedGpu]) -> UsedGpu | None:
    """The use of several GPUs as one: the mean percentage, the highest temperature and XID, and
    sums of the other values; None without GPUs."""
    if not gpus:
        return None
    busy = [gpu.gpu_percent for gpu in gpus if gpu.gpu_percent is not None]
    return UsedGpu(
        uuid="",
        memory_used_bytes=_sum(gpu.memory_used_bytes for gpu in gpus),
        gpu_percent=round(sum(busy) / len(busy)) if busy else None,
        temperature_c=max(filter(None, (gpu.temperature_c for gpu in gpus)), default=None),
        power_w=_sum(gpu.power_w for gpu in gpus),
        xid=max(gpu.xid for gpu in gpus),
        ecc_corrected=_sum(gpu.ecc_corrected for gpu in gpus),
        ecc_uncorrected=_sum(gpu.ecc_uncorrected for gpu in gpus),
    )


def _sum(values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def usage_as_json(used: UsedGpu | None) -> dict[str, Any]:
    """The use as data: a field ``usage`` if it is known."""
    if used is None:
        return {}
    return {
        "usage": {
            "gpuPercent": used.gpu_percent,
            "memoryUsedBytes": used.memory_used_bytes,
            "memoryPercent": used.memory_percent,
            "temperatureC": used.temperature_c,
            "powerW": used.power_w,
            "xid": used.xid,
            "eccCorrected": used.ecc_corrected,
            "eccUncorrected": used.ecc_uncorrected,
        }
    }


def _shown(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value}{unit}"


def _errors(used: UsedGpu) -> Cell | str:
    found = [f"xid {used.xid}"] if used.xid else []
    found += [f"{used.ecc_corrected} corrected"] if used.ecc_corrected else []
    found += [f"{used.ecc_uncorrected} uncorrected"] if used.ecc_uncorrected else []
    if not found:
        return "none"
    is_bad = used.xid or used.ecc_uncorrected
    return Cell(", ".join(found), "bold red" if is_bad else "yellow")
