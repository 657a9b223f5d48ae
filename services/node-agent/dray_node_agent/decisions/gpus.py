"""GPUs as the driver reports them. Recordings contain them: the stored field names are fixed."""

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as the driver reports it."""

    uuid: str
    """As NVML writes it, such as ``GPU-1b2c…``."""
    product: str
    """Full product name, such as ``NVIDIA A100-SXM4-80GB``."""
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
    """Device files that a container needs, as ``HOST_PATH:PATH`` if it sees one by another path."""
    health_error: str = msgspec.field(default="", name="trouble")
    """Why the GPU must not be allocated; empty: healthy."""


class GpuSnapshot(msgspec.Struct, frozen=True):
    """All GPUs of a node at one moment, in the order of their indexes."""

    gpus: tuple[Gpu, ...] = msgspec.field(name="cards")
    driver_version: str = ""
