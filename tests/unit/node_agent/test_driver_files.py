"""What containers need of the driver: found, or as nvidia-ctk says."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.nvml_shim.building import VERSION, Machine

from dray_node_agent.decisions.gpus import Gpu
from dray_node_agent.gpus.driver_files import DriverFiles

GENERATED = {
    "cdiVersion": "0.7.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": "GPU-1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
        {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
    ],
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}],
    },
}


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    (made.root / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    made.install_driver()
    return made


def test_the_host_s_paths_are_those_of_the_folder_on_the_node(machine):
    files = DriverFiles(machine.root, host_root=Path("/run/nvidia/driver"))
    for one in files.driver_edits(VERSION)["mounts"]:
        assert one["hostPath"].startswith("/run/nvidia/driver/")
        assert one["containerPath"].startswith(("/usr/", "/lib/", "/run/nvidia-persistenced/"))


def test_another_version_of_the_driver_is_looked_for_again(machine):
    files = DriverFiles(machine.root)
    assert files.driver_edits(VERSION)
    assert "libcuda.so.470.0" not in json.dumps(files.driver_edits(VERSION))
    assert "libcuda.so.470.0" in json.dumps(files.driver_edits("470.0"))


def test_a_driver_without_libraries_leaves_them_to_the_runtime(tmp_path):
    assert DriverFiles(tmp_path).driver_edits(VERSION) == {}


def test_device_files_are_those_that_are_there(tmp_path):
    dev = tmp_path / "dev"
    (dev / "dri/by-path").mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", "dri/card1", "dri/renderD129"):
        (dev / name).write_text("")
    for kind, target in (("card", "card1"), ("render", "renderD129")):
        (dev / f"dri/by-path/pci-0000:3b:00.0-{kind}").symlink_to(f"../{target}")
    assert DriverFiles(dev=dev).device_nodes(3, "0000:3b:00.0") == (
        "/dev/nvidia3",
        "/dev/dri/card1",
        "/dev/dri/renderD129",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    )


def test_a_mig_instance_is_used_by_the_kernel_s_capabilities(tmp_path):
    (tmp_path / "driver/nvidia-caps").mkdir(parents=True)
    (tmp_path / "driver/nvidia-caps/mig-minors").write_text(
        "config 1\nmonitor 2\ngpu0/gi7/access 66\ngpu0/gi7/ci0/access 67\ngpu1/gi7/access 201\n"
    )
    files = DriverFiles(proc=tmp_path)
    assert files.capabilities(0, 7, 0) == (
        "/dev/nvidia-caps/nvidia-cap66",
        "/dev/nvidia-caps/nvidia-cap67",
    )
    assert DriverFiles(proc=tmp_path / "absent").capabilities(0, 7, 0) == ()


def test_what_nvidia_ctk_generates_is_taken_where_it_is_installed(machine):
    (machine.root / "usr/bin/nvidia-ctk").write_text("")
    asked = []

    def run(command):
        asked.append(command)
        return json.dumps(GENERATED)

    files = DriverFiles(machine.root, run=run)
    assert files.driver_edits(VERSION) == GENERATED["containerEdits"]
    files.driver_edits(VERSION)
    gpus = list(files.with_edits([Gpu("GPU-1", "A100", 1), Gpu("GPU-2", "A100", 1)]))
    assert gpus[0].edits == GENERATED["devices"][0]["containerEdits"]
    assert gpus[1].edits == {}
    (command,) = asked
    assert command[:3] == ["chroot", str(machine.root), "/usr/bin/nvidia-ctk"]
    assert "--device-name-strategy=uuid" in command


@pytest.mark.parametrize(
    "failure",
    [
        lambda: "no JSON",
        lambda: '{"devices": [{}]}',
        lambda: (_ for _ in ()).throw(subprocess.CalledProcessError(1, "nvidia-ctk")),
        lambda: (_ for _ in ()).throw(OSError("no such file")),
    ],
)
def test_where_nvidia_ctk_fails_the_files_are_looked_for(machine, failure):
    (machine.root / "usr/bin/nvidia-ctk").write_text("")

    def run(_):
        answer = failure()
        return answer if isinstance(answer, str) else next(answer)

    assert "mounts" in DriverFiles(machine.root, run=run).driver_edits(VERSION)
