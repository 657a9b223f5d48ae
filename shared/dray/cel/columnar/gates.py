"""The gates between conditions and selectors, settled for a few devices at a time.

Every condition and every gate is a *node* with a row in an array of verdicts, a column per
device. Gates of one operator and level are settled together, however many selectors have them.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dray.cel.columnar.forms import FALSE, TRUE
from dray.cel.columnar.verdicts import NOT, all_of, any_of, chosen

NOTHING: Final = 0
"""The node that verdicts of no use go to."""
ALWAYS: Final = 1
"""The node that is true."""
NEVER: Final = 2
"""The node that is false."""

Verdict = NDArray[np.uint8]

_SETTLE: Final[dict[str, Callable[[Verdict], Verdict]]] = {
    "&&": lambda inputs: all_of(inputs, 0),
    "||": lambda inputs: any_of(inputs, 0),
    "!": lambda inputs: NOT[inputs[0]],
    "?:": chosen,
}
_PADDING: Final = {"&&": ALWAYS, "||": NEVER, "!": NEVER, "?:": NEVER}


class Bank:
    """Gates of one operator: their inputs as an array, input by gate."""

    def __init__(self, operator: str) -> None:
        self._settle = _SETTLE[operator]
        self._padding = _PADDING[operator]
        self.inputs: NDArray[np.intp] = np.full((3, 8), self._padding, np.intp)
        self.count = 0
        self._free: list[int] = []

    def add(self, inputs: list[int]) -> int:
        """A gate over nodes; its index."""
        if self._free:
            index = self._free.pop()
        else:
            index = self.count
            self.count += 1
        self.replace(index, inputs)
        return index

    def replace(self, index: int, inputs: list[int]) -> None:
        """Let a gate be over other nodes."""
        self._make_room(len(inputs))
        self.inputs[:, index] = self._padding
        self.inputs[: len(inputs), index] = inputs

    def remove(self, index: int) -> None:
        """Forget a gate: its index is used again."""
        self.inputs[:, index] = self._padding
        self._free.append(index)

    def settle(self, verdicts: Verdict) -> Verdict:
        """The verdict of each gate for each device."""
        return self._settle(verdicts[self.inputs[:, : self.count]])

    def _make_room(self, width: int) -> None:
        rows, columns = self.inputs.shape
        if width <= rows and self.count <= columns:
            return
        wider = (max(width, rows), columns * 2 if self.count > columns else columns)
        inputs = np.full(wider, self._padding, np.intp)
        inputs[:rows, :columns] = self.inputs
        self.inputs = inputs


class Gates:
    """All nodes: those that conditions fill in, and gates on top of them, level by level."""

    def __init__(self) -> None:
        self._nodes = NEVER + 1
        self._free: list[int] = []
        self._banks: dict[tuple[int, str], tuple[Bank, NDArray[np.intp]]] = {}
        self._level: dict[int, int] = {}
        self._place: dict[int, tuple[tuple[int, str], int]] = {}

    def node(self) -> int:
        """A new node for a condition to fill in."""
        if self._free:
            return self._free.pop()
        self._nodes += 1
        return self._nodes - 1

    def gate(self, operator: str, inputs: list[int]) -> int:
        """A new node: ``operator`` (``&&``, ``||``, ``!``, ``?:``) over other nodes."""
        level = 1 + max(self._level.get(node, 0) for node in inputs)
        key = (level, operator)
        if key not in self._banks:
            self._banks[key] = Bank(operator), np.zeros(8, np.intp)
            self._banks = dict(sorted(self._banks.items()))
        bank, outputs = self._banks[key]
        index, node = bank.add(inputs), self.node()
        if index >= len(outputs):
            outputs = np.concatenate((outputs, np.zeros(len(outputs), np.intp)))
            self._banks[key] = bank, outputs
        outputs[index] = node
        self._level[node] = level
        self._place[node] = key, index
        return node

    def drop(self, node: int) -> None:
        """Give a node back."""
        if node in self._place:
            key, index = self._place.pop(node)
            bank, outputs = self._banks[key]
            bank.remove(index)
            outputs[index] = NOTHING
            del self._level[node]
        self._free.append(node)

    def blank(self, devices: int) -> Verdict:
        """An array for verdicts: a row per node, a column per device."""
        verdicts = np.zeros((self._nodes, devices), np.uint8)
        verdicts[ALWAYS], verdicts[NEVER] = TRUE, FALSE
        return verdicts

    def settle(self, verdicts: Verdict) -> None:
        """Fill in the gates' rows, the conditions' being there."""
        for bank, outputs in self._banks.values():
            verdicts[outputs[: bank.count]] = bank.settle(verdicts)
