"""What one evaluation works on: the device, the local variables, the steps left."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dray.cel.device import DeviceView
from dray.cel.errors import CelEvaluationError
from dray.cel.values import Value

MAX_STEPS: Final = 1_000_000
"""Iterations weighted by the size of their body, and characters copied, by tens."""


@dataclass(slots=True)
class Frame:
    """Mutable, and used for one evaluation of one expression only."""

    device: DeviceView
    locals: dict[int, Value] = field(default_factory=dict)
    steps_left: int = MAX_STEPS

    def spend(self, steps: int) -> None:
        """Account for work that grows with the data.

        Raises:
            CelEvaluationError: no steps are left.
        """
        self.steps_left -= steps
        if self.steps_left < 0:
            raise CelEvaluationError("operation cancelled: actual cost limit exceeded")


Closure = Callable[[Frame], Value]


class Scope:
    """Which slot of the frame each local variable has; no two variables share one."""

    def __init__(self, names: dict[str, int] | None = None, used: list[int] | None = None) -> None:
        self._names = names or {}
        self._used = used if used is not None else [0]

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def slot(self, name: str) -> int:
        """The slot of a variable in scope."""
        return self._names[name]

    def extended(self, *names: str) -> tuple["Scope", tuple[int, ...]]:
        """A scope with more variables, and their slots."""
        first = self._used[0]
        self._used[0] += len(names)
        slots = tuple(range(first, first + len(names)))
        return Scope({**self._names, **dict(zip(names, slots, strict=True))}, self._used), slots
