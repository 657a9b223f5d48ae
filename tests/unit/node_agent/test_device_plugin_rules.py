"""What the device plugin offers, and what it notes about containers."""

import os
from pathlib import Path

import pytest

from dray.api.names import GPU_RESOURCE
from dray_node_agent.decisions.device_plugin import plugin_devices
from dray_node_agent.files.plugin_records import PluginRecords


def unhealthy_ids(gpus: int, unhealthy: list[str], held: dict[str, list[str]]) -> list[str]:
    slots = plugin_devices(GPU_RESOURCE, gpus, unhealthy, held)
    return [one.id for one in slots if not one.is_healthy]


def test_the_id_of_the_container_that_uses_an_unhealthy_gpu_is_unhealthy() -> None:
    held = {"gpu-0": ["a"], "gpu-2": ["b"]}
    assert unhealthy_ids(4, ["b"], held) == ["gpu-2"]


def test_an_unhealthy_gpu_that_nobody_uses_makes_an_unused_id_unhealthy() -> None:
    held = {"gpu-0": ["a"]}
    assert unhealthy_ids(4, ["b"], held) == ["gpu-1"]


def test_every_unhealthy_gpu_makes_another_id_unhealthy() -> None:
    held = {"gpu-0": ["a", "b"]}
    assert unhealthy_ids(2, ["a", "b"], held) == ["gpu-0", "gpu-1"]


def test_a_container_that_got_the_ids_of_one_that_ended_is_not_forgotten(tmp_path: Path) -> None:
    records = PluginRecords(tmp_path)
    records.add("gpu-0")
    records.assign("gpu-0", "claim")
    ended = records.get("gpu-0")
    assert ended is not None
    newer = records.add("gpu-0")
    records.remove("gpu-0", ended)
    assert records.get("gpu-0") == newer
    records.remove("gpu-0", newer)
    assert records.all() == {}


def test_a_record_is_kept_through_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet remembers the name of the CDI device, and asks for it again after a reboot."""
    flushed, fsync = list[str](), os.fsync

    def note(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    PluginRecords(tmp_path).add("gpu-0")
    content, folder = flushed
    assert Path(content).parent == tmp_path
    assert folder == str(tmp_path)
