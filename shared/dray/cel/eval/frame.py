"""The data of one evaluation: the device, the local variables, the cost and work so far."""

from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.values import Value
from dray.cel.limits import COST_LIMIT, WORK_LIMIT, StoppedError
from dray.cel.view import DeviceView


class Frame:
    """The state of one evaluation. Mutable; used for one evaluation only."""

    __slots__ = ("attributes", "capacity", "cost", "device", "locals", "work")

    def __init__(self, device: DeviceView, slots: int) -> None:
        self.device = device
        self.attributes = device.attributes_by_domain
        self.capacity = device.capacity_by_domain
        self.locals: list[Value] = [None] * slots
        self.cost = 0
        """In Kubernetes' units."""
        self.work = 0
        """In dray's own units, see ``WORK_LIMIT``."""

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
            StoppedError: the cost was 0. It is unsigned, so it wraps to a very large number.
        """
        if self.cost == 0:
            self.cost = 2**64 - 1
            raise StoppedError
        self.cost -= 1

    def spend(self, steps: int) -> None:
        """Account for work that grows with the data. Call it before the work is done.

        Raises:
            StoppedError: the evaluation exceeds its limit.
        """
        self.work += steps
        if self.work > WORK_LIMIT or self.cost > COST_LIMIT:
            raise StoppedError


Closure = Callable[[Frame], Value]


class Failure:
    """Stands for the value of a failed expression if only its cost is still needed."""

    __slots__ = ()


FAILED: Final = Failure()


def settle(closure: Closure, frame: Frame) -> Value:
    """The value, or ``FAILED``. For parts that Kubernetes evaluates although the result is an
    error."""
    try:
        return closure(frame)
    except CelEvaluationError:
        return FAILED


class Scope:
    """The slot of each local variable in the frame. No two variables share a slot."""

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
        """The number of slots that an evaluation needs."""
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
    """The value of a variable that could not be computed. Each read raises the error again."""

    __slots__ = ("error",)

    def __init__(self, error: CelEvaluationError) -> None:
        self.error = error


def forced(frame: Frame, slot: int) -> Value:
    """The value of a variable. It is computed now if it has not been computed yet."""
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
