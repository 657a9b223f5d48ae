"""Simulated GPUs, for machines without one.

Their uuids are derived from the node's name and stay the same after a restart. A health file makes
GPUs unhealthy: one line per GPU with its index or uuid, and a reason (``3 xid-79``).
"""

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid5

import msgspec

from dray.api.errors import InvalidInputError
from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot, GpuUsage
from dray_node_agent.gpus.file_watcher import FileWatcher

_NAMESPACE = UUID("3d1f6f4e-9a55-5c0e-8a53-6a1f0c5d7b10")
_GIB = 2**30
_PRODUCTS: dict[str, tuple[str, int]] = {
    "A100": ("NVIDIA A100-SXM4-40GB", 40),
    "H100": ("NVIDIA H100 80GB HBM3", 80),
    "H200": ("NVIDIA H200", 141),
    "B200": ("NVIDIA B200", 180),
    "GB200": ("NVIDIA GB200", 186),
    "V100": ("Tesla V100-SXM2-32GB", 32),
    "L40S": ("NVIDIA L40S", 48),
    "L4": ("NVIDIA L4", 24),
    "T4": ("Tesla T4", 16),
    "RTX4090": ("NVIDIA GeForce RTX 4090", 24),
}
_LINKED = ("A100", "H100", "H200", "B200", "GB200", "V100")
"""Models whose GPUs are all connected by NVLink."""
_SLICES = 7
"""Compute slices of a card that MIG divides."""
_LOAD = re.compile(r"([0-9]{1,3})-([0-9]{1,3})/([1-9][0-9]{0,5})s")
_HEALTH_FILES = FileWatcher()
_IDLE_C, _WARMER_C = 35, 45
_IDLE_W, _MORE_W = 70, 330
_PROFILE = re.compile(r"(?P<slices>[1-7])g\.(?P<gib>[1-9][0-9]{0,2})gb")
MODELS = tuple(_PRODUCTS)
"""Models that can be simulated."""


class SimulatedGpus:
    """``count`` GPUs of ``model`` on ``node``, on two NUMA nodes, two per PCIe root.

    ``stand_in``: path of a device file that containers see as ``/dev/nvidia0`` and so on; without
    it they see none. ``mig``: the profile of the instances into which GPUs are divided, such as
    ``1g.10gb``; empty: they are not divided. ``load``: how busy they are, such as ``20-90/300s``:
    between 20 and 90 percent, in waves of 300 s, each GPU a bit later than the one before it;
    empty: they are idle.

    Raises:
        InvalidInputError: the model is unknown, a GPU has no room for an instance, or the load has
            another form.
    """

    def __init__(
        self,
        node: str,
        model: str,
        count: int,
        health_file: Path | None = None,
        stand_in: Path | None = None,
        mig: str = "",
        load: str = "",
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        if model not in _PRODUCTS:
            raise InvalidInputError(
                f"model {model!r} can't be simulated: choose one of {', '.join(MODELS)}"
            )
        product, memory_gib = _PRODUCTS[model]
        half = (count + 1) // 2
        self._on_event: Callable[[], None] = lambda: None
        self._stop_watching: Callable[[], None] | None = None
        self._load = _Load.parsed(load)
        self._clock_s = clock_s
        self._health_file = health_file
        cards = tuple(
            Gpu(
                uuid=f"GPU-{uuid5(_NAMESPACE, f'{node}/{index}')}",
                product=product,
                memory_bytes=memory_gib * _GIB,
                pci_bus_id=f"0000:{index + 1:02x}:00.0",
                pcie_root=_root(index, half),
                numa_node=0 if index < half else 1,
                nvlink_domain="0000:01:00.0" if model in _LINKED and count > 1 else "",
                device_nodes=(f"{stand_in}:/dev/nvidia{index}",) if stand_in else (),
            )
            for index in range(count)
        )
        self._gpus = tuple(
            (str(index), gpu)
            for index, card in enumerate(cards)
            for gpu in (card, *(_instances(card, mig) if mig else ()))
        )
        """Each with the index of its card."""

    def read(self) -> GpuSnapshot:
        """The GPUs; those in the health file have a health error."""
        unhealthy = self._unhealthy()
        gpus = (
            msgspec.structs.replace(
                gpu, health_error=unhealthy.get(gpu.uuid) or unhealthy.get(index, "")
            )
            for index, gpu in self._gpus
        )
        return GpuSnapshot(tuple(gpus), driver_version="simulated")

    def read_usage(self) -> tuple[GpuUsage, ...]:
        """The use that the load describes; no process runs on the GPUs."""
        if self._load is None:
            return tuple(GpuUsage(gpu.uuid, memory_used_bytes=0) for _, gpu in self._gpus)
        now_s, count = self._clock_s(), len(self._gpus)
        shares = (self._load.at(now_s, place / count) for place in range(count))
        return tuple(_usage(gpu, share) for (_, gpu), share in zip(self._gpus, shares, strict=True))

    def set_time_slice(self, uuid: str, number: int) -> None:
        """Do nothing: no program runs on the GPUs."""

    def listen(self, on_event: Callable[[], None]) -> None:
        """Have ``on_event`` called when the health file changes, as NVML does at an XID."""
        self._on_event = on_event
        if self._health_file is not None and self._stop_watching is None:
            self._stop_watching = _HEALTH_FILES.watch(self._health_file, lambda: self._on_event())

    def close(self) -> None:
        """Stop watching the health file."""
        if self._stop_watching is not None:
            self._stop_watching()

    def _unhealthy(self) -> dict[str, str]:
        if self._health_file is None:
            return {}
        try:
            lines = self._health_file.read_text().splitlines()
        except FileNotFoundError:
            return {}
        entries = [line.split(maxsplit=1) for line in lines if line.strip()]
        return {entry[0]: entry[1].strip() if len(entry) > 1 else "unhealthy" for entry in entries}


@dataclass(frozen=True, slots=True)
class _Load:
    """A wave between two percentages."""

    least: int
    most: int
    period_s: int

    @classmethod
    def parsed(cls, text: str) -> "_Load | None":
        """Raises InvalidInputError."""
        if not text:
            return None
        form = _LOAD.fullmatch(text)
        if form is None or not int(form[1]) <= int(form[2]) <= 100:
            raise InvalidInputError(
                f"load {text!r} of simulated GPUs: expected two percents and a period in seconds, "
                "such as 20-90/300s"
            )
        return cls(int(form[1]), int(form[2]), int(form[3]))

    def at(self, now_s: float, phase: float) -> float:
        """The busy part, from 0 to 1. ``phase``: the delay of the wave, in periods."""
        wave = (1 - math.cos(2 * math.pi * (now_s / self.period_s - phase))) / 2
        return (self.least + (self.most - self.least) * wave) / 100


def _usage(gpu: Gpu, share: float) -> GpuUsage:
    return GpuUsage(
        gpu.uuid,
        memory_used_bytes=int(gpu.memory_bytes * share),
        gpu_percent=round(share * 100),
        memory_percent=round(share * 60),
        temperature_c=round(_IDLE_C + _WARMER_C * share),
        power_w=round(_IDLE_W + _MORE_W * share, 1),
    )


def _instances(card: Gpu, profile: str) -> Iterator[Gpu]:
    """As many instances of a profile as fit on a card, by its slices and its memory."""
    if (form := _PROFILE.fullmatch(profile)) is None:
        raise InvalidInputError(
            f"MIG profile {profile!r}: expected slices and memory, such as 1g.10gb"
        )
    slices, memory_bytes = int(form["slices"]), int(form["gib"]) * _GIB
    room = min(_SLICES // slices, card.memory_bytes // memory_bytes)
    if not room:
        raise InvalidInputError(
            f"MIG profile {profile} has no room on {card.product}, which has {_SLICES} slices and "
            f"{card.memory_bytes // _GIB} GiB"
        )
    for number in range(room):
        yield msgspec.structs.replace(
            card,
            uuid=f"MIG-{uuid5(_NAMESPACE, f'{card.uuid}/{number}')}",
            memory_bytes=memory_bytes,
            parent_uuid=card.uuid,
            mig_profile=profile,
            mig_id=number,
            compute_slices=slices,
            nvlink_domain="",
        )


def _root(index: int, half: int) -> str:
    numa, within = divmod(index, half)
    return f"pci0000:{numa * 0x80 + within // 2:02x}"
