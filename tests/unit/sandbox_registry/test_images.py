"""Images by name, from programs of this machine and from archives."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from dray.api.errors import InvalidInputError
from dray_sandbox.registry.images import STAND_IN, ImageFiles, ImageStore
from dray_sandbox.registry.names import ImageName, parse_image_name


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def program(tmp_path: Path, content: bytes = b"\x7fELF program") -> Path:
    path = tmp_path / "program"
    path.write_bytes(content)
    return path


def read(store: ImageStore, digest: str) -> bytes:
    """The blob, which must have that digest."""
    path = store.blob(digest)
    assert path is not None
    content = path.read_bytes()
    assert digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
    return content


def manifest(store: ImageStore, name: str) -> dict[str, Any]:
    digest = store.find(parse_image_name(name))
    assert digest is not None
    found: dict[str, Any] = json.loads(read(store, digest))
    for part in (found["config"], *found["layers"]):
        assert len(read(store, part["digest"])) == part["size"]
    return found


def saved(path: Path, tags: list[str], layer: bytes) -> Path:
    """An archive as `docker save` writes it, whose layer is a link to another one's."""
    diff = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = json.dumps({"os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff]}}).encode()
    entry = {"Config": "c.json", "RepoTags": tags, "Layers": ["one/layer.tar", "two/layer.tar"]}
    with tarfile.open(path, "w") as archive:
        for name, content in (
            ("one/layer.tar", layer),
            ("c.json", config),
            ("manifest.json", json.dumps([entry]).encode()),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("two/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../one/layer.tar"
        archive.addfile(link)
    return path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my-app", "docker.io/library/my-app:latest"),
        ("my-app:1", "docker.io/library/my-app:1"),
        ("nvidia/cuda:12.0-base", "docker.io/nvidia/cuda:12.0-base"),
        ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("localhost/dray:1", "localhost/dray:1"),
    ],
)
def test_a_name_is_completed_as_runtimes_do(text: str, name: str) -> None:
    assert str(parse_image_name(text)) == name
    assert parse_image_name(name) == parse_image_name(text)


@pytest.mark.parametrize("text", ["", "app@sha256:00"])
def test_a_name_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="image name"):
        parse_image_name(text)


def test_an_image_of_programs_has_them_as_executables(store: ImageStore, tmp_path: Path) -> None:
    files = ImageFiles(
        {"/bin/a": program(tmp_path)},
        texts={"/run-a": "#!/bin/a\n"},
        links={"/bin/b": "a"},
        entrypoint=["/run-a"],
    )
    store.add_files([parse_image_name("a:1"), parse_image_name("b:1")], files)

    assert store.find(parse_image_name("a:1")) == store.find(parse_image_name("b:1"))
    described = manifest(store, "a:1")
    config = json.loads(read(store, described["config"]["digest"]))
    (layer,) = described["layers"]
    assert config["config"]["Entrypoint"] == ["/run-a"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(read(store, layer["digest"]))) as content:
        assert content.getmember("bin/a").mode == content.getmember("run-a").mode == 0o755
        assert content.getmember("bin/b").linkname == "a"
        assert content.getmember("tmp").mode == 0o1777


def test_equal_content_is_the_same_image(store: ImageStore, tmp_path: Path) -> None:
    files = ImageFiles({"/a": program(tmp_path)})
    store.add_files([parse_image_name("a")], files)
    store.add_files([parse_image_name("b")], files)

    assert store.find(parse_image_name("a")) == store.find(parse_image_name("b"))


def test_an_archive_has_its_images_and_layers(store: ImageStore, tmp_path: Path) -> None:
    path = saved(tmp_path / "saved.tar", ["dray:1", "localhost/dray:2"], b"layer")

    assert store.add_archive(path) == ["docker.io/library/dray:1", "localhost/dray:2"]
    layers = manifest(store, "dray:1")["layers"]
    assert [read(store, layer["digest"]) for layer in layers] == [b"layer", b"layer"]
    assert {layer["mediaType"] for layer in layers} == {"application/vnd.oci.image.layer.v1.tar"}


def test_a_compressed_layer_is_described_as_such(store: ImageStore, tmp_path: Path) -> None:
    store.add_archive(saved(tmp_path / "saved.tar", ["dray:1"], b"\x1f\x8b compressed"))

    layers = manifest(store, "dray:1")["layers"]
    assert {layer["mediaType"][-5:] for layer in layers} == {"+gzip"}


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_another_file_is_refused_with_what_to_do(
    store: ImageStore, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "other.tar"
    path.write_bytes(content)

    with pytest.raises(InvalidInputError, match="docker save"):
        store.add_archive(path)
    assert store.names() == {}


def test_images_that_nobody_added_have_a_stand_in(store: ImageStore, tmp_path: Path) -> None:
    unknown = parse_image_name("nvidia/cuda:12.0-base")
    assert store.find(unknown) is None
    store.add_files([STAND_IN], ImageFiles({"/a": program(tmp_path)}))

    assert store.find(unknown) == store.find(STAND_IN)


def test_a_wrong_tag_of_an_added_image_has_none(store: ImageStore, tmp_path: Path) -> None:
    store.add_files([STAND_IN], ImageFiles({"/a": program(tmp_path)}))
    store.add_files([parse_image_name("dray:1")], ImageFiles({"/b": program(tmp_path)}))

    assert store.find(parse_image_name("dray:2")) is None
    assert store.find(parse_image_name("dray-webhook:2")) == store.find(STAND_IN)


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:../index.json", "md5:00", "sha256:00"])
def test_only_digests_name_blobs(store: ImageStore, tmp_path: Path, digest: str) -> None:
    store.add_files([ImageName("r", "a", "1")], ImageFiles({"/a": program(tmp_path)}))

    assert store.blob(digest) is None
