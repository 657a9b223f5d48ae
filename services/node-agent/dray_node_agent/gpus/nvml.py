"""NVIDIA GPUs: the only module that imports pynvml (distribution nvidia-ml-py).

Health has three sources: XID and double-bit ECC events (a thread waits for them; NVML releases the
GIL meanwhile), the ECC counters, and the row remapper. A GPU that had such an event stays unhealthy
until the agent restarts: only a reset repairs what an XID broke.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pynvml
import structlog

from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot
from dray_node_agent.gpus.interconnect import (
    SWITCH,
    numa_node,
    nvlink_domains,
    pci_address,
    pcie_root,
)
from dray_node_agent.gpus.source import GpusUnavailableError

T = TypeVar("T")

HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the application, not of the GPU (NVIDIA's Xid catalogue)."""
ACTIVE = pynvml.NVML_FEATURE_ENABLED
EVENT_WAIT_MS = 1000
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


class NvmlGpus:
    """The GPUs that NVML lists. The thread calls ``on_event`` when one becomes unhealthy.

    Raises:
        GpusUnavailableError: NVML can't be loaded or initialised.
    """

    def __init__(self, on_event: Callable[[], None] = lambda: None) -> None:
        _call("initialise NVML", pynvml.nvmlInit)
        self._on_event = on_event
        self._lock = threading.Lock()
        self._event_errors: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch_events, name="nvml-events", daemon=True)
        self._thread.start()

    def read(self) -> GpuSnapshot:
        """All GPUs and their health now."""
        driver = _text(_call("read the driver version", pynvml.nvmlSystemGetDriverVersion))
        with self._lock:
            event_errors = dict(self._event_errors)
        handles = _handles()
        gpus = [_card(handle, index, event_errors) for index, handle in handles]
        links = {
            gpu.pci_bus_id: _nvlink_remotes(handle)
            for gpu, (_, handle) in zip(gpus, handles, strict=True)
            if gpu.pci_bus_id
        }
        domains = nvlink_domains(links)
        return GpuSnapshot(
            tuple(
                msgspec.structs.replace(one, nvlink_domain=domains.get(one.pci_bus_id, ""))
                for one in gpus
            ),
            driver_version=driver,
        )

    def close(self) -> None:
        """Stop the thread and shut NVML down."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join(timeout=2 * EVENT_WAIT_MS / 1000)
            _optional(pynvml.nvmlShutdown, default=None)

    def _watch_events(self) -> None:
        try:
            events = _call("make an event set", pynvml.nvmlEventSetCreate)
        except GpusUnavailableError as error:
            structlog.get_logger().warning("no XID events from NVML", error=str(error))
            return
        try:
            self._register(events)
            while not self._closing.is_set():
                self._wait(events)
        finally:
            _optional(pynvml.nvmlEventSetFree, events, default=None)

    def _register(self, events: Any) -> None:
        event_types = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        for index, handle in _handles():
            supported = _optional(pynvml.nvmlDeviceGetSupportedEventTypes, handle, default=0)
            try:
                pynvml.nvmlDeviceRegisterEvents(handle, event_types & supported, events)
            except pynvml.NVMLError as error:
                structlog.get_logger().warning(
                    "GPU reports no health events", gpu=index, error=str(error)
                )

    def _wait(self, events: Any) -> None:
        try:
            event = pynvml.nvmlEventSetWait_v2(events, EVENT_WAIT_MS)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                structlog.get_logger().warning("waiting for NVML events failed", error=str(error))
                self._closing.wait(EVENT_WAIT_MS / 1000)
            return
        if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
            xid = int(event.eventData)
            if xid in HARMLESS_XIDS:
                return
            reason = f"xid-{xid}"
        else:
            reason = "double-bit-ecc"
        uuid = _text(_optional(pynvml.nvmlDeviceGetUUID, event.device, default=""))
        with self._lock:
            self._event_errors.setdefault(uuid, reason)
        structlog.get_logger().error("GPU became unhealthy", uuid=uuid, reason=reason)
        self._on_event()


def _handles() -> list[tuple[int, Any]]:
    count = _call("count the GPUs", pynvml.nvmlDeviceGetCount)
    return [
        (index, _call(f"open GPU {index}", pynvml.nvmlDeviceGetHandleByIndex, index))
        for index in range(count)
    ]


def _card(handle: Any, index: int, event_errors: dict[str, str]) -> Gpu:
    uuid = _text(_call(f"read the uuid of GPU {index}", pynvml.nvmlDeviceGetUUID, handle))
    product = _text(_call(f"read the name of GPU {index}", pynvml.nvmlDeviceGetName, handle))
    memory = _call(f"read the memory of GPU {index}", pynvml.nvmlDeviceGetMemoryInfo, handle)
    pci = _optional(pynvml.nvmlDeviceGetPciInfo, handle, default=None)
    address = pci_address(_text(pci.busId)) if pci else ""
    minor = _optional(pynvml.nvmlDeviceGetMinorNumber, handle, default=index)
    return Gpu(
        uuid=uuid,
        product=product,
        memory_bytes=int(memory.total),
        cores=int(_optional(pynvml.nvmlDeviceGetNumGpuCores, handle, default=0)),
        max_sm_clock_mhz=int(
            _optional(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM, default=0)
        ),
        pci_bus_id=address,
        pcie_root=pcie_root(address),
        numa_node=numa_node(address),
        device_nodes=(f"/dev/nvidia{minor}", *CONTROL_NODES),
        health_error=event_errors.get(uuid) or event_errors.get("") or _counted_error(handle),
    )


def _nvlink_remotes(handle: Any) -> list[str]:
    """PCI addresses at the remote ends of the active NVLinks; all switches count as one."""
    remotes: dict[str, None] = {}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if _optional(pynvml.nvmlDeviceGetNvLinkState, handle, link, default=0) != ACTIVE:
            continue
        kind = _optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link, default=None)
        remote = _optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link, default=None)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            remotes[SWITCH] = None
        elif remote is not None and (address := pci_address(_text(remote.busId))):
            remotes[address] = None
    return list(remotes)


def _counted_error(handle: Any) -> str:
    """Health error from the GPU's counters: uncorrected ECC errors, failed row remapping."""
    remapped = _optional(pynvml.nvmlDeviceGetRemappedRows, handle, default=None)
    if remapped is not None:
        return "row-remapping-failed" if remapped[3] else ""
    errors = _optional(
        pynvml.nvmlDeviceGetTotalEccErrors,
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
        default=0,
    )
    return "uncorrected-ecc" if errors else ""


def _call(purpose: str, function: Callable[..., T], *arguments: Any) -> T:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise GpusUnavailableError(
            f"NVML could not {purpose}: {error}; is the NVIDIA driver installed and loaded here?"
        ) from error


def _optional(function: Callable[..., Any], *arguments: Any, default: Any) -> Any:
    """Call a function that older drivers or smaller GPUs may not support."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return default


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
