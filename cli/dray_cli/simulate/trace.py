"""A cluster's nodes and pods from the files of the openb trace (``docs/placement.md`` says which).

Cards are counted in thousandths: 1000 is a whole card.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dray.api.errors import PermanentError

CARD = 1000
MOST_CARDS = 8
"""The most cards that a node may have: this is the width of the columns."""
Row = dict[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """What a pod asks for. ``milli``: thousandths of each of its ``cards``; 0 without cards."""

    cpu_milli: int
    memory_mib: int
    cards: int
    milli: int
    models: tuple[str, ...] = ()
    """The models that it may use; none named: any."""

    @property
    def gpu_milli(self) -> int:
        """The sum over all its cards."""
        return self.cards * self.milli


@dataclass(frozen=True, slots=True)
class ClusterTrace:
    """Nodes, and pods in the order of their names."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    @property
    def gpu_milli(self) -> int:
        """The sum of all cards, in thousandths."""
        return CARD * sum(node.cards for node in self.nodes)


def read_trace(nodes: Path, pods: Path) -> ClusterTrace:
    """The trace in two files, ``.csv`` or ``.csv.gz``.

    Raises:
        PermanentError: a file can't be read, lacks a column or has an invalid row; or no node has
            a card, or no pod asks for one.
    """
    found = ClusterTrace(
        tuple(_read(nodes, _node)), tuple(pod for _, pod in sorted(_read(pods, _pod)))
    )
    if not found.gpu_milli:
        raise PermanentError(f"{nodes}: no node has a card, so there is nothing to fill")
    if not any(pod.gpu_milli for pod in found.pods):
        raise PermanentError(f"{pods}: no pod asks for a card, so nothing would be filled")
    return found


def _read(path: Path, made_of: Callable[[Row], T]) -> Iterator[T]:
    for number, row in enumerate(csv.DictReader(io.StringIO(_text(path))), 2):
        try:
            yield made_of(row)
        except KeyError as error:
            raise PermanentError(
                f"{path}: no column {error.args[0]}, see docs/user-guide/simulate.md"
            ) from error
        except (ValueError, TypeError) as error:
            raise PermanentError(f"{path}, line {number}: {error}") from error


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise PermanentError(f"{path} can't be read: {error}") from error


def _node(row: Row) -> TraceNode:
    cards = _amount(row, "gpu")
    if cards > MOST_CARDS:
        raise ValueError(f"gpu is {cards}, at most {MOST_CARDS} cards per node are expected")
    amounts = _amount(row, "cpu_milli"), _amount(row, "memory_mib")
    return TraceNode(row["sn"], *amounts, cards, row["model"])


def _pod(row: Row) -> tuple[str, TracePod]:
    cards, milli = _amount(row, "num_gpu"), _amount(row, "gpu_milli")
    if cards and not 0 < milli <= CARD:
        raise ValueError(f"gpu_milli is {milli}, expected 1 to {CARD} of each card")
    if cards > 1 and milli != CARD:
        raise ValueError(f"{cards} cards with gpu_milli {milli}: several are expected to be whole")
    models = tuple(sorted(filter(None, (row.get("gpu_spec") or "").split("|"))))
    amounts = _amount(row, "cpu_milli"), _amount(row, "memory_mib")
    return row["name"], TracePod(*amounts, cards, milli if cards else 0, models)


def _amount(row: Row, column: str) -> int:
    try:
        amount = int(row[column])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{column} is {row[column]!r}, expected a whole number") from error
    if amount < 0:
        raise ValueError(f"{column} is {amount}, expected 0 or more")
    return amount
