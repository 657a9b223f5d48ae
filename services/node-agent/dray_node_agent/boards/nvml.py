"""NVIDIA cards: the only module that imports pynvml (distribution nvidia-ml-py).

Health comes from three places: XID and double-bit ECC events (one thread waits for them,
NVML releases the GIL meanwhile), the ECC counters, and the row remapper. A card that fell ill
stays so until the agent restarts: what an XID broke, only a reset mends.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pynvml
import structlog

from dray_node_agent.boards.joints import (
    SWITCH,
    numa_node,
    nvlink_domains,
    pci_address,
    pcie_root,
)
from dray_node_agent.boards.ports import BoardUnavailableError, Card, Reading

T = TypeVar("T")

HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of the application, not of the card (NVIDIA's Xid catalogue)."""
ACTIVE = pynvml.NVML_FEATURE_ENABLED
EVENT_WAIT_MS = 1000
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


class NvmlBoard:
    """The cards NVML lists. ``on_event`` is called from the thread when one falls ill.

    Raises:
        BoardUnavailableError: NVML can't be loaded or initialised.
    """

    def __init__(self, on_event: Callable[[], None] = lambda: None) -> None:
        _call("initialise NVML", pynvml.nvmlInit)
        self._on_event = on_event
        self._lock = threading.Lock()
        self._ill: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch_events, name="nvml-events", daemon=True)
        self._thread.start()

    def read(self) -> Reading:
        """Every card with its health now."""
        driver = _text(_call("read the driver version", pynvml.nvmlSystemGetDriverVersion))
        with self._lock:
            ill = dict(self._ill)
        handles = _handles()
        cards = [_card(handle, index, ill) for index, handle in handles]
        links = {
            card.pci_bus_id: _far_ends(handle)
            for card, (_, handle) in zip(cards, handles, strict=True)
            if card.pci_bus_id
        }
        joined = nvlink_domains(links)
        return Reading(
            tuple(replace(one, nvlink_domain=joined.get(one.pci_bus_id, "")) for one in cards),
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
        except BoardUnavailableError as error:
            structlog.get_logger().warning("no XID events from NVML", error=str(error))
            return
        try:
            self._register(events)
            while not self._closing.is_set():
                self._wait(events)
        finally:
            _optional(pynvml.nvmlEventSetFree, events, default=None)

    def _register(self, events: Any) -> None:
        wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        for index, handle in _handles():
            supported = _optional(pynvml.nvmlDeviceGetSupportedEventTypes, handle, default=0)
            try:
                pynvml.nvmlDeviceRegisterEvents(handle, wanted & supported, events)
            except pynvml.NVMLError as error:
                structlog.get_logger().warning(
                    "card reports no health events", card=index, error=str(error)
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
            self._ill.setdefault(uuid, reason)
        structlog.get_logger().error("card fell ill", uuid=uuid, reason=reason)
        self._on_event()


def _handles() -> list[tuple[int, Any]]:
    count = _call("count the cards", pynvml.nvmlDeviceGetCount)
    return [
        (index, _call(f"open card {index}", pynvml.nvmlDeviceGetHandleByIndex, index))
        for index in range(count)
    ]


def _card(handle: Any, index: int, ill: dict[str, str]) -> Card:
    uuid = _text(_call(f"read the uuid of card {index}", pynvml.nvmlDeviceGetUUID, handle))
    product = _text(_call(f"read the name of card {index}", pynvml.nvmlDeviceGetName, handle))
    memory = _call(f"read the memory of card {index}", pynvml.nvmlDeviceGetMemoryInfo, handle)
    pci = _optional(pynvml.nvmlDeviceGetPciInfo, handle, default=None)
    address = pci_address(_text(pci.busId)) if pci else ""
    minor = _optional(pynvml.nvmlDeviceGetMinorNumber, handle, default=index)
    return Card(
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
        trouble=ill.get(uuid) or ill.get("") or _counted_trouble(handle),
    )


def _far_ends(handle: Any) -> list[str]:
    """PCI addresses of what the card's active NVLinks lead to; switches of any address are one."""
    ends: dict[str, None] = {}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if _optional(pynvml.nvmlDeviceGetNvLinkState, handle, link, default=0) != ACTIVE:
            continue
        kind = _optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link, default=None)
        far = _optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link, default=None)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends[SWITCH] = None
        elif far is not None and (address := pci_address(_text(far.busId))):
            ends[address] = None
    return list(ends)


def _counted_trouble(handle: Any) -> str:
    """Trouble that the card itself counts: uncorrected ECC errors, rows it can't remap."""
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
        raise BoardUnavailableError(
            f"NVML could not {purpose}: {error}; is the NVIDIA driver installed and loaded here?"
        ) from error


def _optional(function: Callable[..., Any], *arguments: Any, default: Any) -> Any:
    """What older drivers or smaller cards may not know."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return default


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
