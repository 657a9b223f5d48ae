"""A device as a selector sees it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dray.cel.errors import CelEvaluationError
from dray.cel.semver import SemverError, parse_semver
from dray.cel.values import Value
from dray.domain.devices import AttributeValue, Device, Version
from dray.domain.errors import InvalidInputError
from dray.domain.quantities import Quantity, parse_quantity

_INT64 = range(-(2**63), 2**63)
_KINDS = {"int": int, "bool": bool, "string": str, "version": str}
"""Fields of an attribute that hold one value; with an s they hold several."""


Published = AttributeValue | tuple[AttributeValue, ...]
"""The value of an attribute; several where it is a list (DRAListTypeAttributes)."""


class Domains(dict[str, dict[str, Value]]):
    """Values by domain and name. An unknown domain reads as an empty map, but is not ``in``."""

    def __missing__(self, domain: str) -> dict[str, Value]:
        return {}


class Names(dict[str, Value]):
    """Values by name, which Kubernetes looks up by text only."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """What CEL's variable ``device`` holds.

    Keys are ``domain/name``, or a plain name, whose domain is then the driver. As in Kubernetes,
    one attribute that can't be converted (a version that is none) fails every expression on
    the device; ``broken`` says which.
    """

    driver: str
    attributes: Mapping[str, Published] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allow_multiple_allocations: bool = False
    broken: str = ""
    listed: str = field(default="", init=False)
    """An attribute that is a list, which Kubernetes refuses where they are not enabled."""
    attributes_by_domain: Domains = field(init=False, repr=False, compare=False)
    capacity_by_domain: Domains = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        attributes, capacity = Domains(), Domains()
        for name, value in self.attributes.items():
            if isinstance(value, tuple):
                object.__setattr__(self, "listed", name)
            try:
                _put(attributes, self.driver, name, _converted(value))
            except ValueError as error:
                if not self.broken:
                    object.__setattr__(self, "broken", f"attribute {name}: {error}")
        for name, amount in self.capacity.items():
            _put(capacity, self.driver, name, amount)
        object.__setattr__(self, "attributes_by_domain", attributes)
        object.__setattr__(self, "capacity_by_domain", capacity)

    @property
    def as_map(self) -> dict[str, Value]:
        """The variable itself, as expressions can see it."""
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.allow_multiple_allocations,
            "attributes": self.attributes_by_domain,
            "capacity": self.capacity_by_domain,
        }

    def check(self, *, list_attributes: bool = True) -> None:
        """Refuse a device that has an attribute without a usable value.

        Raises:
            CelEvaluationError: it has one.
        """
        if self.broken:
            raise CelEvaluationError(self.broken)
        if self.listed and not list_attributes:
            raise CelEvaluationError(f"attribute {self.listed}: unsupported attribute value")


def view_of(driver: str, device: Device) -> DeviceView:
    """The view of a device of a slice of ``driver``; what can't be read makes it broken."""
    capacity, broken = {}, ""
    for name, amount in device.capacity.items():
        try:
            capacity[name] = parse_quantity(amount.value)
        except InvalidInputError as error:
            broken = broken or f"capacity {name}: {error}"
    return DeviceView(
        driver, device.attributes, capacity, device.allow_multiple_allocations, broken
    )


def view_from_json(driver: str, device: Mapping[str, Any]) -> DeviceView:
    """The view of a device written as in a ``resource.k8s.io/v1`` ResourceSlice.

    Raises:
        InvalidInputError: a field is of another type than there.
    """
    attributes: dict[str, Published] = {}
    capacity, broken = {}, ""
    for name, value in _named(device, "attributes"):
        found = _published(name, value)
        if found is None:
            broken = broken or f"attribute {name}: unsupported attribute value"
        else:
            attributes[name] = found
    for name, amount in _named(device, "capacity"):
        try:
            capacity[name] = parse_quantity(str(amount.get("value") or 0))
        except InvalidInputError as error:
            broken = broken or f"capacity {name}: {error}"
    shared = device.get("allowMultipleAllocations") is True
    return DeviceView(driver, attributes, capacity, shared, broken)


def _named(device: Mapping[str, Any], part: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The values of a part of a device, by name."""
    values = device.get(part) or {}
    if not isinstance(values, Mapping):
        raise _unexpected(f"device.{part}", values, "an object")
    for name, value in values.items():
        if not isinstance(value or {}, Mapping):
            raise _unexpected(f"device.{part}: {name}", value, "an object")
        yield str(name), value or {}


def _published(name: str, value: Mapping[str, Any]) -> Published | None:
    for kind, type_ in _KINDS.items():
        items = value.get(f"{kind}s")
        if items is not None:
            if not isinstance(items, Sequence) or isinstance(items, str):
                raise _unexpected(f"attribute {name}: {kind}s", items, "a list")
            return tuple(_item(name, kind, type_, item) for item in items)
    for kind, type_ in _KINDS.items():
        if value.get(kind) is not None:
            return _item(name, kind, type_, value[kind])
    return None


def _item(name: str, kind: str, type_: type, value: Any) -> AttributeValue:
    is_of_kind = isinstance(value, type_) and not (type_ is int and isinstance(value, bool))
    if not is_of_kind:
        raise _unexpected(f"attribute {name}: {kind}", value, type_.__name__)
    found: AttributeValue = Version(value) if kind == "version" else value
    return found


def _unexpected(what: str, seen: Any, expected: str) -> InvalidInputError:
    return InvalidInputError(f"{what} is {type(seen).__name__}, expected {expected}")


def _put(domains: Domains, driver: str, name: str, value: Value) -> None:
    domain, slash, short = name.partition("/")
    domains.setdefault(domain if slash else driver, Names())[short if slash else name] = value


def _converted(value: Published) -> Value:
    if isinstance(value, tuple):
        return [_converted(item) for item in value]
    if isinstance(value, Version):
        try:
            return parse_semver(value.version)
        except SemverError as error:
            raise ValueError(f"parse semantic version: {error}") from None
    if not isinstance(value, bool) and isinstance(value, int) and value not in _INT64:
        raise ValueError(f"{value} exceeds 64 bits")
    return value
