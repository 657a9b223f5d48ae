"""CEL's functions on timestamps and durations. The zone is UTC unless another zone is named."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.times import SECOND, Duration, TimeError, Timestamp, zone_of
from dray.cel.library.values import Value, no_overload, take


def _of_timestamp(
    function: str, read: Callable[[datetime], int], of_duration: int = 0
) -> Callable[..., int]:
    """A part of a timestamp. For a duration: the whole units of ``of_duration`` nanoseconds."""

    def call(*values: Value) -> int:
        if of_duration and len(values) == 1 and type(values[0]) is Duration:
            return _whole(values[0].nanoseconds, of_duration)
        zone = values[1] if len(values) == 2 else "UTC"
        take(function, (values[0], zone), Timestamp, str)
        try:
            shown, years = values[0].at(zone_of(zone))
            return read(shown) + (years if function == "getFullYear" else 0)
        except (TimeError, OverflowError) as error:
            raise CelEvaluationError(str(error)) from None

    return call


def _milliseconds(*values: Value) -> int:
    if len(values) == 1 and type(values[0]) is Duration:
        return _whole(values[0].nanoseconds, SECOND // 1000)
    if type(values[0]) is not Timestamp:
        raise no_overload("getMilliseconds", *values)
    if len(values) == 2:
        _SECONDS(*values)
    return int(values[0].nanoseconds % SECOND // (SECOND // 1000))


def _whole(nanoseconds: int, unit: int) -> int:
    """Whole units, rounded towards zero."""
    return abs(nanoseconds) // unit * (-1 if nanoseconds < 0 else 1)


_SECONDS: Final = _of_timestamp("getSeconds", lambda t: t.second, SECOND)
FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "getFullYear": _of_timestamp("getFullYear", lambda t: t.year),
    "getMonth": _of_timestamp("getMonth", lambda t: t.month - 1),
    "getDayOfYear": _of_timestamp("getDayOfYear", lambda t: t.timetuple().tm_yday - 1),
    "getDayOfMonth": _of_timestamp("getDayOfMonth", lambda t: t.day - 1),
    "getDate": _of_timestamp("getDate", lambda t: t.day),
    "getDayOfWeek": _of_timestamp("getDayOfWeek", lambda t: t.isoweekday() % 7),
    "getHours": _of_timestamp("getHours", lambda t: t.hour, 3600 * SECOND),
    "getMinutes": _of_timestamp("getMinutes", lambda t: t.minute, 60 * SECOND),
    "getSeconds": _SECONDS,
    "getMilliseconds": _milliseconds,
}
