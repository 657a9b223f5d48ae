"""The device as a selector sees it: the variable ``device``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dray.api.devices import AttributeValue, Version
from dray.api.quantities import Quantity
from dray.cel.errors import CelEvaluationError
from dray.cel.library.semver import SemverError, parse_semver
from dray.cel.library.values import Value

_INT64 = range(-(2**63), 2**63)
Published = AttributeValue | tuple[AttributeValue, ...]
"""The value of an attribute, or several values if it is a list (DRAListTypeAttributes)."""


class Domains(dict[str, dict[str, Value]]):
    """Values by domain and name. An unknown domain reads as an empty map, but is not ``in``."""

    def __missing__(self, domain: str) -> dict[str, Value]:
        return {}


class Names(dict[str, Value]):
    """Values by name. Kubernetes looks them up only by text."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """The value of CEL's variable ``device``.

    Keys are ``domain/name``, or a plain name if the domain is the driver. As in Kubernetes, every
    expression fails on a device with an attribute that can't be converted (an invalid version).
    ``broken`` names that attribute.
    """

    driver: str
    attributes: Mapping[str, Published] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allow_multiple_allocations: bool = False
    broken: str = ""
    listed: str = field(default="", init=False)
    """An attribute that is a list. Kubernetes refuses lists if they are not enabled."""
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


def _put(domains: Domains, driver: str, name: str, value: Value) -> None:
    domain, slash, short = name.partition("/")
    if not slash:
        domain, short = driver, name
    if domain not in domains:
        domains[domain] = Names()
    domains[domain][short] = value


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
