"""Variables whose value is computed when it is first read: those of ``cel.bind`` and ``optMap``."""

from dray.cel.errors import CelEvaluationError
from dray.cel.frame import Closure, Frame
from dray.cel.values import Value


class Later:
    """The value of a bound variable, computed when it is first read, as upstream does."""

    __slots__ = ("value",)

    def __init__(self, value: Closure) -> None:
        self.value = value


class Failed:
    """What a variable holds whose value could not be computed: it fails at each reading."""

    __slots__ = ("error",)

    def __init__(self, error: CelEvaluationError) -> None:
        self.error = error


def forced(frame: Frame, slot: int) -> Value:
    """The value of a variable, computed now where it has not been."""
    value = frame.locals[slot]
    if type(value) is Later:
        try:
            value = frame.locals[slot] = value.value(frame)
        except CelEvaluationError as error:
            frame.locals[slot] = Failed(error)
            raise
    elif type(value) is Failed:
        raise value.error
    return value
