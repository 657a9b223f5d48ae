"""The record of publications on disk: the generation and the node's state."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.files.atomic_files import write_atomically


@dataclass(frozen=True, slots=True)
class PublicationRecord:
    """``generation`` only grows; ``node`` is the last state from the bus, or None."""

    generation: int = 0
    node: NodeState | None = None


class PublicationRecordFile:
    """The record on disk. Methods wait for an fsync, and raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> PublicationRecord:
        """The record; an empty one if the file is missing or unreadable.

        The next generation is then above those in the API server and on the bus.
        """
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=PublicationRecord)
        except FileNotFoundError:
            return PublicationRecord()
        except msgspec.MsgspecError as error:
            structlog.get_logger().warning(
                "record unreadable, starting with an empty one",
                path=str(self._path),
                error=str(error),
            )
            return PublicationRecord()

    def save(self, record: PublicationRecord) -> None:
        """Replace the record."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(record))
