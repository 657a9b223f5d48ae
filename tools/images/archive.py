"""Archives of images as ``docker save`` writes them: read without a container engine, merged."""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

MANIFEST = "manifest.json"
_WHITEOUT = ".wh."


@dataclass(frozen=True, slots=True)
class Image:
    """One image of an archive."""

    name: str
    configuration: Mapping[str, Any]
    """User, Env, Entrypoint and Labels, as OCI names them."""
    archive: Path
    layers: tuple[str, ...]
    """Members of the archive, the base's first."""

    def files(self, *, above: int = 0) -> dict[PurePosixPath, tarfile.TarInfo]:
        """The content of its file system, by path; only of the layers after the first ``above``."""
        found: dict[PurePosixPath, tarfile.TarInfo] = {}
        for _, path, entry in self._entries(self.layers[above:]):
            if path.name.startswith(_WHITEOUT):
                found.pop(path.with_name(path.name.removeprefix(_WHITEOUT)), None)
            else:
                found[path] = entry
        return found

    def read(self, path: str) -> bytes:
        """The content of a file. Raises FileNotFoundError."""
        for layer, found, entry in self._entries(self.layers[::-1]):
            if found == PurePosixPath(path) and (content := layer.extractfile(entry)) is not None:
                return content.read()
        raise FileNotFoundError(f"{self.name} has no file {path}")

    def _entries(
        self, layers: Sequence[str]
    ) -> Iterator[tuple[tarfile.TarFile, PurePosixPath, tarfile.TarInfo]]:
        with tarfile.open(self.archive) as outer:
            for name in layers:
                with tarfile.open(fileobj=outer.extractfile(name)) as layer:
                    for entry in layer:
                        yield layer, PurePosixPath("/", entry.name), entry


def read_archive(path: Path) -> dict[str, Image]:
    """The images of an archive, by name."""
    with tarfile.open(path) as archive:
        return {
            name: Image(
                name, _json(archive, entry["Config"])["config"], path, tuple(entry["Layers"])
            )
            for entry in _json(archive, MANIFEST)
            for name in entry["RepoTags"]
        }


def merge(parts: Sequence[Path], whole: Path) -> None:
    """Write the images of all ``parts`` into one archive, with each layer once."""
    entries: list[Any] = []
    written = set()
    with tarfile.open(whole, "w") as target:
        for part in parts:
            with tarfile.open(part) as source:
                entries += _json(source, MANIFEST)
                for member in source:
                    if member.name not in written and "/" not in member.name:
                        written.add(member.name)
                        if member.name.split(".")[0] not in ("manifest", "repositories"):
                            target.addfile(member, source.extractfile(member))
        manifest = json.dumps(entries).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size = len(manifest)
        target.addfile(info, io.BytesIO(manifest))


def _json(archive: tarfile.TarFile, member: str) -> Any:
    content = archive.extractfile(member)
    assert content is not None
    return json.load(content)
