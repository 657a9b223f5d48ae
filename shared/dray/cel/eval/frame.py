"""What one evaluation works on: the device, the local variables, its cost and work so far."""

from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.values import Value
from dray.cel.limits import COST_LIMIT, WORK_LIMIT, StoppedError
from dray.cel.view import DeviceView


class Frame:
    """Mutable, and used for one evaluation of one expression only."""

    __slots__ = ("attributes", "capacity", "cost", "device", "locals", "work")

    def __init__(self, device: DeviceView, slots: int) -> None:
        self.device = device
        self.attributes = device.attributes_by_domain
        self.capacity = device.capacity_by_domain
        self.locals: list[Value] = [None] * slots
        self.cost = 0
        """In the units of Kubernetes."""
        self.work = 0
        """In dray's own."""

    @classmethod
    def without_device(cls) -> "Frame":
        """A frame to compute constants on."""
        return cls(DeviceView(""), 0)

    def charge(self, cost: int) -> None:
        """Add a cost that may be large.

        Raises:
            StoppedError: it is too large.
        """
        self.cost += cost
        if self.cost > COST_LIMIT:
            raise StoppedError

    def refund(self) -> None:
        """Take 1 off the cost.

        Raises:
            StoppedError: there was none, and an unsigned number is then very large.
        """
        if self.cost == 0:
            self.cost = 2**64 - 1
            raise StoppedError
        self.cost -= 1

    def spend(self, steps: int) -> None:
        """Account for work that grows with the data, before it is done.

        Raises:
            StoppedError: the evaluation has done enough.
        """
        self.work += steps
        if self.work > WORK_LIMIT or self.cost > COST_LIMIT:
            raise StoppedError


Closure = Callable[[Frame], Value]


class Failure:
    """Replaces the value of a failed expression if only its cost is estimated."""

    __slots__ = ()


FAILED: Final = Failure()


def settle(closure: Closure, frame: Frame) -> Value:
    """The value, or ``FAILED``: what Kubernetes evaluates although the result is an error."""
    try:
        return closure(frame)
    except CelEvaluationError:
        return FAILED


class Scope:
    """Which slot of the frame each local variable has; no two variables share one."""

    def __init__(
        self,
        slots: dict[str, int] | None = None,
        used: list[int] | None = None,
        lazy: frozenset[str] = frozenset(),
    ) -> None:
        self._slots = slots or {}
        self._used = used if used is not None else [0]
        self._lazy = lazy
        self.names = frozenset(self._slots)

    def __contains__(self, name: str) -> bool:
        return name in self._slots

    @property
    def slots(self) -> int:
        """How many slots an evaluation needs."""
        return self._used[0]

    def slot(self, name: str) -> int:
        """The slot of a variable in scope."""
        return self._slots[name]

    def is_lazy(self, name: str) -> bool:
        """Whether the variable's value is computed when it is first read."""
        return name in self._lazy

    def extended(self, *names: str, lazy: bool = False) -> tuple["Scope", tuple[int, ...]]:
        """A scope with more variables, and their slots."""
        first = self._used[0]
        self._used[0] += len(names)
        slots = tuple(range(first, first + len(names)))
        later = self._lazy | set(names) if lazy else self._lazy - set(names)
        known = {**self._slots, **dict(zip(names, slots, strict=True))}
        return Scope(known, self._used, later), slots


class LazyValue:
    """The value of a bound variable, computed when it is first read, as upstream does."""

    __slots__ = ("value",)

    def __init__(self, value: Closure) -> None:
        self.value = value


class FailedValue:
    """What a variable holds whose value could not be computed: it fails at each reading."""

    __slots__ = ("error",)

    def __init__(self, error: CelEvaluationError) -> None:
        self.error = error


def forced(frame: Frame, slot: int) -> Value:
    """The value of a variable, computed now where it has not been."""
    value = frame.locals[slot]
    if type(value) is LazyValue:
        try:
            value = frame.locals[slot] = value.value(frame)
        except CelEvaluationError as error:
            frame.locals[slot] = FailedValue(error)
            raise
    elif type(value) is FailedValue:
        raise value.error
    return value
