"""What the device plugin answered to the kubelet, by the first id of each container.

The kubelet remembers the answer, a name of a CDI device, for as long as the pod lives. Container
runtimes cache what a name stands for, so each answer has its own name.
"""

import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from dray_node_agent.files.atomic_files import sync_folder, write_atomically

_NAME_BYTES: Final = 8


class PluginRecord(msgspec.Struct, frozen=True):
    """The answer about one container."""

    cdi_device: str
    claim_uid: str = ""
    """The claim with the container's GPUs; empty until the container is about to start."""


class PluginRecords:
    """One small file in ``folder`` per container, or per group of containers that take turns.
    Methods wait for the disk, raise OSError, and may be called by several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def add(self, first_id: str) -> PluginRecord:
        """The record of a container that gets ids. Containers of one pod that take turns with the
        ids share a record while none of them has started."""
        with self._lock:
            known = self.get(first_id)
            if known is not None and not known.claim_uid:
                return known
            record = PluginRecord(secrets.token_hex(_NAME_BYTES))
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(first_id, record)
            return record

    def assign(self, first_id: str, claim_uid: str) -> None:
        """Note the claim with the container's GPUs."""
        with self._lock:
            if (record := self.get(first_id)) is not None and record.claim_uid != claim_uid:
                self._write(first_id, msgspec.structs.replace(record, claim_uid=claim_uid))

    def remove(self, first_id: str, record: PluginRecord) -> None:
        """Forget a container that has ended, unless another one has its ids now."""
        with self._lock:
            if self.get(first_id) == record:
                self._path(first_id).unlink()

    def get(self, first_id: str) -> PluginRecord | None:
        """The record of a container; None: there is none that can be read."""
        try:
            return msgspec.json.decode(self._path(first_id).read_bytes(), type=PluginRecord)
        except (msgspec.MsgspecError, FileNotFoundError):
            return None

    def all(self) -> Mapping[str, PluginRecord]:
        """The records that can be read."""
        names = [path.stem for path in self._folder.glob("*.json")]
        return {name: record for name in names if (record := self.get(name)) is not None}

    def _write(self, first_id: str, record: PluginRecord) -> None:
        write_atomically(self._path(first_id), msgspec.json.encode(record))
        sync_folder(self._folder)  # the kubelet also remembers the name after a power cut

    def _path(self, first_id: str) -> Path:
        return self._folder / f"{first_id}.json"
