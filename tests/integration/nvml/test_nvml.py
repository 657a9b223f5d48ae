"""The NVML adapter on a library of NVML that is built here: what it reads, and every fault."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.nvml_shim.building import VERSION, Machine, address, mig_uuid, uuid

ROOT = Path(__file__).parents[3]
BOUND_S = 60.0


class Probe:
    """A process that reads the machine's GPUs."""

    def __init__(self, machine: Machine, deadline_s: float = 20.0) -> None:
        program = ROOT / "tests" / "nvml_shim" / "probe.py"
        self.process = subprocess.Popen(
            [sys.executable, str(program), machine.root, machine.sysfs, str(deadline_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"DRAY_NVML_SHIM": str(machine.shim_file), "PATH": "/usr/bin:/bin"},
            text=True,
        )

    def ask(self, command: str = "read") -> Any:
        """The answer to a command."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the probe ended"
        return json.loads(line)

    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs of a read."""
        answer = self.ask()
        assert "error" not in answer, answer
        return list(answer["cards"])

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Close the input, and wait for the end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(BOUND_S)
        self.process.stdout.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path).make()


@pytest.fixture
def probe(machine: Machine) -> Iterator[Probe]:
    with Probe(machine) as probe:
        yield probe


def test_a_card_is_read_with_all_that_the_driver_knows(machine: Machine, probe: Probe) -> None:
    machine.say(("link", 0, 2, "switch"), ("link", 1, 5, "switch"))
    snapshot = probe.ask()
    first, second = snapshot["cards"]
    assert (snapshot["driver_version"], snapshot["cuda_version"]) == (VERSION, "12.4")
    assert (first["uuid"], second["uuid"]) == (uuid(0), uuid(1))
    assert first["product"] == "NVIDIA A100-SXM4-40GB"
    assert first["memory_bytes"] == 40 * 2**30
    assert first["pci_bus_id"] == address(0)
    assert first["numa_node"] == 1
    assert first["nvlink_domain"] == second["nvlink_domain"] == address(0)
    assert (first["brand"], first["architecture"]) == ("Nvidia", "Ampere")
    assert (first["compute_capability"], first["ecc"]) == ("8.0", True)
    assert first["device_nodes"][0] == "/dev/nvidia0"
    assert snapshot["unread"] == []


def test_an_old_driver_without_newer_functions_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    machine = Machine(tmp_path).make("-DOLD_DRIVER")
    machine.say(("mig", 0, mig_uuid(0, 1), "x", 4864, 7, 0, 1), ("ecc", 1, 2))
    with Probe(machine) as probe:
        first, second = probe.gpus()
        assert (first["cores"], first["brand"], first["architecture"]) == (0, "", "")
        assert (first["trouble"], second["trouble"]) == ("", "uncorrected-ecc")
        (usage, _) = probe.ask("read_usage")
        assert usage["processes"] == []


def test_mig_instances_follow_their_card(machine: Machine, probe: Probe) -> None:
    name = f"{machine.product} MIG 1g.5gb"
    machine.say(
        ("mig", 0, mig_uuid(0, 1), name, 4864, 7, 0, 1),
        ("mig", 0, mig_uuid(0, 2), machine.product, 19968, 2, 0, 3),
    )
    card, small, large, other = probe.gpus()
    assert [one["uuid"] for one in (card, other)] == [uuid(0), uuid(1)]
    assert small["parent_uuid"] == large["parent_uuid"] == uuid(0)
    assert (small["mig_profile"], large["mig_profile"]) == ("1g.5gb", "3g.20gb")
    assert (small["compute_slices"], large["compute_slices"]) == (1, 3)
    assert (small["mig_id"], large["mig_id"]) == (7, 2)
    assert small["memory_bytes"] == 4864 * 2**20
    machine.take_back("mig")
    assert len(probe.gpus()) == 2


def test_an_xid_makes_its_card_unhealthy_at_once(machine: Machine, probe: Probe) -> None:
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["", ""]
    machine.say(("event", 0, 1, 31), ("event", 1, 1, 79))
    probe.ask("wait")
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["", "xid-79"]
    assert [one["xid"] for one in probe.ask("read_usage")] == [0, 79]


def test_an_error_of_an_instance_is_its_own(machine: Machine, probe: Probe) -> None:
    machine.say(
        ("mig", 0, mig_uuid(0, 1), "x MIG 1g.5gb", 4864, 7, 0, 1),
        ("mig", 0, mig_uuid(0, 2), "x MIG 1g.5gb", 4864, 8, 0, 1),
    )
    probe.gpus()
    machine.say(("event", 0, 0, 94, 8))
    probe.ask("wait")
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["", "", "xid-94", ""]


def test_a_card_that_falls_off_the_bus_stays_as_lost_and_the_others_go_on(
    machine: Machine, probe: Probe
) -> None:
    probe.gpus()
    machine.say(("lost", 0))
    lost, other = probe.gpus()
    assert (lost["uuid"], lost["trouble"]) == (uuid(0), "gpu-lost")
    assert other["trouble"] == ""
    assert [one["uuid"] for one in probe.ask("read_usage")] == [uuid(1)]
    machine.take_back("lost")
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["", ""]


def test_an_xid_of_a_lost_card_leaves_the_others_healthy(machine: Machine, probe: Probe) -> None:
    """The card does not say its UUID any more."""
    probe.gpus()
    machine.say(("event", 0, 0, 48))
    probe.ask("wait")
    lost = ("fails", 0, "nvmlDeviceGetUUID", pynvml.NVML_ERROR_GPU_IS_LOST)
    machine.say(lost, ("event", 1, 0, 79))
    probe.ask("wait")
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["gpu-lost", ""]
    machine.take_back("fails")
    assert [one["xid"] for one in probe.ask("read_usage")] == [79, 0]


def test_events_of_other_cards_are_seen_while_one_is_lost(machine: Machine, probe: Probe) -> None:
    probe.gpus()
    machine.say(("lost", 0))
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["gpu-lost", ""]
    machine.say(("event", 0, 1, 79))
    probe.ask("wait")
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["gpu-lost", "xid-79"]
    machine.take_back("lost")
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["", "xid-79"]
    machine.say(("event", 1, 0, 48))
    probe.ask("wait")
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["xid-48", "xid-79"]


def test_instances_of_a_lost_card_are_lost_with_it(machine: Machine, probe: Probe) -> None:
    machine.say(("mig", 0, mig_uuid(0, 1), "x MIG 1g.5gb", 4864, 7, 0, 1))
    probe.gpus()
    machine.say(("lost", 0))
    assert [(one["uuid"], one["trouble"]) for one in probe.gpus()] == [
        (uuid(0), "gpu-lost"),
        (mig_uuid(0, 1), "gpu-lost"),
        (uuid(1), ""),
    ]


def test_an_instance_that_is_removed_between_two_calls_is_left_out(
    machine: Machine, probe: Probe
) -> None:
    machine.say(
        ("mig", 0, mig_uuid(0, 1), "x MIG 1g.5gb", "gone", 7, 0, 1),
        ("mig", 0, mig_uuid(0, 2), "x MIG 1g.5gb", 4864, 8, 0, 1),
    )
    read = [(one["uuid"], one["trouble"]) for one in probe.gpus()]
    assert read == [(uuid(0), ""), (mig_uuid(0, 2), ""), (uuid(1), "")]
    used = [one["uuid"] for one in probe.ask("read_usage")]
    assert used == [uuid(0), mig_uuid(0, 2), uuid(1)]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("nvmlDeviceGetAttributes_v2", pynvml.NVML_ERROR_UNKNOWN),
        ("nvmlDeviceGetMigMode", pynvml.NVML_ERROR_TIMEOUT),
        ("nvmlDeviceGetMaxMigDeviceCount", pynvml.NVML_ERROR_TIMEOUT),
        ("nvmlDeviceGetMigDeviceHandleByIndex", pynvml.NVML_ERROR_UNKNOWN),
        ("all", pynvml.NVML_ERROR_GPU_IS_LOST),
    ],
)
def test_a_card_whose_instances_can_not_be_read_is_not_free(
    machine: Machine, probe: Probe, function: str, error: int
) -> None:
    """A pod may run on one of them."""
    machine.say(("mig", 0, mig_uuid(0, 1), "x MIG 1g.5gb", 4864, 7, 0, 1))
    probe.gpus()
    machine.say(("fails", 0, function, error))
    assert [(one["uuid"], one["trouble"]) for one in probe.gpus()] == [
        (uuid(0), "gpu-lost"),
        (mig_uuid(0, 1), "gpu-lost"),
        (uuid(1), ""),
    ]
    machine.take_back("fails")
    assert [one["trouble"] for one in probe.gpus()] == ["", "", ""]


def test_a_card_that_is_lost_after_its_handle_is_lost(machine: Machine, probe: Probe) -> None:
    probe.gpus()
    machine.say(("fails", 0, "all", pynvml.NVML_ERROR_GPU_IS_LOST))
    assert [one["trouble"] for one in probe.gpus()] == ["gpu-lost", ""]


def test_invalid_answers_of_nvml_are_a_condition_of_their_card(
    machine: Machine, probe: Probe
) -> None:
    machine.say(
        ("gpu", 2, uuid(2), "no \udcff text", 40960, "00000000:3D:00.0"),
        ("gpu", 3, uuid(3), machine.product, 40960, "no:address"),
        ("gpu", 4, uuid(4), machine.product, 0, "00000000:3F:00.0"),
        ("mig", 4, mig_uuid(4, 1), "without a profile", 4864, 7, 0, 1),
    )
    snapshot = probe.ask()
    assert [one["uuid"] for one in snapshot["cards"]] == [uuid(0), uuid(1)]
    unread = [text.partition(" can't be read: ")[0] for text in snapshot["unread"]]
    assert unread == ["GPU 2", "GPU 3", "GPU 4"]
    assert len(probe.ask("read_usage")) == 6


def test_a_card_that_could_never_be_read_is_named(machine: Machine, probe: Probe) -> None:
    machine.say(("lost", 0))
    snapshot = probe.ask()
    assert [one["uuid"] for one in snapshot["cards"]] == [uuid(1)]
    assert snapshot["unread"] == ["GPU 0 can't be read: GPU is lost"]


def test_a_failed_row_remapping_and_ecc_errors_make_a_card_unhealthy(
    machine: Machine, probe: Probe
) -> None:
    machine.say(("ecc", 0, 3), ("ecc", 1, 3), ("remap", 1, 0))
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["uncorrected-ecc", ""]
    machine.take_back("remap")
    machine.say(("remap", 1, 1))
    assert probe.gpus()[1]["trouble"] == "row-remapping-failed"


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_UNKNOWN])
def test_counters_that_can_not_be_read_now_change_no_health(
    machine: Machine, probe: Probe, error: int
) -> None:
    """Where rows are remapped, ECC errors are no news: as health they would evict pods."""
    machine.say(("ecc", 0, 3), ("remap", 0, 0), ("ecc", 1, 3), ("remap", 1, 1))
    before = [(gpu["trouble"], gpu["ecc"]) for gpu in probe.gpus()]
    assert before == [("", True), ("row-remapping-failed", True)]
    for function in ("nvmlDeviceGetRemappedRows", "nvmlDeviceGetEccMode"):
        machine.say(("fails", 0, function, error), ("fails", 1, function, error))
    assert [(gpu["trouble"], gpu["ecc"]) for gpu in probe.gpus()] == before
    machine.take_back("fails")
    machine.take_back("remap")
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["uncorrected-ecc", "uncorrected-ecc"]
    machine.say(("fails", 0, "nvmlDeviceGetTotalEccErrors", error))
    assert [gpu["trouble"] for gpu in probe.gpus()] == ["uncorrected-ecc", "uncorrected-ecc"]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("nvmlDeviceGetMinorNumber", pynvml.NVML_ERROR_UNKNOWN),
        ("nvmlDeviceGetPciInfo_v3", pynvml.NVML_ERROR_TIMEOUT),
        ("nvmlDeviceGetNumGpuCores", pynvml.NVML_ERROR_TIMEOUT),
    ],
)
def test_a_new_card_is_not_published_with_guesses(
    machine: Machine, probe: Probe, function: str, error: int
) -> None:
    """They would last until the agent restarts; a guessed number is another card's device file."""
    machine.say(("fails", 0, function, error))
    assert [gpu["uuid"] for gpu in probe.gpus()] == [uuid(1)]
    machine.take_back("fails")
    first, _ = probe.gpus()
    assert (first["uuid"], first["pci_bus_id"], first["cores"]) == (uuid(0), address(0), 6912)


def test_a_card_whose_processes_can_not_be_read_is_not_one_without_processes(
    machine: Machine, probe: Probe
) -> None:
    probe.gpus()
    machine.say(("process", 0, 4711, 1000))
    function = "nvmlDeviceGetComputeRunningProcesses_v3"
    machine.say(("fails", 0, function, pynvml.NVML_ERROR_TIMEOUT))
    assert [one["uuid"] for one in probe.ask("read_usage")] == [uuid(1)]


def test_usage_is_read_with_processes(machine: Machine, probe: Probe) -> None:
    probe.gpus()
    machine.say(("used", 0, 1024, 87, 40, 61, 250500), ("process", 0, 4711, 1000))
    first, second = probe.ask("read_usage")
    assert first["memory_used_bytes"] == 2**30
    assert (first["gpu_percent"], first["memory_percent"]) == (87, 40)
    assert (first["temperature_c"], first["power_w"]) == (61, 250.5)
    assert first["processes"] == [{"pid": 4711, "memory_bytes": 1000 * 2**20}]
    assert second["gpu_percent"] is None


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo"])
def test_a_call_that_hangs_is_an_error_until_it_answers(machine: Machine, function: str) -> None:
    machine.say(("hang", function))
    with Probe(machine, deadline_s=0.3) as probe:
        for _ in range(2):
            assert "have not answered for 0.3 s: the driver hangs" in probe.ask()["error"]
        machine.take_back("hang")
        began_s = time.monotonic()
        while "error" in (answer := probe.ask()):
            assert time.monotonic() - began_s < BOUND_S
        assert len(answer["cards"]) == 2


def test_a_call_that_hangs_does_not_delay_the_end(machine: Machine) -> None:
    machine.say(("hang", "nvmlDeviceGetMemoryInfo"))
    with Probe(machine, deadline_s=0.1) as probe:
        probe.ask()
        probe.ask("close")
    assert probe.process.returncode == 0


def test_a_machine_with_a_gpu_and_no_driver_says_what_to_do(tmp_path: Path) -> None:
    machine = Machine(tmp_path).make()
    (machine.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").unlink()
    with Probe(machine) as probe:
        assert "is the NVIDIA driver installed and loaded here?" in probe.ask()["error"]


def test_a_machine_without_a_gpu_has_none(tmp_path: Path) -> None:
    with Probe(Machine(tmp_path, gpus=0).make()) as probe:
        assert probe.gpus() == []


def test_the_drivers_files_are_mounted_under_all_their_names(machine: Machine) -> None:
    machine.install_driver()
    with Probe(machine) as probe:
        mounts = probe.ask()["driver_edits"]["mounts"]
        found = {one["containerPath"]: one["hostPath"] for one in mounts}
        libraries = "/usr/lib/x86_64-linux-gnu"
        cuda = f"{libraries}/libcuda.so.{VERSION}"
        assert found == {
            cuda: cuda,
            f"{libraries}/libcuda.so": cuda,
            f"{libraries}/libcuda.so.1": cuda,
            f"{libraries}/libnvidia-ptxjitcompiler.so.{VERSION}": (
                f"{libraries}/libnvidia-ptxjitcompiler.so.{VERSION}"
            ),
            "/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
            f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin": (
                f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"
            ),
            "/run/nvidia-persistenced/socket": "/run/nvidia-persistenced/socket",
        }
        assert all("ro" in one["options"] for one in mounts)
