"""A machine that can't run real nodes says all that it lacks, and what to do."""

import os
import shutil
from pathlib import Path

import pytest

from dray_sandbox.node import requirements
from dray_sandbox.node.requirements import CannotRunNodesError, check_machine
from tools import node_packages


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has everything; its CNI plugins are in the folder."""
    plugins = tmp_path / "cni"
    plugins.mkdir()
    for name in ("ptp", "host-local", "portmap", "loopback"):
        (plugins / name).touch()
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF static")
    monkeypatch.setattr(requirements, "_CNI_FOLDERS", (plugins,))
    monkeypatch.setattr(requirements, "_BUSYBOX", busybox)
    monkeypatch.setattr(requirements, "_has_capability", lambda number: True)
    monkeypatch.setattr(requirements, "hierarchies", lambda: [tmp_path])
    monkeypatch.setattr(requirements, "_has_overlay", lambda: True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return plugins


def refusal(directory: Path = Path("/work")) -> str:
    with pytest.raises(CannotRunNodesError) as raised:
        check_machine(directory)
    return str(raised.value)


def test_a_machine_with_everything_is_accepted(machine: Path) -> None:
    assert check_machine(Path("/work")).cni_plugins == machine
    assert requirements.missing_packages() == []


def test_missing_programs_are_named_by_their_packages(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("runc", "nft") else name)
    (machine / "ptp").unlink()

    assert "`make node-packages` installs containernetworking-plugins nftables runc" in refusal()


def test_a_busybox_that_needs_libraries_is_not_used(machine: Path) -> None:
    (machine.parent / "busybox").write_bytes(b"\x7fELF /lib64/ld-linux-x86-64.so.2")
    assert "busybox-static" in refusal()


@pytest.mark.parametrize(("user", "capable"), [(1000, True), (0, False)])
def test_another_user_than_root_is_refused(
    machine: Path, monkeypatch: pytest.MonkeyPatch, user: int, capable: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(requirements, "_has_capability", lambda number: capable)
    assert "root with CAP_SYS_ADMIN" in refusal()


def test_a_kernel_without_overlayfs_or_cgroups_is_refused(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "_has_overlay", lambda: False)
    monkeypatch.setattr(requirements, "hierarchies", list)
    assert "no overlayfs" in refusal()
    assert "no cgroup hierarchy" in refusal()


@pytest.mark.parametrize("directory", ["/run/dray", "/var/lib/ci/checkout", "/var/run/x"])
def test_files_in_folders_that_nodes_replace_are_refused(machine: Path, directory: str) -> None:
    assert f"{directory} is below" in refusal(Path(directory))


def test_all_that_is_missing_is_named_at_once(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(requirements, "_has_overlay", lambda: False)
    sentence = refusal()
    assert all(word in sentence for word in ("root", "overlayfs", "runc", "--kubelet simulated"))


def test_packages_are_not_installed_by_another_user(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "runc" else name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert node_packages.main() == 1
    assert "install runc as root" in capsys.readouterr().out
