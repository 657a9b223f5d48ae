"""The checkpoint: the claims prepared on this node, with all that Unprepare needs.

A JSON envelope with format version, SHA-256 of the data's bytes as written (so that later fields
do not change it), and data. After a power cut it has the content of one ``save``, but not always of
the last one: that would cost a second fsync, and the kubelet prepares those claims again anyway.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.files.atomic_files import write_atomically

_FORMAT = 1
"""Increased only if an older agent could not use what a newer one wrote."""


class CheckpointError(OSError):
    """The file can't be written."""


class CheckpointData(msgspec.Struct, frozen=True, kw_only=True):
    """The content under the checksum."""

    boot_id: str
    claims: dict[str, PreparedClaim]


class _Envelope(msgspec.Struct, frozen=True):
    version: int
    checksum: str
    data: msgspec.Raw


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """The loaded claims. ``corrupt`` says why the file could not be used, and where it is now."""

    claims: dict[str, PreparedClaim]
    boot_id: str = ""
    corrupt: str = ""
    fresh: bool = False
    """Whether there was no file."""


class CheckpointFile:
    """The file. Methods wait for an fsync, and raise OSError."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        self._boot_id = boot_id
        self._aside: Path | None = None
        """The path at which ``save`` keeps a file that can't be read."""

    def load(self) -> LoadedCheckpoint:
        """The claims as last written. A file that can't be read stays until it is replaced."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return LoadedCheckpoint({}, fresh=True)
        try:
            data = _decode(content)
        except ValueError as error:
            self._aside = self._unused_name()
            return LoadedCheckpoint({}, corrupt=f"{error}; kept as {self._aside.name}")
        return LoadedCheckpoint(data.claims, data.boot_id)

    def save(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Replace the file; one that can't be read is kept under another name. Raises
        CheckpointError."""
        data = msgspec.json.encode(CheckpointData(boot_id=self._boot_id, claims=dict(claims)))
        envelope = _Envelope(_FORMAT, _checksum(data), msgspec.Raw(data))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._aside is not None:
                self._aside.hardlink_to(self.path)
                self._aside = None
            write_atomically(self.path, msgspec.json.encode(envelope))
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.path} can't be written: {error.strerror or error}; no claim "
                "is prepared or unprepared on this node until it can. Make room on its disk, or "
                "mount its folder writable (DRAY_NODE__STATE_DIR)"
            ) from error

    def _unused_name(self) -> Path:
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.corrupt-{number}")).exists():
            number += 1
        return aside


def boot_id() -> str:
    """The kernel's boot id; empty if there is none."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _checksum(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _decode(content: bytes) -> CheckpointData:
    """Raises ValueError with the reason."""
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is not a checkpoint: {error}") from error
    if envelope.version != _FORMAT:
        raise ValueError(f"its format is {envelope.version}, this agent reads {_FORMAT}")
    raw = bytes(envelope.data)
    if envelope.checksum != _checksum(raw):
        raise ValueError(f"its checksum is {envelope.checksum}, its data's {_checksum(raw)}")
    try:
        return msgspec.json.decode(raw, type=CheckpointData)
    except msgspec.MsgspecError as error:
        raise ValueError(f"its data can't be read: {error}") from error
