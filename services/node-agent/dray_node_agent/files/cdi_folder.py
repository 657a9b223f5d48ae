"""The folder of CDI files that the container runtime reads."""

import contextlib
import json
import os
from pathlib import Path

import msgspec

from dray_node_agent.decisions.cdi import CLASS, VENDOR, Spec
from dray_node_agent.files.atomic_files import remove_unfinished, write_atomically


class CdiFolderError(OSError):
    """A file can't be written."""


class CdiFolder:
    """The transient specifications of one class in the folder that the container runtime reads.

    Methods wait for the disk, and raise OSError. Files are not flushed: the folder is empty after
    a reboot, and an agent that starts compares them with its checkpoint.
    """

    def __init__(self, folder: Path, of_class: str = CLASS) -> None:
        self._folder = folder
        self._prefix = f"{VENDOR}-{of_class}_"

    def path(self, claim_uid: str) -> Path:
        """File of a claim."""
        return self._folder / f"{self._prefix}{claim_uid}.json"

    def write(self, claim_uid: str, spec: Spec) -> None:
        """Write a claim's file, unless it exists with the same content. Raises CdiFolderError."""
        content = msgspec.json.format(msgspec.json.encode(spec, order="sorted")) + b"\n"
        path = self.path(claim_uid)
        try:
            if not path.exists() or path.read_bytes() != content:
                self._folder.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content, mode=0o644, sync=False)
        except OSError as error:
            raise CdiFolderError(
                f"the CDI folder {self._folder} can't be written: {error.strerror or error}; the "
                "container runtime would not find the claim's GPUs. Mount the folder writable "
                "(DRAY_NODE__CDI_DIR), with room left"
            ) from error

    def remove(self, claim_uid: str) -> None:
        """Remove a claim's file, if it exists."""
        self.path(claim_uid).unlink(missing_ok=True)

    def remove_unfinished(self) -> None:
        """Remove temporary files of killed agents; files of other vendors stay."""
        remove_unfinished(self._folder, f"{self._prefix}*.json")

    def specs(self) -> dict[str, Spec]:
        """The files by claim uid; those that are not JSON objects are left out."""
        found: dict[str, Spec] = {}
        for uid in self.claims():
            with contextlib.suppress(ValueError, FileNotFoundError):
                spec = json.loads(self.path(uid).read_bytes())
                if isinstance(spec, dict):
                    found[uid] = spec
        return found

    def claims(self) -> tuple[str, ...]:
        """UIDs of the claims with a file, sorted."""
        prefix, suffix = self._prefix, ".json"
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        return tuple(
            sorted(
                name.removeprefix(prefix).removesuffix(suffix)
                for name in names
                if name.startswith(prefix) and name.endswith(suffix)
            )
        )
