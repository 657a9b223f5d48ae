"""GPUs as the driver reports them. Recordings contain them: the stored field names are fixed."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

CdiEdits = Mapping[str, Any]
"""``containerEdits`` of a CDI specification."""


MAX_LABEL_LENGTH = 63


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that uses a GPU."""

    pid: int
    """In the driver's process namespace, which is the node's."""
    memory_bytes: int = 0


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as the driver reports it, or a MIG instance of one."""

    uuid: str
    """As NVML writes it, such as ``GPU-1b2c…`` or ``MIG-…``."""
    product: str
    """Full product name of the card, such as ``NVIDIA A100-SXM4-80GB``."""
    memory_bytes: int
    cores: int = 0
    """CUDA cores, 0 if unknown; used only for GPUs of an unknown model."""
    max_sm_clock_mhz: int = 0
    pci_bus_id: str = ""
    """As Linux writes it, such as ``0000:3b:00.0``."""
    pcie_root: str = ""
    """As Kubernetes writes it, such as ``pci0000:3a``."""
    numa_node: int | None = None
    nvlink_domain: str = ""
    """Equal for the node's GPUs that NVLink connects; empty: connected to none."""
    device_nodes: tuple[str, ...] = ()
    """Device files that a container needs: ``/dev/…``, or ``/host/path:/dev/…`` if the name differs
    from the host's; none for simulated GPUs."""
    health_error: str = msgspec.field(default="", name="trouble")
    """Why the GPU must not be allocated; empty: healthy."""
    brand: str = ""
    architecture: str = ""
    """Such as ``Ampere``."""
    compute_capability: str = ""
    """Such as ``8.0``."""
    ecc: bool | None = None
    """Whether ECC is on; None: the GPU has none."""
    parent_uuid: str = ""
    """The card of a MIG instance."""
    mig_profile: str = ""
    """The profile of a MIG instance, such as ``1g.5gb``."""
    mig_id: int | None = None
    """The driver's number of a MIG instance on its card."""
    compute_slices: int = 0
    """How many of the card's seven slices a MIG instance has."""
    edits: dict[str, Any] = msgspec.field(default_factory=dict)
    """The edits that ``nvidia-ctk`` generates for this GPU; they replace ``device_nodes``."""
    used_by: str = ""
    """Who uses the GPU without a claim; empty: nobody."""
    lacks_enforcer: bool = False
    """Whether ``health_error`` is about its enforcer: the GPU itself is healthy, and programs on it
    keep running."""


class GpuUsage(msgspec.Struct, frozen=True):
    """The use of one GPU or MIG instance at one moment; None: the driver does not say."""

    uuid: str
    memory_used_bytes: int | None = None
    gpu_percent: int | None = None
    """Share of the time in which a kernel ran."""
    memory_percent: int | None = None
    """Share of the time in which memory was read or written."""
    temperature_c: int | None = None
    power_w: float | None = None
    energy_mj: int | None = None
    """Since the driver was loaded, in millijoules."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    ecc_corrected: int | None = None
    """Errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    xid: int = 0
    """The last error; 0: none since the agent's start."""
    processes: tuple[GpuProcess, ...] = ()


class GpuSnapshot(msgspec.Struct, frozen=True):
    """All GPUs of a node at one moment, in the order of their indexes, each followed by its MIG
    instances."""

    gpus: tuple[Gpu, ...] = msgspec.field(name="cards")
    driver_version: str = ""
    cuda_version: str = ""
    """The newest CUDA that the driver supports, such as ``12.4``."""
    driver_edits: dict[str, Any] = msgspec.field(default_factory=dict)
    """The edits that give a container the driver's libraries, programs and device files."""
    unread: tuple[str, ...] = ()
    """Why GPUs that were never read are missing."""

    @property
    def cards(self) -> tuple[Gpu, ...]:
        """The physical GPUs."""
        return tuple(gpu for gpu in self.gpus if not gpu.parent_uuid)


@lru_cache(maxsize=4096)
def device_name(uuid: str) -> str:
    """The device name of a GPU: its uuid as a DNS label."""
    label = re.sub(r"[^a-z0-9-]", "-", uuid.lower())[:MAX_LABEL_LENGTH].strip("-")
    return label or "gpu"


def with_problems(snapshot: GpuSnapshot, problems: Mapping[str, str]) -> GpuSnapshot:
    """The snapshot with healthy GPUs made unhealthy if they have a problem, by device name."""
    if not problems:
        return snapshot
    gpus = [
        msgspec.structs.replace(gpu, health_error=problem, lacks_enforcer=True)
        if not gpu.health_error and (problem := problems.get(device_name(gpu.uuid), ""))
        else gpu
        for gpu in snapshot.gpus
    ]
    return msgspec.structs.replace(snapshot, gpus=tuple(gpus))
