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


class ConstraintState(Protocol):
    """A constraint and the devices that were added to it so far."""

    def add(self, alternative: Alternative, candidate: Candidate) -> bool:
        """Add a device, unless that would violate the constraint."""

    def remove(self, alternative: Alternative, candidate: Candidate) -> None:
        """Undo the latest ``add``, which had the same arguments."""


def constraint_state(constraint: Constraint, version: SchedulerVersion) -> ConstraintState:
    """A constraint with no device chosen yet."""
    if constraint.match_attribute is not None:
        if version.list_attributes:
            return _MatchSets(constraint.requests, constraint.match_attribute, version)
        return _Match(constraint.requests, constraint.match_attribute)
    kind = _DistinctByRequest if version.distinct_by_request else _Distinct
    return kind(constraint.requests, constraint.distinct_attribute or "", version)


class _AttributeConstraint(ABC):
    """A constraint on an attribute, for some requests of a claim.

    A device without the attribute violates the constraint, even if it is the only one.
    """

    def __init__(self, requests: Sequence[str], attribute: str) -> None:
        self._requests = requests
        self._attribute = attribute

    def add(self, alternative: Alternative, candidate: Candidate) -> bool:
        """Add a device, unless that would violate the constraint."""
        if not self._applies(alternative):
            return True
        is_published, value = _published(candidate, self._attribute)
        return is_published and self._add_value(alternative, value)

    def remove(self, alternative: Alternative, candidate: Candidate) -> None:
        """Undo the latest ``add``."""
        if self._applies(alternative):
            self._remove_value(alternative)

    def _applies(self, alternative: Alternative) -> bool:
        return not self._requests or alternative.is_named_in(self._requests)

    @abstractmethod
    def _add_value(self, alternative: Alternative, value: Attribute) -> bool:
        """Add a device with this value, unless that would violate the constraint."""

    @abstractmethod
    def _remove_value(self, alternative: Alternative) -> None:
        """Undo the latest ``_add_value`` that returned true."""


class _Match(_AttributeConstraint):
    """All devices have the value of the first one. Lists and missing values are never equal."""

    def __init__(self, requests: Sequence[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._devices = 0
        self._value: Typed | None = None

    def _add_value(self, alternative: Alternative, value: Attribute) -> bool:
        typed = _scalar(value)
        if self._devices == 0:
            self._value = typed
        elif typed is None or typed != self._value:
            return False
        self._devices += 1
        return True

    def _remove_value(self, alternative: Alternative) -> None:
        self._devices -= 1


class _MatchSets(_AttributeConstraint):
    """matchAttribute with DRAListTypeAttributes: all devices have a value in common."""

    def __init__(self, requests: Sequence[str], attribute: str, version: SchedulerVersion) -> None:
        super().__init__(requests, attribute)
        self._stays_narrow = version.match_list_stays_narrow
        self._common: list[Values] = []

    def _add_value(self, alternative: Alternative, value: Attribute) -> bool:
        values = _values(value, lists=True)
        if self._common:
            values &= self._common[-1]
        if not values:
            return False
        self._common.append(values)
        return True

    def _remove_value(self, alternative: Alternative) -> None:
        narrowed = self._common.pop()
        if self._stays_narrow and self._common:
            self._common[-1] = narrowed


class _Distinct(_AttributeConstraint):
    """distinctAttribute: no two devices have a value in common."""

    def __init__(self, requests: Sequence[str], attribute: str, version: SchedulerVersion) -> None:
        super().__init__(requests, attribute)
        self._knows_lists = version.list_attributes
        self._seen: list[Values] = []
        self._all_values: set[Typed] = set()
        """The values of all devices."""

    def _add_value(self, alternative: Alternative, value: Attribute) -> bool:
        values = _values(value, lists=self._knows_lists)
        if (not values and self._seen) or not self._all_values.isdisjoint(values):
            return False
        self._seen.append(values)
        self._all_values |= values
        return True

    def _remove_value(self, alternative: Alternative) -> None:
        self._all_values -= self._seen.pop()


class _DistinctByRequest(_AttributeConstraint):
    """distinctAttribute up to 1.36: only the value of the latest device of each request is kept.

    If that device is removed, no value of the request is left.
    """

    def __init__(self, requests: Sequence[str], attribute: str, version: SchedulerVersion) -> None:
        super().__init__(requests, attribute)
        self._knows_lists = version.list_attributes
        self._devices = 0
        self._seen: dict[str, Values] = {}

    def _add_value(self, alternative: Alternative, value: Attribute) -> bool:
        values = _values(value, lists=self._knows_lists)
        if self._devices:
            seen = self._seen.values()
            if (not values and self._seen) or any(values & one for one in seen):
                return False
        self._seen[alternative.request] = values
        self._devices += 1
        return True

    def _remove_value(self, alternative: Alternative) -> None:
        self._seen.pop(alternative.request, None)
        self._devices -= 1


def _published(candidate: Candidate, attribute: str) -> tuple[bool, Attribute]:
    """Whether a device publishes an attribute, and its value.

    Constraints use full names; a slice may omit the driver's domain.
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
    """The values to compare; none for a value of an unknown type."""
    if value is None or (isinstance(value, tuple) and not lists):
        return frozenset()
    items = value if isinstance(value, tuple) else (value,)
    return frozenset((type(item), item) for item in items)
