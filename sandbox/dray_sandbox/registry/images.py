"""Images in a folder, as the OCI distribution specification serves them: blobs by digest.

``index.json`` has the digest of each name's manifest. It is replaced atomically, so the registry's
process sees images that are added while it runs.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from dray.api.errors import InvalidInputError
from dray_sandbox.registry.names import ImageName, parse_image_name

STAND_IN = ImageName("dray.dev", "stand-in", "1")
"""Served in place of images that were not added."""
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
_COMPRESSIONS = {b"\x1f\x8b": "+gzip", b"\x28\xb5\x2f\xfd": "+zstd"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """The content of an image that is made from programs of this machine."""

    programs: Mapping[str, Path]
    """Executable files by their paths in the image."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Executable scripts by their paths in the image."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Targets of symbolic links by their paths in the image."""
    entrypoint: Sequence[str] = ()


class ImageStore:
    """The images in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._blobs = directory / "blobs"
        self._index = directory / "index.json"

    def names(self) -> dict[str, str]:
        """The digest of each image's manifest, by complete name."""
        try:
            found: dict[str, str] = json.loads(self._index.read_text())
        except FileNotFoundError:
            return {}
        return found

    def find(self, name: ImageName) -> str | None:
        """The digest of the manifest, or of the stand-in's.

        There is no stand-in if another tag of the image was added: then the tag is wrong.
        """
        known = self.names()
        if (digest := known.get(str(name))) is not None:
            return digest
        repository = f"{name.registry}/{name.repository}:"
        if any(other.startswith(repository) for other in known):
            return None
        return known.get(str(STAND_IN))

    def blob(self, digest: str) -> Path | None:
        """The file of a blob, if there is one."""
        kind, _, value = digest.partition(":")
        path = self._blobs / value
        return path if kind == "sha256" and value.isalnum() and path.is_file() else None

    def add_archive(self, path: Path) -> list[str]:
        """Add the images of a `docker save`, podman or buildah archive; returns their names.

        Raises:
            InvalidInputError: the file is not such an archive.
        """
        try:
            with tarfile.open(path) as archive:
                manifest = json.loads(_read(archive, "manifest.json").read())
                return [name for image in manifest for name in self._add_saved(archive, image)]
        except (OSError, tarfile.TarError, KeyError, json.JSONDecodeError) as error:
            raise InvalidInputError(
                f"{path} is not an archive of images ({error}): write one with `docker save`, "
                "`podman save` or `buildah push IMAGE docker-archive:FILE:NAME`"
            ) from error

    def add_files(self, names: Iterable[ImageName], files: ImageFiles) -> None:
        """Add an image of one layer under ``names``."""
        layer = _layer(files)
        system = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
        }
        config = system | {
            "config": {"Entrypoint": list(files.entrypoint), "Env": [_PATH]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        self._add(names, json.dumps(config).encode(), [io.BytesIO(layer)])

    def _add_saved(self, archive: tarfile.TarFile, image: Mapping[str, Any]) -> list[str]:
        names = [parse_image_name(text) for text in image["RepoTags"] or ()]
        config = _read(archive, image["Config"]).read()
        self._add(names, config, (_read(archive, layer) for layer in image["Layers"]))
        return [str(name) for name in names]

    def _add(self, names: Iterable[ImageName], config: bytes, layers: Iterable[IO[bytes]]) -> None:
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": self._put(io.BytesIO(config), _CONFIG_TYPE),
            "layers": [self._put(layer, _LAYER_TYPE) for layer in layers],
        }
        content = json.dumps(manifest).encode()
        digest = self._put(io.BytesIO(content), MANIFEST_TYPE)["digest"]
        index = self.names() | {str(name): digest for name in names}
        new = self._index.with_suffix(".new")
        new.write_text(json.dumps(index, indent=2) + "\n")
        new.replace(self._index)

    def _put(self, content: IO[bytes], media_type: str) -> dict[str, Any]:
        """Store a blob; returns its descriptor."""
        self._blobs.mkdir(parents=True, exist_ok=True)
        new = self._blobs / "new"
        digest, start = hashlib.sha256(), b""
        with new.open("wb") as file:
            while chunk := content.read(_CHUNK_BYTES):
                start = start or chunk[:4]
                digest.update(chunk)
                file.write(chunk)
            size = file.tell()
        if media_type == _LAYER_TYPE:
            media_type += next(
                (name for magic, name in _COMPRESSIONS.items() if start.startswith(magic)), ""
            )
        new.replace(self._blobs / digest.hexdigest())
        return {
            "mediaType": media_type,
            "digest": f"sha256:{digest.hexdigest()}",
            "size": size,
        }


def _read(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """The file of that name, or the one that it links to. Raises KeyError."""
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is not a file")
    return file


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _layer(files: ImageFiles) -> bytes:
    """The layer as a tar archive, equal for equal content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for path, program in files.programs.items():
            _add_executable(layer, path, program.read_bytes())
        for path, text in files.texts.items():
            _add_executable(layer, path, text.encode())
        for path, target in files.links.items():
            link = tarfile.TarInfo(path.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            layer.addfile(link)
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        layer.addfile(temporary)
    return buffer.getvalue()


def _add_executable(layer: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.mode, entry.size = 0o755, len(content)
    layer.addfile(entry, io.BytesIO(content))
