"""CDI files, the checkpoint, the record and the sockets' paths."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.errors import InvalidInputError
from dray_node_agent.decisions.cdi import cdi_id, device_entry, gpu_edits, spec_of
from dray_node_agent.decisions.gpus import Gpu
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.decisions.prepared_claim import PreparedClaim, PreparedDevice
from dray_node_agent.files.atomic_files import remove_unfinished, write_atomically
from dray_node_agent.files.cdi_folder import CdiFolder, CdiFolderError
from dray_node_agent.files.checkpoint import CheckpointFile, LoadedCheckpoint
from dray_node_agent.files.publication_record import PublicationRecord, PublicationRecordFile
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.kubelet.sockets import endpoint_socket, registration_socket


def entry(uid="u", **more):
    device = PreparedDevice(
        request="gpu", pool="n", device="d", cdi_ids=(cdi_id(uid, "d"),), consumed={"x": "1"}
    )
    more.setdefault("phase", "PrepareCompleted")
    return PreparedClaim(uid=uid, namespace="ns", name="c", devices=(device,), cdi={"a": 1}, **more)


def gpu(*nodes, **more):
    return Gpu("GPU-1", "A100", 1, device_nodes=nodes, **more)


@pytest.mark.parametrize(
    ("edits", "version"),
    [
        ({"mounts": [{"hostPath": "/a", "containerPath": "/b"}]}, "0.3.0"),
        ({"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "tmpfs"}]}, "0.4.0"),
        ({"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}, "0.5.0"),
        ({"additionalGids": [5]}, "0.7.0"),
        ({"netDevices": []}, "1.1.0"),
    ],
)
def test_what_nvidia_ctk_generates_raises_the_cdi_version_as_far_as_it_must(edits, version):
    of_gpu = device_entry("a", {"K": "v"}, gpu_edits(gpu(edits=edits)))
    assert spec_of([of_gpu])["cdiVersion"] == version
    of_driver = spec_of([device_entry("a", {"K": "v"}, {})], edits)
    assert (of_driver["cdiVersion"], of_driver["containerEdits"]) == (version, edits)
    assert of_gpu["containerEdits"]["env"] == ["K=v"]


def test_the_cdi_version_is_the_oldest_that_has_what_is_used():
    letters = device_entry("abc", {"A": "1"}, {})
    digits = device_entry("1bc", {"A": "1"}, {})
    assert spec_of([letters])["cdiVersion"] == "0.3.0"
    assert spec_of([letters, digits])["cdiVersion"] == "0.5.0"


def test_only_real_cards_bring_device_nodes():
    assert "deviceNodes" not in device_entry("a", {}, {})["containerEdits"]
    edits = device_entry("a", {}, gpu_edits(gpu("/dev/nvidia0")))["containerEdits"]
    assert edits["deviceNodes"] == [{"path": "/dev/nvidia0"}]


def test_a_device_node_of_another_name_needs_a_newer_cdi_version():
    entry = device_entry("a", {}, gpu_edits(gpu("/dev/fuse:/dev/nvidia0")))
    assert entry["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia0", "hostPath": "/dev/fuse"}
    ]
    assert spec_of([entry])["cdiVersion"] == "0.5.0"


def test_simulated_cards_have_the_stand_in_for_their_device_nodes():
    gpus = SimulatedGpus("n", "A100", 2, stand_in=Path("/dev/fuse")).read().gpus
    assert [gpu.device_nodes for gpu in gpus] == [
        ("/dev/fuse:/dev/nvidia0",),
        ("/dev/fuse:/dev/nvidia1",),
    ]


def test_a_cdi_file_is_written_once_found_and_removed(tmp_path):
    folder = CdiFolder(tmp_path / "cdi")
    folder.write("u", spec_of([device_entry("a", {"K": "v"}, {})]))
    before = folder.path("u").stat().st_mtime_ns
    folder.write("u", spec_of([device_entry("a", {"K": "v"}, {})]))
    assert folder.path("u").stat().st_mtime_ns == before
    assert json.loads(folder.path("u").read_text())["kind"] == "tensor-fusion.ai/gpu"
    (tmp_path / "cdi" / "other-vendor_u.json").write_text("{}")
    assert folder.claims() == ("u",)
    folder.remove("u")
    folder.remove("u")
    assert folder.claims() == ()


def test_a_failed_write_leaves_the_old_content_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["f"]


def test_what_a_killed_agent_was_writing_is_removed_and_nothing_else(tmp_path, monkeypatch):
    unfinished = []

    def fail(temporary, _):
        unfinished.append(temporary)
        raise OSError("killed about here")

    cdi = CdiFolder(tmp_path / "cdi")
    cdi.write("whole", spec_of([device_entry("a", {}, {})]))
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", fail)
        with pytest.raises(OSError, match="killed"):
            write_atomically(tmp_path / "checkpoint.json", b"{")
        with pytest.raises(OSError, match="killed"):
            cdi.write("torn", spec_of([device_entry("a", {}, {})]))
    foreign = [tmp_path / ".notes.tmp", tmp_path / "cdi" / ".other-vendor_u.json.7.tmp"]
    for path in [*unfinished, *foreign]:  # a kill leaves what an exception cleans up
        path.write_text("{")

    remove_unfinished(tmp_path)
    cdi.remove_unfinished()

    assert not any(path.exists() for path in unfinished)
    assert all(path.exists() for path in foreign)
    assert cdi.claims() == ("whole",)


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.uuids().map(str), st.sampled_from(["PrepareStarted", "PrepareCompleted"]), max_size=4
    )
)
def test_what_was_saved_is_loaded(tmp_path_factory, phases):
    file = CheckpointFile(tmp_path_factory.mktemp("c") / "checkpoint.json", "boot-1")
    claims = {uid: entry(uid, phase=phase) for uid, phase in phases.items()}
    file.save(claims)
    loaded = file.load()
    assert (loaded.claims, loaded.boot_id, loaded.corrupt) == (claims, "boot-1", "")


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Else a power cut could leave the name with an empty file."""
    steps, fsync, replace_file = list[str](), os.fsync, os.replace

    def note_fsync(descriptor):
        content = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        steps.append("flushed" if content.startswith(b'{"version":1') else "flushed too early")
        fsync(descriptor)

    def note_replace(*paths):
        steps.append("named")
        replace_file(*paths)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    CheckpointFile(tmp_path / "checkpoint.json", "boot").save({"u": entry()})
    assert steps == ["flushed", "named"]


def test_an_absent_checkpoint_is_fresh_not_corrupt(tmp_path):
    loaded = CheckpointFile(tmp_path / "none", "b").load()
    assert (loaded.fresh, loaded.corrupt) == (True, "")


@settings(max_examples=30)
@given(st.data())
def test_any_changed_byte_of_a_checkpoint_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("c") / "checkpoint.json"
    file = CheckpointFile(path, "boot")
    file.save({"u": entry()})
    content = bytearray(path.read_bytes())
    start = content.index(b'"data":') + len(b'"data":')
    position = data.draw(st.integers(start, len(content) - 2))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    loaded = file.load()
    assert loaded.corrupt
    assert file.load().corrupt, "it stays until it is replaced"
    file.save({})
    assert file.load() == LoadedCheckpoint({}, "boot")
    assert path.with_name("checkpoint.json.corrupt-1").read_bytes() == bytes(content)


def test_a_second_corrupt_checkpoint_does_not_overwrite_the_first(tmp_path):
    file = CheckpointFile(tmp_path / "c", "b")
    for content in (b"one", b"two"):
        (tmp_path / "c").write_bytes(content)
        assert file.load().corrupt
        file.save({})
    assert (tmp_path / "c.corrupt-1").read_bytes() == b"one"
    assert (tmp_path / "c.corrupt-2").read_bytes() == b"two"


def test_the_record_survives_and_a_broken_one_starts_again(tmp_path):
    file = PublicationRecordFile(tmp_path / "s" / "record.json")
    assert file.load() == PublicationRecord()
    record = PublicationRecord(7, NodeState("n", "u", "p", vram_ratio="1.5"))
    file.save(record)
    assert file.load() == record
    (tmp_path / "s" / "record.json").write_text("{")
    assert file.load() == PublicationRecord()


def test_socket_names_are_the_kubelets_and_get_shorter_when_they_must(tmp_path):
    driver, path = "tensor-fusion.ai.dra-driver", tmp_path.__class__
    assert str(endpoint_socket(path("/p"), driver, "1a")) == f"/p/{driver}/dra-1a.sock"
    assert str(registration_socket(path("/r"), driver, "1a")) == f"/r/{driver}-1a-reg.sock"
    long = path("/" + "x" * 75)
    assert len(str(endpoint_socket(long, driver, "0123abcd"))) <= 107
    assert registration_socket(long, driver, "0123abcd").name.endswith("-0123abcd-reg.sock")
    for too_long in (endpoint_socket, registration_socket):
        with pytest.raises(InvalidInputError, match="the limit is 107: choose a shorter"):
            too_long(path("/" + "x" * 110), driver, "1a")


def test_a_cdi_folder_that_can_not_be_written_is_named_with_what_to_do(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("dray_node_agent.files.cdi_folder.write_atomically", refuse)
    with pytest.raises(CdiFolderError) as refused:
        CdiFolder(tmp_path).write("u", {"kind": "k"})
    assert f"{tmp_path} can't be written: Read-only file system" in str(refused.value)
    assert "DRAY_NODE__CDI_DIR" in str(refused.value)
