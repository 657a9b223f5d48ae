"""GPU sources: simulated GPUs, and NVML with a library made of Python."""

import ctypes
import os
import threading

import pynvml
import pytest

from dray.api.errors import InvalidInputError
from dray_node_agent.decisions.gpus import GpuSnapshot
from dray_node_agent.gpus.detected_gpus import LIBRARY, DetectedGpus, load_library
from dray_node_agent.gpus.nvml import NvmlGpus
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.gpus.source import GpusUnavailableError


def test_simulated_cards_are_the_same_after_a_restart_and_differ_between_nodes():
    first = SimulatedGpus("n1", "H100", 3).read()
    assert SimulatedGpus("n1", "H100", 3).read() == first
    uuids = {gpu.uuid for gpu in first.gpus}
    assert len(uuids) == 3
    assert not uuids & {gpu.uuid for gpu in SimulatedGpus("n2", "H100", 3).read().gpus}


def test_the_health_file_makes_gpus_unhealthy_and_healthy_again(tmp_path):
    path = tmp_path / "unhealthy"
    gpu_source = SimulatedGpus("n", "A100", 3, path)
    assert [gpu.health_error for gpu in gpu_source.read().gpus] == ["", "", ""]
    path.write_text(f"1 xid 79\n\n{gpu_source.read().gpus[2].uuid}\n")
    assert [gpu.health_error for gpu in gpu_source.read().gpus] == ["", "xid 79", "unhealthy"]
    path.unlink()
    assert [gpu.health_error for gpu in gpu_source.read().gpus] == ["", "", ""]


def test_simulated_cards_are_divided_in_as_many_mig_instances_as_have_room(tmp_path):
    unhealthy = tmp_path / "unhealthy"
    divided = SimulatedGpus("n", "H100", 2, unhealthy, mig="2g.20gb")
    first, *instances = divided.read().gpus[:4]
    assert [one.parent_uuid for one in instances] == [first.uuid] * 3
    assert {(one.mig_profile, one.compute_slices, one.memory_bytes) for one in instances} == {
        ("2g.20gb", 2, 20 * 2**30)
    }
    assert len({one.uuid for one in divided.read().gpus}) == 8
    unhealthy.write_text("1 xid 79\n")
    assert [bool(one.health_error) for one in divided.read().gpus] == [False] * 4 + [True] * 4
    full = SimulatedGpus("n", "A100", 1, mig="1g.10gb").read()
    assert len(full.gpus) == 5  # memory for four
    for profile in ("1g", "8g.80gb", "1g.81gb", "1g.0gb"):
        with pytest.raises(InvalidInputError, match="MIG profile"):
            SimulatedGpus("n", "H100", 1, mig=profile)


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInputError, match=r"'Z9'.*A100, H100"):
        SimulatedGpus("n", "Z9", 1)


class FakeNvml:
    """The C library's functions on two GPUs; references are ``byref`` objects."""

    def __init__(self):
        self.events: list[tuple[int, int, int]] = []
        self.ecc = 0
        self.remapping_failed: int | None = None
        self.initialised = 0
        self.asked = threading.Event()
        self.links: dict[tuple[int, int], str] = {}
        """Active ones, by GPU and number: the far end's bus id, or "switch"."""

    def __getattr__(self, name):
        """Functions this driver lacks raise AttributeError, as a missing symbol does."""
        raise AttributeError(name)

    def nvmlInitWithFlags(self, _):
        self.initialised += 1
        return 0

    def nvmlShutdown(self):
        self.initialised -= 1
        return 0

    def nvmlSystemGetDriverVersion(self, buffer, _):
        buffer.value = b"580.95"
        return 0

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        address = ctypes.c_void_p(index.value + 1)
        ctypes.memmove(handle, ctypes.byref(address), ctypes.sizeof(address))
        return 0

    def nvmlDeviceGetUUID(self, handle, buffer, _):
        buffer.value = b"GPU-%d" % (_address(handle) - 1)
        return 0

    def nvmlDeviceGetName(self, _, buffer, __):
        buffer.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def nvmlDeviceGetMemoryInfo(self, _, memory):
        memory._obj.total = 80 * 2**30
        return 0

    def nvmlDeviceGetMinorNumber(self, handle, minor):
        minor._obj.value = _address(handle) + 3
        return 0

    def nvmlDeviceGetPciInfo_v3(self, handle, pci):
        if not self.links:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        pci._obj.busId = b"00000000:%02X:00.0" % (_address(handle) + 58)
        return 0

    def nvmlDeviceGetNvLinkState(self, handle, link, active):
        if link > 3:
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        active._obj.value = (_address(handle) - 1, link) in self.links
        return 0

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link, kind):
        is_switch = self.links[_address(handle) - 1, link] == "switch"
        kind._obj.value = 2 if is_switch else 0
        return 0

    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle, link, pci):
        far = self.links[_address(handle) - 1, link]
        if far == "switch":
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        pci._obj.busId = far.encode()
        return 0

    def nvmlDeviceGetTotalEccErrors(self, _, __, ___, count):
        count._obj.value = self.ecc
        return 0

    def nvmlDeviceGetRemappedRows(self, _, corrected, uncorrected, pending, failed):
        if self.remapping_failed is None:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        failed._obj.value = self.remapping_failed
        return 0

    def nvmlEventSetCreate(self, _):
        return 0

    def nvmlEventSetFree(self, _):
        return 0

    def nvmlDeviceGetSupportedEventTypes(self, _, types):
        types._obj.value = pynvml.nvmlEventTypeXidCriticalError
        return 0

    def nvmlDeviceRegisterEvents(self, _, __, ___):
        return 0

    def nvmlEventSetWait_v2(self, _, event, __):
        if not self.events:
            self.asked.set()
            threading.Event().wait(0.01)  # the real one blocks for the time-out
            return pynvml.NVML_ERROR_TIMEOUT
        gpu, kind, data = self.events.pop(0)
        address = ctypes.c_void_p(gpu + 1)
        ctypes.memmove(
            ctypes.byref(event._obj, type(event._obj).device.offset),
            ctypes.byref(address),
            ctypes.sizeof(address),
        )
        event._obj.eventType = kind
        event._obj.eventData = data
        return 0


def _address(handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setattr(pynvml, "nvmlLib", fake)
    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", lambda: None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return fake


@pytest.fixture
def gpu_source(nvml):
    gpu_source = NvmlGpus()
    yield gpu_source
    gpu_source.close()


@pytest.mark.parametrize(
    ("links", "domain"),
    [
        ({(0, 0): "switch", (1, 2): "switch"}, "0000:3b:00.0"),
        ({(0, 1): "00000000:3C:00.0", (1, 1): "00000000:3B:00.0"}, "0000:3b:00.0"),
        ({(0, 1): "00000000:FF:00.0"}, ""),
    ],
    ids=["over a switch", "directly", "to nothing that is a GPU"],
)
def test_nvml_cards_say_which_of_them_nvlink_joins(nvml, gpu_source, links, domain):
    nvml.links = links
    gpus = gpu_source.read().gpus
    assert [gpu.pci_bus_id for gpu in gpus] == ["0000:3b:00.0", "0000:3c:00.0"]
    assert [gpu.nvlink_domain for gpu in gpus] == [domain] * 2


def test_nvml_cards_are_read_with_what_the_driver_knows(gpu_source):
    snapshot = gpu_source.read()
    assert snapshot.driver_version == "580.95"
    assert [gpu.uuid for gpu in snapshot.gpus] == ["GPU-0", "GPU-1"]
    gpu = snapshot.gpus[1]
    assert gpu.product == "NVIDIA H100 80GB HBM3"
    assert gpu.memory_bytes == 80 * 2**30
    assert gpu.device_nodes[0] == "/dev/nvidia5"
    assert (gpu.cores, gpu.numa_node, gpu.pci_bus_id) == (0, None, "")
    assert not gpu.health_error


def test_an_xid_makes_its_gpu_unhealthy_until_the_restart(nvml):
    unhealthy = threading.Event()
    nvml.events = [
        (1, pynvml.nvmlEventTypeXidCriticalError, 31),
        (1, pynvml.nvmlEventTypeXidCriticalError, 79),
    ]
    gpu_source = NvmlGpus()
    gpu_source.listen(unhealthy.set)
    try:
        assert nvml.asked.wait(10)
        assert [gpu.health_error for gpu in gpu_source.read().gpus] == ["", "xid-79"]
    finally:
        gpu_source.close()


@pytest.mark.parametrize(("watched", "present"), [(2, {"GPU-lost"}), (0, set())])
def test_event_sets_are_not_made_in_a_busy_loop_if_nvml_does_not_wait(
    nvml, monkeypatch, watched, present
):
    """A lost card counts as present until the next read, and a driver may hang then."""
    source = NvmlGpus()
    source.close()
    calls = []

    class Closing(threading.Event):
        def is_set(self):
            return len(calls) >= 9

        def wait(self, timeout):
            calls.append(f"pause {timeout}")

    def count(number):
        number._obj.value = watched
        return 0

    def refuse(*_):
        calls.append("wait")
        return pynvml.NVML_ERROR_TIMEOUT

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(nvml, "nvmlDeviceGetCount_v2", count)
    monkeypatch.setattr(nvml, "nvmlEventSetCreate", lambda _: calls.append("set") or 0)
    monkeypatch.setattr(nvml, "nvmlEventSetWait_v2", refuse)
    source._closing, source._present = Closing(), frozenset(present)
    source._watch_events()
    assert calls == ["set", "pause 1.0", "wait"] * 3


def test_an_error_of_an_instance_of_an_unknown_card_is_of_all(nvml, monkeypatch):
    def uuid_of(handle, buffer, _):
        buffer.value = b"GPU-%d" % (_address(handle) - 1)
        return 0 if _address(handle) <= 2 else pynvml.NVML_ERROR_GPU_IS_LOST

    monkeypatch.setattr(nvml, "nvmlDeviceGetUUID", uuid_of)
    monkeypatch.setattr("dray_node_agent.gpus.nvml._instances", lambda _: ["instance"])
    nvml.events = [(7, pynvml.nvmlEventTypeXidCriticalError, 94)]
    source = NvmlGpus()
    try:
        assert nvml.asked.wait(60.0)
        monkeypatch.setattr("dray_node_agent.gpus.nvml._instances", lambda _: [])
        assert [gpu.health_error for gpu in source.read().gpus] == ["xid-94", "xid-94"]
    finally:
        source.close()


def test_an_application_fault_leaves_the_card_well(nvml):
    nvml.events = [(0, pynvml.nvmlEventTypeXidCriticalError, 31)]
    gpu_source = NvmlGpus()
    try:
        assert nvml.asked.wait(10)
        assert [gpu.health_error for gpu in gpu_source.read().gpus] == ["", ""]
    finally:
        gpu_source.close()


def test_uncorrected_ecc_counts_only_where_rows_are_not_remapped(nvml, gpu_source):
    nvml.ecc = 3
    assert gpu_source.read().gpus[0].health_error == "uncorrected-ecc"
    nvml.remapping_failed = 0
    assert gpu_source.read().gpus[0].health_error == ""
    nvml.remapping_failed = 1
    assert gpu_source.read().gpus[0].health_error == "row-remapping-failed"


def test_closing_twice_shuts_nvml_down_once(nvml):
    gpu_source = NvmlGpus()
    gpu_source.close()
    gpu_source.close()
    assert nvml.initialised == 0


def test_a_machine_without_a_driver_says_what_to_do(monkeypatch):
    def absent():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", absent)
    with pytest.raises(GpusUnavailableError, match="is the NVIDIA driver installed"):
        NvmlGpus()


def pci_device(folder, vendor: str, device_class: str) -> None:
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{device_class}\n")


def test_a_node_without_nvidias_gpus_needs_no_driver(tmp_path):
    pci_device(tmp_path / "0000:00:02.0", "0x8086", "0x030000")  # another vendor's
    pci_device(tmp_path / "0000:00:03.0", "0x10de", "0x068000")  # an NVSwitch

    def no_driver():
        raise GpusUnavailableError("no driver")

    gpus = DetectedGpus(no_driver, tmp_path)
    assert gpus.read() == GpuSnapshot(())

    pci_device(tmp_path / "0000:00:04.0", "0x10de", "0x030200")
    with pytest.raises(GpusUnavailableError, match="no driver"):
        gpus.read()
    gpus.close()


def test_a_driver_that_comes_later_is_found(tmp_path):
    pci_device(tmp_path / "0000:00:04.0", "0x10de", "0x030000")
    drivers = []

    def open_nvml():
        if not drivers:
            raise GpusUnavailableError("no driver yet")
        return drivers[0]

    gpus = DetectedGpus(open_nvml, tmp_path)
    with pytest.raises(GpusUnavailableError):
        gpus.read()
    drivers.append(SimulatedGpus("n", "A100", 2))
    assert len(gpus.read().gpus) == 2


def test_only_nvmls_library_is_loaded_from_a_drivers_folder(tmp_path):
    load_library(tmp_path)  # there is none: nothing happens

    folder = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / LIBRARY).write_bytes(b"no library")
    with pytest.raises(OSError, match=LIBRARY):
        load_library(tmp_path)


def test_a_change_of_the_health_file_is_an_event(tmp_path):
    file, changed = tmp_path / "unhealthy", threading.Event()
    gpus = SimulatedGpus("n1", "A100", 2, file)
    gpus.listen(changed.set)
    for change in (lambda: file.write_text("0 xid-79\n"), file.unlink):
        changed.clear()
        change()
        assert changed.wait(60)
    gpus.close()


def test_a_change_within_the_clocks_step_is_an_event(tmp_path):
    """The kernel's clock of files goes in steps of some milliseconds."""
    file, changed = tmp_path / "unhealthy", threading.Event()
    file.write_text("0 xid-79\n")
    written = file.stat()
    gpus = SimulatedGpus("n1", "A100", 2, file)
    gpus.listen(changed.set)
    with file.open("a") as opened:
        opened.write("1 xid-79\n")
        opened.flush()
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert changed.wait(60)
    gpus.close()


def test_simulated_gpus_are_busy_in_waves():
    now = 0.0
    gpus = SimulatedGpus("n1", "A100", 4, load="20-90/100s", clock_s=lambda: now)
    first = [one.gpu_percent for one in gpus.read_usage()]
    now = 25.0
    second = [one.gpu_percent for one in gpus.read_usage()]
    now = 50.0
    assert first == [20, 55, 90, 55]
    assert second == [55, 20, 55, 90]
    busiest = gpus.read_usage()[0]
    assert (busiest.gpu_percent, busiest.temperature_c) == (90, 76)
    assert busiest.memory_used_bytes == int(gpus.read().gpus[0].memory_bytes * 0.9)
    assert busiest.power_w == 367.0


@pytest.mark.parametrize("load", ["90-20/100s", "20-120/100s", "busy", "20-90/0s"])
def test_a_load_of_another_form_is_refused(load):
    with pytest.raises(InvalidInputError, match="such as 20-90/300s"):
        SimulatedGpus("n1", "A100", 1, load=load)
