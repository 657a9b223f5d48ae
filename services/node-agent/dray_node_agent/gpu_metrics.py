"""The use of GPUs under the names and labels of NVIDIA's DCGM exporter, so that dashboards made for
it work."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.registry import Collector

from dray_node_agent.decisions.gpu_holders import HoldingContainer
from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot, GpuUsage

_MIB: Final = 2**20
_LABELS: Final = (
    *("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"),
    *("GPU_I_PROFILE", "GPU_I_ID", "container", "namespace", "pod"),
)
_NOBODY: Final = (HoldingContainer("", "", ""),)
_Value = Callable[[Gpu, GpuUsage], float | None]


def _used_mib(_: Gpu, usage: GpuUsage) -> float | None:
    return None if usage.memory_used_bytes is None else usage.memory_used_bytes // _MIB


def _free_mib(gpu: Gpu, usage: GpuUsage) -> float | None:
    used = usage.memory_used_bytes
    return None if used is None else max(gpu.memory_bytes - used, 0) // _MIB


def _xid(gpu: Gpu, usage: GpuUsage) -> float | None:
    return None if gpu.parent_uuid else usage.xid


_GAUGES: Final[Mapping[str, tuple[str, _Value]]] = {
    "FB_USED": ("Memory in use, in MiB.", _used_mib),
    "FB_FREE": ("Free memory, in MiB.", _free_mib),
    "GPU_UTIL": ("Time in which a kernel ran, in percent.", lambda _, use: use.gpu_percent),
    "MEM_COPY_UTIL": (
        "Time in which memory was read or written, in percent.",
        lambda _, use: use.memory_percent,
    ),
    "GPU_TEMP": ("Temperature in degrees Celsius.", lambda _, use: use.temperature_c),
    "POWER_USAGE": ("Power in watts.", lambda _, use: use.power_w),
    "SM_CLOCK": ("Clock of the multiprocessors, in MHz.", lambda _, use: use.sm_clock_mhz),
    "MEM_CLOCK": ("Clock of the memory, in MHz.", lambda _, use: use.memory_clock_mhz),
    "XID_ERRORS": ("The last XID since the agent's start; 0: none.", _xid),
}
_COUNTERS: Final[Mapping[str, tuple[str, _Value]]] = {
    "TOTAL_ENERGY_CONSUMPTION": (
        "Energy since the driver was loaded, in mJ.",
        lambda _, use: use.energy_mj,
    ),
    "ECC_SBE_VOL_TOTAL": ("Corrected memory errors.", lambda _, use: use.ecc_corrected),
    "ECC_DBE_VOL_TOTAL": ("Uncorrected memory errors.", lambda _, use: use.ecc_uncorrected),
}


class GpuUsageCollector(Collector):
    """One series for each GPU and each container that has it. A GPU that no container has gets one
    series with an empty pod."""

    def __init__(
        self,
        node: str,
        snapshot: Callable[[], GpuSnapshot | None],
        usage: Callable[[], tuple[GpuUsage, ...]],
        holders: Callable[[], Mapping[str, tuple[HoldingContainer, ...]]],
    ) -> None:
        """The functions return what is known now."""
        self._node = node
        self._snapshot = snapshot
        self._usage = usage
        self._holders = holders

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        snapshot, usage = self._snapshot(), {one.uuid: one for one in self._usage()}
        if snapshot is None or not usage:
            return
        rows = [
            (gpu, usage[gpu.uuid], labels)
            for gpu, labels in self._series(snapshot)
            if gpu.uuid in usage
        ]
        for family, metrics in ((GaugeMetricFamily, _GAUGES), (UnknownMetricFamily, _COUNTERS)):
            for name, (text, value_of) in metrics.items():
                metric = family(f"DCGM_FI_DEV_{name}", text, labels=_LABELS)
                for gpu, use, labels in rows:
                    if (value := value_of(gpu, use)) is not None:
                        metric.add_metric(labels, value)
                if metric.samples:
                    yield metric

    def _series(self, snapshot: GpuSnapshot) -> Iterator[tuple[Gpu, tuple[str, ...]]]:
        holders = self._holders()
        numbers = {card.uuid: str(number) for number, card in enumerate(snapshot.cards)}
        for gpu in snapshot.gpus:
            number = numbers.get(gpu.parent_uuid or gpu.uuid, "")
            for holder in holders.get(gpu.uuid, _NOBODY):
                instance = "" if gpu.mig_id is None else str(gpu.mig_id)
                yield (
                    gpu,
                    (
                        *(number, gpu.uuid, _bus_id(gpu), f"nvidia{number}", gpu.product),
                        *(self._node, snapshot.driver_version, gpu.mig_profile, instance),
                        *(holder.container, holder.namespace, holder.pod),
                    ),
                )


def _bus_id(gpu: Gpu) -> str:
    """The PCI address as NVML writes it: ``00000000:3B:00.0``."""
    return f"0000{gpu.pci_bus_id}".upper() if gpu.pci_bus_id else ""
