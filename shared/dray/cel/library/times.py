"""Timestamps and durations: their texts, their arithmetic, and the parts that functions read."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

SECOND: Final = 10**9
_INT64: Final = range(-(2**63), 2**63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S: Final = -62135596800
_LAST_S: Final = 253402300799
_DAYS_S: Final = 2 * 86400
_CYCLE_S: Final = 146097 * 86400
_UNITS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND,
    "h": 3600 * SECOND,
}  # fmt: skip
_TIME: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})T(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
    r":(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})"
)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,9}")
_PART: Final = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]+)")


Zone = ZoneInfo | int
"""A zone by name, or as seconds east of UTC."""


class TimeError(ValueError):
    """Not a time, a duration or a time zone, or out of the range of the types."""


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time in nanoseconds, in 64 bits."""

    nanoseconds: int


@dataclass(frozen=True, slots=True, eq=False)
class Timestamp:
    """A moment in nanoseconds since 1970, and the zone in which it is written."""

    nanoseconds: int
    offset_s: int = 0
    """East of UTC."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanoseconds == other.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def at(self, zone: "Zone") -> tuple[datetime, int]:
        """The moment in ``zone``, to the second, and the years by which the real one is later.

        Near the ends of the years 1 to 9999 a zone may exceed the range of datetime. Then the
        moment is moved by multiples of 400 years, after which the calendar repeats.
        """
        seconds = self.nanoseconds // SECOND + (zone if isinstance(zone, int) else 0)
        first, last, cycles = _FIRST_S + _DAYS_S, _LAST_S - _DAYS_S, 0
        if seconds < first:
            cycles = (seconds - first) // _CYCLE_S
        elif seconds >= last:
            cycles = (seconds - last) // _CYCLE_S + 1
        moment = _EPOCH + timedelta(seconds=seconds - cycles * _CYCLE_S)
        shown = moment if isinstance(zone, int) else moment.astimezone(zone)
        return shown, cycles * 400


def parse_timestamp(text: str) -> Timestamp:
    """The moment in an RFC 3339 text.

    Raises:
        TimeError: it is not a time, or not between the years 1 and 9999.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise TimeError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    try:
        date = datetime.fromisoformat(match["date"]).replace(tzinfo=UTC)
    except ValueError:
        raise TimeError(f"{text[:64]!r} has no valid date between the years 1 and 9999") from None
    hour, minute, second = (int(match[part]) for part in ("hour", "minute", "second"))
    offset_s = _offset_s(match["zone"])
    if hour > 23 or minute > 59 or second > 59:
        raise TimeError(f"{text[:64]!r} has no valid time of day")
    fraction = int(((match["fraction"] or "") + "0" * 9)[:9])
    days = (date - _EPOCH).days
    total_s = days * 86400 + hour * 3600 + minute * 60 + second - offset_s
    return moment(total_s * SECOND + fraction, offset_s)


def moment(nanoseconds: int, offset_s: int = 0) -> Timestamp:
    """The moment that many nanoseconds after 1970.

    Raises:
        TimeError: it is not between the years 1 and 9999.
    """
    if not _FIRST_S <= nanoseconds // SECOND <= _LAST_S:
        raise TimeError("timestamp overflow")
    return Timestamp(nanoseconds, offset_s)


def _offset_s(zone: str) -> int:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:])
    if hours > 24 or minutes > 59:
        raise TimeError(f"no time zone is {zone} from UTC")
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def parse_duration(text: str) -> Duration:
    """A duration such as ``1h30m`` or ``-1.5s``, by the rules of Go's ``time.ParseDuration``.

    Raises:
        TimeError: it is not a duration, or exceeds 64 bits of nanoseconds.
    """
    error = TimeError("type conversion error from 'string' to 'google.protobuf.Duration'")
    is_negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    if not rest or len(rest) > 10_000:
        raise error
    total = 0
    while rest:
        match = _PART.match(rest)
        if match is None or not (match[1] or match[3]) or match[4] not in _UNITS:
            raise error
        total += _nanoseconds(match[1], match[3] or "", _UNITS[match[4]])
        if total > 2**63:
            raise error
        rest = rest[match.end() :]
    if total == 2**63 and not is_negative:
        raise error
    return Duration(-total if is_negative else total)


def _nanoseconds(whole: str, fraction: str, unit: int) -> int:
    """As Go computes it: the fraction through a float, cut off before it would exceed 63 bits."""
    if len(whole.lstrip("0")) > 20:
        return 2**63 + 1
    kept, scale = 0, 1
    for digit in fraction:
        if kept * 10 + int(digit) > 2**63:
            break
        kept, scale = kept * 10 + int(digit), scale * 10
    part = int(float(kept) * (float(unit) / float(scale))) if kept else 0
    return int(whole or "0") * unit + part


def duration_text(duration: Duration) -> str:
    """Seconds as CEL writes them: ``90s``, ``1.5s``."""
    sign = -1 if duration.nanoseconds < 0 else 1
    whole, rest = divmod(abs(duration.nanoseconds), SECOND)
    seconds = sign * whole + sign * rest / 1e9
    return f"{Decimal(repr(float(seconds))):f}".removesuffix(".0") + "s"


def timestamp_text(time: Timestamp) -> str:
    """The RFC 3339 text, with as many fraction digits as needed."""
    shown, years = time.at(time.offset_s)
    fraction = f"{time.nanoseconds % SECOND:09d}".rstrip("0")
    minutes = abs(time.offset_s) // 60
    zone = f"{'-' if time.offset_s < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    shown_zone = "Z" if time.offset_s == 0 else zone
    date = f"{shown.year + years:04d}-{shown:%m-%dT%H:%M:%S}"
    return date + (f".{fraction}" if fraction else "") + shown_zone


def zone_of(text: str) -> Zone:
    """The zone that ``text`` names: ``Europe/Berlin``, ``UTC``, or hours and minutes from UTC.

    Raises:
        TimeError: there is no zone with that name.
    """
    hours, colon, minutes = text.partition(":")
    if colon:
        if not (_NUMBER.fullmatch(hours) and _NUMBER.fullmatch(minutes)):
            raise TimeError(f"invalid time zone {text[:64]!r}")
        west = text.startswith("-")
        return (int(hours) * 60 + int(minutes) * (-1 if west else 1)) * 60
    try:
        return ZoneInfo(text) if text not in ("", "UTC", "Local") else 0
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise TimeError(f"unknown time zone {text[:64]}") from None


def minutes_of(zone: str) -> int:
    """The minutes of a zone written as hours and minutes; 0 for others."""
    minutes = zone.partition(":")[2]
    return int(minutes) if _NUMBER.fullmatch(minutes) else 0


def add(left: "Timestamp | Duration", right: "Timestamp | Duration") -> "Timestamp | Duration":
    """The sum. The sum of a moment and a duration is a moment.

    Raises:
        TimeError: overflow, or both are moments.
    """
    match left, right:
        case Duration(), Duration():
            return _duration(left.nanoseconds + right.nanoseconds)
        case Timestamp(), Duration():
            return moment(left.nanoseconds + right.nanoseconds, left.offset_s)
        case Duration(), Timestamp():
            return moment(left.nanoseconds + right.nanoseconds, right.offset_s)
        case _:
            raise TimeError("no such overload: _+_(timestamp, timestamp)")


def subtract(left: "Timestamp | Duration", right: "Timestamp | Duration") -> "Timestamp | Duration":
    """The difference. The difference of two moments is a duration.

    Raises:
        TimeError: overflow, or a moment is subtracted from a duration.
    """
    match left, right:
        case (Duration(), Duration()) | (Timestamp(), Timestamp()):
            return _duration(left.nanoseconds - right.nanoseconds)
        case Timestamp(), Duration():
            _duration(-right.nanoseconds)
            return moment(left.nanoseconds - right.nanoseconds, left.offset_s)
        case _:
            raise TimeError("no such overload: _-_(duration, timestamp)")


def negate(duration: Duration) -> Duration:
    """The opposite duration.

    Raises:
        TimeError: overflow.
    """
    return _duration(-duration.nanoseconds)


def _duration(nanoseconds: int) -> Duration:
    if nanoseconds not in _INT64:
        raise TimeError("integer overflow")
    return Duration(nanoseconds)
