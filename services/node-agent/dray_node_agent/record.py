"""What the agent must remember of its publications: the generation, and its node's state."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from dray_node_agent.disk import write_atomically
from dray_node_agent.inventory import NodeState


@dataclass(frozen=True, slots=True)
class Record:
    """``generation`` only grows; ``node`` is the last state that the bus told, or None."""

    generation: int = 0
    node: NodeState | None = None


class RecordFile:
    """The record on disk. Methods block for the time of an fsync, and raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Record:
        """The record; an empty one where there is none, or none that can be read.

        A lost generation is no harm: the next one is above those the API server has.
        """
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Record)
        except FileNotFoundError:
            return Record()
        except msgspec.MsgspecError as error:
            structlog.get_logger().warning(
                "record unreadable, starting anew", path=str(self._path), error=str(error)
            )
            return Record()

    def save(self, record: Record) -> None:
        """Replace the record."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(record))
