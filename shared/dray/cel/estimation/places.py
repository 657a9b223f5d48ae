"""Where a value stands, seen from a variable, and what is known of what it contains."""

from typing import NamedTuple

from dray.cel import tree
from dray.cel.estimation.spans import ONE, Span, fixed
from dray.cel.tree import Node


class Path:
    """Steps from a variable: a Go slice, whose appends overwrite what another one appended."""

    __slots__ = ("_length", "_memory", "_room")

    def __init__(self, memory: list[str], room: int, length: int) -> None:
        self._memory, self._room, self._length = memory, room, length

    def to(self, step: str) -> "Path":
        """The path one step on, in the same memory where there is room."""
        if self._length < self._room:
            memory, room = self._memory, self._room
        else:
            memory, room = self._memory[: self._length], max(1, 2 * self._room)
        del memory[self._length + 1 :]
        memory[self._length : self._length + 1] = [step]
        return Path(memory, room, self._length + 1)

    @property
    def steps(self) -> list[str]:
        return self._memory[: self._length]


class Entries(NamedTuple):
    """Sizes of the keys and values of a container."""

    is_list: bool
    key: Span
    value: Span

    def union(self, other: "Entries | None") -> "Entries | None":
        if other is None:
            return None
        return Entries(self.is_list, self.key.union(other.key), self.value.union(other.value))


def written_size(node: Node) -> Span | None:
    """The size of a literal."""
    match node:
        case tree.Literal(value=str() | bytes() as value):
            return fixed(len(value))
        case tree.Literal():
            return ONE
        case tree.ListLiteral():
            return fixed(len(node.items))
        case tree.MapLiteral():
            return fixed(len(node.entries))
        case _:
            return None
