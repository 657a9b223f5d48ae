"""NVIDIA GPUs: the only module that imports pynvml (distribution nvidia-ml-py).

Health has three sources: XID and double-bit ECC events (a thread waits for them; NVML releases the
GIL meanwhile), the ECC counters, and the row remapper. A GPU that had such an event stays unhealthy
until the agent restarts: only a reset repairs what an XID broke. A GPU that was read once and can
no longer be read is also unhealthy: it fell off the bus.
"""

import contextlib
import ctypes
import math
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pynvml
import structlog

from dray_node_agent.decisions.gpus import Gpu, GpuProcess, GpuSnapshot, GpuUsage
from dray_node_agent.gpus.driver_files import DriverFiles
from dray_node_agent.gpus.interconnect import (
    SWITCH,
    numa_node,
    nvlink_domains,
    pci_address,
    pcie_root,
)
from dray_node_agent.gpus.source import GpusUnavailableError
from dray_node_agent.gpus.time_slices import set_time_slice

T = TypeVar("T")

_HARMLESS_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the application, not of the GPU (NVIDIA's Xid catalogue)."""
_LOST: Final = "gpu-lost"
"""Health error of a GPU that fell off the bus."""
_ACTIVE: Final = pynvml.NVML_FEATURE_ENABLED
_EVENT_WAIT_MS: Final = 1000
_NO_INSTANCE: Final = 0xFFFFFFFF
"""NVML's id of the GPU instance in an event that has none."""
_BRANDS: Final = {
    pynvml.NVML_BRAND_QUADRO: "Quadro",
    pynvml.NVML_BRAND_TESLA: "Tesla",
    pynvml.NVML_BRAND_GEFORCE: "GeForce",
    pynvml.NVML_BRAND_TITAN: "Titan",
    pynvml.NVML_BRAND_NVIDIA_RTX: "NvidiaRTX",
    pynvml.NVML_BRAND_NVIDIA: "Nvidia",
    pynvml.NVML_BRAND_QUADRO_RTX: "QuadroRTX",
    pynvml.NVML_BRAND_GEFORCE_RTX: "GeForceRTX",
    pynvml.NVML_BRAND_TITAN_RTX: "TitanRTX",
}
"""As NVIDIA's own DRA driver names them."""
_ARCHITECTURES: Final = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada Lovelace",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
}
_ERRORS: Final = (
    pynvml.NVMLError,
    pynvml.NVMLLibraryMismatchError,  # an old driver lacks the newer version of a function
    ValueError,  # a text that is not UTF-8, or not a number
    ArithmeticError,  # a card without memory
)
"""NVML refuses, or its answer is invalid."""
_UNSUPPORTED: Final = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLLibraryMismatchError,
)
"""The GPU or its driver does not support the call. After any other error it may."""
_NO_ANSWER: Final = (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_Timeout)
_REMOVED: Final = (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument)
"""There is no such MIG instance. After any other error it may exist and be in use."""
Place = tuple[str, int | None]
"""Where an error is: the UUID of a GPU (empty: unknown), and the id of its GPU instance."""


class NvmlGpus:
    """The GPUs that NVML lists.

    Raises:
        GpusUnavailableError: NVML can't be loaded or initialised.
    """

    def __init__(
        self,
        *,
        sysfs: Path = Path("/sys"),
        files: DriverFiles | None = None,
        driver_root: Path | None = None,
    ) -> None:
        self._driver_root = driver_root
        _call("initialise NVML", pynvml.nvmlInit)
        self._on_event: Callable[[], None] = lambda: None
        self._pci_devices = sysfs / "bus" / "pci" / "devices"
        self._files = files or DriverFiles()
        self._lock = threading.Lock()
        self._errors: dict[Place, str] = {}
        self._xids: dict[str, int] = {}
        self._cards: dict[str, tuple[Gpu, ...]] = {}
        """All cards that were ever read, each with its MIG instances, by UUID."""
        self._present: frozenset[str] = frozenset()
        """UUIDs of the cards that were read last."""
        self._watched: frozenset[str] = frozenset()
        """UUIDs of the cards whose events are waited for, if they have any."""
        self._uuids: dict[int | None, str] = {}
        """UUIDs of the same cards by the address of their handle."""
        self._silent: dict[int, str] = {}
        """Why a card's events can't be waited for, by its index."""
        self._minors: dict[str, int] = {}
        self._links: dict[str, list[str]] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch_events, name="nvml-events", daemon=True)
        self._thread.start()

    def read(self) -> GpuSnapshot:
        """All GPUs and their health now."""
        driver = _text(_call("read the driver version", pynvml.nvmlSystemGetDriverVersion))
        found: dict[str, list[Gpu]] = {}
        unread: list[str] = []
        for index in range(_call("count the GPUs", pynvml.nvmlDeviceGetCount)):
            try:
                card, *instances = self._read_card(index)
            except _ERRORS as error:
                unread.append(f"GPU {index} can't be read: {error}")
            else:
                found[card.uuid] = [card, *instances]
                self._cards[card.uuid] = (card, *instances)
        self._present = frozenset(found)
        for uuid, known in self._cards.items():
            if uuid not in found:
                found[uuid] = [msgspec.structs.replace(one, health_error=_LOST) for one in known]
        domains = nvlink_domains(self._links)
        gpus = [
            msgspec.structs.replace(one, nvlink_domain=domains.get(one.pci_bus_id, ""))
            for parts in sorted(found.values(), key=lambda parts: parts[0].pci_bus_id)
            for one in parts
        ]
        is_known = len(unread) <= sum(parts[0].health_error == _LOST for parts in found.values())
        return GpuSnapshot(
            tuple(self._files.with_edits(gpus)),
            driver_version=driver,
            cuda_version=_cuda_version(),
            driver_edits=self._files.driver_edits(driver),
            unread=() if is_known else tuple(unread),
        )

    def set_time_slice(self, uuid: str, number: int) -> None:
        """Set a card's time slice. Raises TimeSliceError."""
        set_time_slice(uuid, number, root=self._driver_root)

    def read_usage(self) -> tuple[GpuUsage, ...]:
        """How much of each GPU is used now; one that can't be read is left out."""
        found: list[GpuUsage] = []
        for index in range(_call("count the GPUs", pynvml.nvmlDeviceGetCount)):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found.append(self._usage(handle))
                found += _of_each(_instances(handle), _instance_usage)
            except _ERRORS:
                continue
        return tuple(found)

    def listen(self, on_event: Callable[[], None]) -> None:
        """Have ``on_event`` called when a GPU becomes unhealthy."""
        self._on_event = on_event

    def close(self) -> None:
        """Stop the thread and shut NVML down."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join(timeout=2 * _EVENT_WAIT_MS / 1000)
            with contextlib.suppress(*_ERRORS):
                pynvml.nvmlShutdown()

    def _read_card(self, index: int) -> list[Gpu]:
        """A card and its MIG instances. Raises pynvml.NVMLError."""
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        known, *_ = self._cards.get(uuid) or (self._new_card(handle, index, uuid),)
        card = msgspec.structs.replace(
            known,
            ecc=_ecc(handle, known.ecc),
            health_error=self._event_error(uuid) or _counted_error(handle, known.health_error),
        )
        return [card, *_of_each(_instances(handle), partial(self._instance, card))]

    def _new_card(self, handle: Any, index: int, uuid: str) -> Gpu:
        pci = _if_supported(pynvml.nvmlDeviceGetPciInfo, handle)
        address = pci_address(_text(pci.busId)) if pci else ""
        found = _if_supported(pynvml.nvmlDeviceGetMinorNumber, handle)
        minor = index if found is None else int(found)  # a guess may be another GPU's file
        self._minors[uuid] = minor
        capability = _optional(pynvml.nvmlDeviceGetCudaComputeCapability, handle, default=None)
        clock = _optional(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM, default=0)
        if address:
            self._links[address] = _nvlink_remotes(handle)
        return Gpu(
            uuid=uuid,
            product=_text(pynvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            cores=int(_optional(pynvml.nvmlDeviceGetNumGpuCores, handle, default=0)),
            max_sm_clock_mhz=int(clock),
            pci_bus_id=address,
            pcie_root=pcie_root(address, self._pci_devices),
            numa_node=numa_node(address, self._pci_devices),
            device_nodes=self._files.device_nodes(minor, address),
            brand=_BRANDS.get(_optional(pynvml.nvmlDeviceGetBrand, handle, default=None), ""),
            architecture=_ARCHITECTURES.get(
                _optional(pynvml.nvmlDeviceGetArchitecture, handle, default=None), ""
            ),
            compute_capability="{}.{}".format(*capability) if capability else "",
        )

    def _instance(self, card: Gpu, handle: Any) -> Gpu:
        """A MIG instance of a card. Raises pynvml.NVMLError."""
        part = pynvml.nvmlDeviceGetAttributes_v2(handle)
        group = pynvml.nvmlDeviceGetGpuInstanceId(handle)
        compute = pynvml.nvmlDeviceGetComputeInstanceId(handle)
        return msgspec.structs.replace(
            card,
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            memory_bytes=int(part.memorySizeMB) * 2**20,
            parent_uuid=card.uuid,
            mig_profile=_profile(handle, part, card.memory_bytes),
            mig_id=group,
            compute_slices=int(part.computeInstanceSliceCount),
            device_nodes=(
                *card.device_nodes,
                *self._files.capabilities(self._minors[card.uuid], group, compute),
            ),
            health_error=card.health_error or self._event_error(card.uuid, group),
        )

    def _event_error(self, uuid: str, instance: int | None = None) -> str:
        with self._lock:
            return self._errors.get((uuid, instance)) or self._errors.get(("", None), "")

    def _usage(self, handle: Any) -> GpuUsage:
        uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        rates = _optional(pynvml.nvmlDeviceGetUtilizationRates, handle, default=None)
        power_mw = _optional(pynvml.nvmlDeviceGetPowerUsage, handle, default=None)
        with self._lock:
            xid = self._xids.get(uuid, 0)
        return GpuUsage(
            uuid=uuid,
            memory_used_bytes=_memory_used(handle),
            gpu_percent=None if rates is None else int(rates.gpu),
            memory_percent=None if rates is None else int(rates.memory),
            temperature_c=_optional(
                pynvml.nvmlDeviceGetTemperature,
                handle,
                pynvml.NVML_TEMPERATURE_GPU,
                default=None,
            ),
            power_w=None if power_mw is None else power_mw / 1000,
            energy_mj=_optional(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle, default=None),
            sm_clock_mhz=_clock(handle, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=_clock(handle, pynvml.NVML_CLOCK_MEM),
            ecc_corrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            xid=xid,
            processes=_processes(handle),
        )

    def _watch_events(self) -> None:
        """Loop: wait for events. If a card is lost, NVML also refuses to wait for the others, so
        they need an event set without it. A card that appears, or comes back, needs a new set."""
        problem = ""
        while not self._closing.is_set():
            try:
                self._watch_cards()
            except _ERRORS as error:
                if problem != (problem := str(error)):
                    structlog.get_logger().warning("no events from NVML, will retry", why=problem)
                self._closing.wait(_EVENT_WAIT_MS / 1000)

    def _watch_cards(self) -> None:
        """Wait for the events of the cards that are there, until a card appears that is not
        watched. Raises pynvml.NVMLError."""
        events = pynvml.nvmlEventSetCreate()
        try:
            self._register(events)
            if not self._are_all_watched():  # pause, or sets would be made in a busy loop
                self._closing.wait(_EVENT_WAIT_MS / 1000)
            while not self._closing.is_set():
                if not self._wait(events) and not self._are_all_watched():
                    return
        finally:
            _optional(pynvml.nvmlEventSetFree, events, default=None)

    def _are_all_watched(self) -> bool:
        """Whether a new event set would have no additional cards."""
        return bool(self._watched) and self._present <= self._watched

    def _register(self, events: Any) -> None:
        wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        uuids, silent = dict[int | None, str](), dict[int, str]()
        for index in range(_optional(pynvml.nvmlDeviceGetCount, default=0)):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuids[_address(handle)] = _text(pynvml.nvmlDeviceGetUUID(handle))
                supported = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                pynvml.nvmlDeviceRegisterEvents(handle, wanted & supported, events)
            except _ERRORS as error:
                silent[index] = str(error)
                if self._silent.get(index) != silent[index]:
                    structlog.get_logger().warning(
                        "GPU reports no health events", gpu=index, error=str(error)
                    )
        self._uuids, self._silent = uuids, silent
        self._watched = frozenset(uuids.values())

    def _wait(self, events: Any) -> bool:
        """Wait for one event; whether there was one. Raises pynvml.NVMLError."""
        try:
            event = pynvml.nvmlEventSetWait_v2(events, _EVENT_WAIT_MS)
        except pynvml.NVMLError_Timeout:
            return False
        uuid = self._uuids.get(_address(event.device), "")
        with contextlib.suppress(*_ERRORS):  # a lost card no longer reports its UUID
            uuid = _text(pynvml.nvmlDeviceGetUUID(event.device))
        reason = "double-bit-ecc"
        if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
            xid = int(event.eventData)
            with self._lock:
                self._xids[uuid] = xid
            if xid in _HARMLESS_XIDS:
                return True
            reason = f"xid-{xid}"
        instance = None
        with contextlib.suppress(*_ERRORS):  # then the error counts for the whole card
            if uuid and event.gpuInstanceId != _NO_INSTANCE and _instances(event.device):
                instance = int(event.gpuInstanceId)
        with self._lock:
            self._errors.setdefault((uuid, instance), reason)
        structlog.get_logger().error(
            "GPU became unhealthy", uuid=uuid, instance=instance, reason=reason
        )
        self._on_event()
        return True


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _instances(handle: Any) -> list[Any]:
    """Handles of the card's MIG instances. Raises pynvml.NVMLError."""
    try:
        mode, _ = pynvml.nvmlDeviceGetMigMode(handle)
        if mode != pynvml.NVML_DEVICE_MIG_ENABLE:
            return []
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except _UNSUPPORTED:
        return []
    return _of_each(range(most), partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle))


def _of_each(instances: Iterable[Any], read: Callable[[Any], T]) -> list[T]:
    """The results of ``read`` for a card's instances, without those that are removed meanwhile.
    Raises pynvml.NVMLError: a card that lacks an instance in use would look free."""
    found: list[T] = []
    for one in instances:
        with contextlib.suppress(*_REMOVED):
            found.append(read(one))
    return found


def _profile(handle: Any, part: Any, card_bytes: int) -> str:
    """The profile as ``nvidia-smi`` names it: ``1g.5gb``, or ``1c.2g.10gb`` for a part of its
    compute."""
    name = _text(_optional(pynvml.nvmlDeviceGetName, handle, default=""))
    if " MIG " in name:
        return name.rsplit(" MIG ", 1)[1]
    # Older drivers name only the card. Memory is counted in eighths of the card's memory.
    eighths = math.ceil(part.memorySizeMB * 2**20 * 8 / card_bytes)
    memory_gb = round(eighths / 8 * math.ceil(card_bytes / 2**30))
    profile = f"{part.gpuInstanceSliceCount}g.{memory_gb}gb"
    if part.computeInstanceSliceCount != part.gpuInstanceSliceCount:
        return f"{part.computeInstanceSliceCount}c.{profile}"
    return profile


def _instance_usage(handle: Any) -> GpuUsage:
    return GpuUsage(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        memory_used_bytes=_memory_used(handle),
        processes=_processes(handle),
    )


def _memory_used(handle: Any) -> int | None:
    memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, handle, default=None)
    return None if memory is None else int(memory.used)


def _clock(handle: Any, kind: int) -> int | None:
    clock = _optional(pynvml.nvmlDeviceGetClockInfo, handle, kind, default=None)
    return None if clock is None else int(clock)


def _ecc(handle: Any, known: bool | None) -> bool | None:
    """Whether ECC is on; None: the GPU has none. ``known``: as it was read last."""
    try:
        mode = _if_supported(pynvml.nvmlDeviceGetEccMode, handle)
    except pynvml.NVMLError_GpuIsLost:
        raise
    except _ERRORS:
        return known
    return None if mode is None else bool(mode[0] == pynvml.NVML_FEATURE_ENABLED)


def _ecc_errors(handle: Any, kind: int) -> int | None:
    count = _optional(
        pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC, default=None
    )
    return None if count is None else int(count)


def _processes(handle: Any) -> tuple[GpuProcess, ...]:
    listed = _optional(pynvml.nvmlDeviceGetComputeRunningProcesses, handle, default=())
    return tuple(GpuProcess(int(one.pid), int(one.usedGpuMemory or 0)) for one in listed)


def _cuda_version() -> str:
    number = 0
    with contextlib.suppress(*_ERRORS):
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def _nvlink_remotes(handle: Any) -> list[str]:
    """PCI addresses at the remote ends of the active NVLinks; all switches count as one."""
    remotes: dict[str, None] = {}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if _optional(pynvml.nvmlDeviceGetNvLinkState, handle, link, default=0) != _ACTIVE:
            continue
        kind = _optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link, default=None)
        remote = _optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link, default=None)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            remotes[SWITCH] = None
        elif remote is not None and (address := pci_address(_text(remote.busId))):
            remotes[address] = None
    return list(remotes)


def _counted_error(handle: Any, known: str) -> str:
    """Health error from the GPU's counters: failed row remapping, or uncorrected ECC errors if the
    GPU never remaps rows. ``known``: the last error, which stays while counters can't be read."""
    try:
        remapped = _if_supported(pynvml.nvmlDeviceGetRemappedRows, handle)
        if remapped is not None:
            return "row-remapping-failed" if remapped[3] else ""
        errors = _if_supported(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        )
    except pynvml.NVMLError_GpuIsLost:
        raise
    except _ERRORS:
        return known
    return "uncorrected-ecc" if errors else ""


def _call(purpose: str, function: Callable[..., T], *arguments: Any) -> T:
    try:
        return function(*arguments)
    except _ERRORS as error:
        raise GpusUnavailableError(
            f"NVML could not {purpose}: {error}; is the NVIDIA driver installed and loaded here?"
        ) from error


def _optional(function: Callable[..., Any], *arguments: Any, default: Any) -> Any:
    """Call a function that older drivers or smaller GPUs may not support. Raises
    pynvml.NVMLError: the card is lost, or does not answer now."""
    try:
        return function(*arguments)
    except _NO_ANSWER:
        raise
    except _ERRORS:
        return default


def _if_supported(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's answer; None: the GPU or its driver does not support it. Raises
    pynvml.NVMLError."""
    try:
        return function(*arguments)
    except _UNSUPPORTED:
        return None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
