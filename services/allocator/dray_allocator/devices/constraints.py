"""``matchAttribute`` and ``distinctAttribute`` over the devices of a claim."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from dray.api.claims import Constraint
from dray.api.devices import Attribute, AttributeValue
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.requirements import Alternative
from dray_allocator.devices.versions import SchedulerVersion

Typed = tuple[type, AttributeValue]
"""A value with its type: 1, "1" and true are three values."""
Values = frozenset[Typed]


class Tracked(Protocol):
    """A constraint and what the devices chosen so far mean to it."""

    def add(self, alternative: Alternative, candidate: Candidate) -> bool:
        """Count a device in, unless that would break the constraint."""

    def remove(self, alternative: Alternative, candidate: Candidate) -> None:
        """Undo the latest ``add`` that is not undone yet; it was of these two."""


def tracked(constraint: Constraint, rules: SchedulerVersion) -> Tracked:
    """A constraint with no device chosen yet."""
    if constraint.match_attribute is not None:
        if rules.list_attributes:
            return _MatchSets(constraint.requests, constraint.match_attribute, rules)
        return _Match(constraint.requests, constraint.match_attribute)
    kind = _DistinctByRequest if rules.distinct_by_request else _Distinct
    return kind(constraint.requests, constraint.distinct_attribute or "", rules)


class _Over(ABC):
    """What all of them share: the requests they are about, and the attribute.

    A device without the attribute breaks the constraint, even if it is the only one.
    """

    def __init__(self, requests: Sequence[str], attribute: str) -> None:
        self._requests = requests
        self._attribute = attribute

    def add(self, alternative: Alternative, candidate: Candidate) -> bool:
        """Count a device in, unless that would break the constraint."""
        if not self._applies(alternative):
            return True
        is_published, value = _published(candidate, self._attribute)
        return is_published and self._admit(alternative, value)

    def remove(self, alternative: Alternative, candidate: Candidate) -> None:
        """Undo the latest ``add``."""
        if self._applies(alternative):
            self._withdraw(alternative)

    def _applies(self, alternative: Alternative) -> bool:
        return not self._requests or alternative.is_named_in(self._requests)

    @abstractmethod
    def _admit(self, alternative: Alternative, value: Attribute) -> bool:
        """Count in a device of this value, unless that would break the constraint."""

    @abstractmethod
    def _withdraw(self, alternative: Alternative) -> None:
        """Undo the latest ``_admit`` that was true."""


class _Match(_Over):
    """All devices have the first one's value. A list, or nothing, equals nothing."""

    def __init__(self, requests: Sequence[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._devices = 0
        self._value: Typed | None = None

    def _admit(self, alternative: Alternative, value: Attribute) -> bool:
        typed = _scalar(value)
        if self._devices == 0:
            self._value = typed
        elif typed is None or typed != self._value:
            return False
        self._devices += 1
        return True

    def _withdraw(self, alternative: Alternative) -> None:
        self._devices -= 1


class _MatchSets(_Over):
    """Where lists are known: some value is common to all devices."""

    def __init__(self, requests: Sequence[str], attribute: str, rules: SchedulerVersion) -> None:
        super().__init__(requests, attribute)
        self._stays_narrow = rules.match_list_stays_narrow
        self._common: list[Values] = []

    def _admit(self, alternative: Alternative, value: Attribute) -> bool:
        values = _values(value, lists=True)
        if self._common:
            values &= self._common[-1]
        if not values:
            return False
        self._common.append(values)
        return True

    def _withdraw(self, alternative: Alternative) -> None:
        narrowed = self._common.pop()
        if self._stays_narrow and self._common:
            self._common[-1] = narrowed


class _Distinct(_Over):
    """No value of a device is one of another device."""

    def __init__(self, requests: Sequence[str], attribute: str, rules: SchedulerVersion) -> None:
        super().__init__(requests, attribute)
        self._knows_lists = rules.list_attributes
        self._seen: list[Values] = []
        self._together: set[Typed] = set()
        """The values of all of them, of which none is there twice."""

    def _admit(self, alternative: Alternative, value: Attribute) -> bool:
        values = _values(value, lists=self._knows_lists)
        if (not values and self._seen) or not self._together.isdisjoint(values):
            return False
        self._seen.append(values)
        self._together |= values
        return True

    def _withdraw(self, alternative: Alternative) -> None:
        self._together -= self._seen.pop()


class _DistinctByRequest(_Over):
    """As up to 1.36: of each request, only the value of its latest device is remembered.

    When that device is given back nothing is remembered of the request any more.
    """

    def __init__(self, requests: Sequence[str], attribute: str, rules: SchedulerVersion) -> None:
        super().__init__(requests, attribute)
        self._knows_lists = rules.list_attributes
        self._devices = 0
        self._seen: dict[str, Values] = {}

    def _admit(self, alternative: Alternative, value: Attribute) -> bool:
        values = _values(value, lists=self._knows_lists)
        if self._devices:
            seen = self._seen.values()
            if (not values and self._seen) or any(values & one for one in seen):
                return False
        self._seen[alternative.request] = values
        self._devices += 1
        return True

    def _withdraw(self, alternative: Alternative) -> None:
        self._seen.pop(alternative.request, None)
        self._devices -= 1


def _published(candidate: Candidate, attribute: str) -> tuple[bool, Attribute]:
    """Whether a device publishes an attribute, and its value.

    Constraints name attributes in full; a driver may leave out its own domain.
    """
    attributes = candidate.device.attributes
    if attribute in attributes:
        return True, attributes[attribute]
    domain, slash, name = attribute.partition("/")
    if slash and domain == candidate.id.driver and name in attributes:
        return True, attributes[name]
    return False, None


def _scalar(value: Attribute) -> Typed | None:
    return None if value is None or isinstance(value, tuple) else (type(value), value)


def _values(value: Attribute, *, lists: bool) -> Values:
    """The values to compare; none of what is of no kind that is known."""
    if value is None or (isinstance(value, tuple) and not lists):
        return frozenset()
    items = value if isinstance(value, tuple) else (value,)
    return frozenset((type(item), item) for item in items)
